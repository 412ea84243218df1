//go:build unix && !linux

package valkeyd

import (
	"os/exec"
	"strconv"
	"syscall"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// attributes keep a terminal's Ctrl-C from the server.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// keep starts a shell that reads from a pipe held by this process and kills
// the server when the pipe closes, which it does however this process dies.
// It is best effort: without a shell the server may outlive a killed parent.
func keep(pid int) (release func()) {
	cmd := exec.Command("/bin/sh", "-c", "read _; kill -9 "+strconv.Itoa(pid))
	cmd.SysProcAttr = attributes()
	pipe, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return func() {}
	}
	return func() {
		cmd.Process.Kill() // before the pipe closes: the id may have a new owner
		cmd.Wait()
		pipe.Close()
	}
}
