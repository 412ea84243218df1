package valkeyd

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

//go:embed preload/clock.c
var clockSource []byte

// StartWithClock starts a server as [Start] does and returns its wall clock.
// It needs Linux and, the first time, a C compiler named cc; errors say so.
func StartWithClock(opts Options) (*Server, *Clock, error) {
	library, err := clockLibrary()
	if err != nil {
		return nil, nil, err
	}
	s, err := prepare(opts)
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(s.temp, "clock")
	clock, err := openClock(file)
	if err != nil {
		os.RemoveAll(s.temp)
		return nil, nil, fmt.Errorf("valkeyd: clock: %w", err)
	}
	s.opts.Env = append([]string{"LD_PRELOAD=" + library, "EMQ_CLOCK=" + file}, opts.Env...)
	if err := s.start(); err != nil {
		return nil, nil, err
	}
	return s, clock, nil
}

// openClock makes the file and maps it until the clock is garbage.
func openClock(path string) (*Clock, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Truncate(8); err != nil {
		return nil, err
	}
	page, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	clock := &Clock{ns: (*atomic.Int64)(unsafe.Pointer(&page[0]))}
	runtime.AddCleanup(clock, func(page []byte) { syscall.Munmap(page) }, page)
	return clock, nil
}

// clockLibrary returns the path of the compiled clock.c, which is built once
// per version of its source and kept in the user's cache directory.
func clockLibrary() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("valkeyd: clock: %w", err)
	}
	dir := filepath.Join(cache, "emq")
	path := filepath.Join(dir, fmt.Sprintf("clock-%s-%.8x.so", runtime.GOARCH, sha256.Sum256(clockSource)))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("valkeyd: clock: %w", err)
	}
	build, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return "", fmt.Errorf("valkeyd: clock: %w", err)
	}
	defer os.RemoveAll(build)
	source, library := filepath.Join(build, "clock.c"), filepath.Join(build, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return "", fmt.Errorf("valkeyd: clock: %w", err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("valkeyd: the virtual clock needs a C compiler and the C library's headers "+
			"(.ci/install-tools installs them): cc: %w\n%s", err, out)
	}
	// Two processes may build at once: each rename puts a whole file in place.
	if err := os.Rename(library, path); err != nil {
		return "", fmt.Errorf("valkeyd: clock: %w", err)
	}
	return path, nil
}
