//go:build unix && !linux

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup gives cmd a process group of its own.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// groupAlive: there is a process in the group.
func groupAlive(leader *os.Process) bool { return syscall.Kill(-leader.Pid, 0) == nil }
