package faults

import (
	"syscall"
	"unsafe"
)

// prlimit sets a resource limit of another process.
func prlimit(pid, resource int, n uint64) error {
	limit := [2]uint64{n, 1 << 62}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), uintptr(resource), uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
