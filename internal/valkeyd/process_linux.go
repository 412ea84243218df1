package valkeyd

import "syscall"

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// attributes keep a terminal's Ctrl-C from the server and end it with its
// parent.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// keep has nothing to do: the kernel ends the server with its parent.
func keep(int) (release func()) { return func() {} }
