package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

// Exit codes. After a signal it is 128 and the signal's number.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitNotFound    = 4
	exitLimited     = 5 // limits check: a job would not be let through now
)

// exitError is an error with its exit code. Without err it was told already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// usage is an error in the command line.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// told is the exit code of what was said on standard error already.
func told(code int) error { return &exitError{code: code} }

// signalled is the exit code of a command that a signal ended.
func signalled(s os.Signal) int {
	if s == syscall.SIGTERM {
		return 128 + 15
	}
	return 128 + 2
}

func exitCode(err error) int {
	var coded *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrNoLimit), errors.Is(err, metrics.ErrNotFound):
		return exitNotFound
	case errors.Is(err, queue.ErrBadName), errors.Is(err, queue.ErrBadJob), errors.Is(err, limiter.ErrBadLimit):
		return exitUsage
	case errors.Is(err, queue.ErrUnavailable), lostServer(err):
		return exitUnreachable
	}
	return exitFailure
}

// lostServer: the server did not answer.
func lostServer(err error) bool {
	if _, answered := valkey.IsValkeyErr(err); answered {
		return false
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, valkey.ErrClosing) ||
		errors.Is(err, context.DeadlineExceeded)
}

// errorText is err in one line; "" when there is nothing to say.
func errorText(err error) string {
	var coded *exitError
	if err == nil || errors.As(err, &coded) && coded.err == nil {
		return ""
	}
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	return strings.TrimPrefix(text, "emq: ")
}
