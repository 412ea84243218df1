//go:build unix

package main

import (
	"os"
	"syscall"
)

// The group of a program has the program's process id. It lives as long as one process in it.

func stopGroup(leader *os.Process) { syscall.Kill(-leader.Pid, syscall.SIGTERM) }
func killGroup(leader *os.Process) { syscall.Kill(-leader.Pid, syscall.SIGKILL) }
