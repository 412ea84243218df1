//go:build !linux

package valkeyd

import (
	"fmt"
	"runtime"
)

// StartWithClock needs Linux and fails elsewhere.
func StartWithClock(Options) (*Server, *Clock, error) {
	return nil, nil, fmt.Errorf("valkeyd: the virtual clock needs Linux, this is %s", runtime.GOOS)
}
