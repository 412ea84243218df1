//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// These systems have no process groups and no SIGTERM: a program is ended at once, and alone.

func ownGroup(*exec.Cmd)           {}
func stopGroup(leader *os.Process) { leader.Kill() }
func killGroup(leader *os.Process) { leader.Kill() }
func groupAlive(*os.Process) bool  { return false }
