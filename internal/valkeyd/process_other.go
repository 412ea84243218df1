//go:build !unix

package valkeyd

import (
	"os"
	"syscall"
)

// These systems cannot pause a process; Pause and Resume return an error.
var (
	sigStop os.Signal = syscall.Signal(-1)
	sigCont os.Signal = syscall.Signal(-1)
)

func attributes() *syscall.SysProcAttr { return nil }

func keep(int) (release func()) { return func() {} }
