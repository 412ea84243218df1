//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

const answerRead = 4 << 10 // bytes; a pipe holds more than this

// attachAnswer gives cmd a pipe as its file descriptor 3. Once it has started, close started; once it has ended, read is what it wrote
// there, also when a child of it still holds the pipe.
func attachAnswer(cmd *exec.Cmd) (started func(), read func() string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.ExtraFiles = []*os.File{w}
	return func() { w.Close() }, func() string {
		defer r.Close()
		text := make([]byte, answerRead)
		n := 0
		if raw, err := r.SyscallConn(); err == nil {
			_ = raw.Read(func(fd uintptr) bool {
				n, _ = syscall.Read(int(fd), text)
				return true // what is not there yet does not come
			})
		}
		return string(text[:max(0, n)])
	}, nil
}
