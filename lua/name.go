package lua

import (
	"errors"
	"fmt"
)

// ErrBadName is wrapped by every error about a queue name, job id, job name, key name or limit name outside the allow-list.
var ErrBadName = errors.New("bad name")

// MaxName is the longest name in bytes.
const MaxName = 128

// CheckName refuses a name that is not 1 to 128 of the characters A-Z a-z 0-9 . _ -: others could forge another key. The
// error wraps [ErrBadName]; what says which name it is, for the error's text.
func CheckName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w: %s is empty; use 1 to %d of the characters A-Z a-z 0-9 . _ -", ErrBadName, what, MaxName)
	}
	if len(name) > MaxName {
		return fmt.Errorf("%w: %s has %d bytes; at most %d are allowed", ErrBadName, what, len(name), MaxName)
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return fmt.Errorf("%w: %s %q has %q at byte %d; only A-Z a-z 0-9 . _ - are allowed", ErrBadName, what, name, c, i)
	}
	return nil
}
