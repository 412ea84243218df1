package lua

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

var (
	// ErrUnavailable is wrapped when the server answered that it cannot run the script now (it is loading, busy, read-only,
	// cut off from its replicas or its cluster), and asking again for about a second did not help. Nothing ran.
	ErrUnavailable = errors.New("server unavailable")
	// ErrStoreFull is wrapped when the server is out of memory for new jobs (claims and settles go on, so the fleet drains the
	// queue) or out of disk for anything. Nothing ran.
	ErrStoreFull = errors.New("server out of memory")
)

// ConfigError says that a queue is configured in a way that no script obeys; its claims refuse until it is mended.
type ConfigError struct {
	Key   string // the hash, emq:{queue}:meta
	Field string // max, duration, algorithm, layout, …
	Value string // what it holds
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("emq: queue misconfigured: %s %s", e.Key, e.want())
}

// want says what the field holds and what would be right.
func (e *ConfigError) want() string {
	want := "a whole number without sign or leading zero, from 0 to the most that its algorithm counts exactly (at most 9007199254740991)"
	switch e.Field {
	case "duration", "window":
		want = "a whole number of milliseconds, 1 or more"
	case "burst":
		want = "none, or of a token_bucket a whole number up to the most that is counted exactly"
	case "algorithm":
		want = "fixed_window, sliding_log, sliding_window_counter, token_bucket or leaky_bucket"
	case "layout":
		want = "1: another version of this library laid the queue out"
	}
	if strings.HasSuffix(e.Key, ":limits") || strings.HasSuffix(e.Key, ":overrides") {
		want = "the words of a limit, as a set writes them"
	}
	return fmt.Sprintf("field %s is %s; want %s", e.Field, strconv.QuoteToASCII(cut(e.Value, 64)), want)
}

// CorruptError says that a key holds what its script cannot read. Nothing was popped, spent or written; deleting the key,
// or resetting the limit, heals it.
type CorruptError struct {
	Key   string
	Value string // what it holds; "" when it is of another type
	Type  string // the type it has, when that is what is wrong
	Want  string // the type or the value it should have; "" for a whole number
}

func (e *CorruptError) Error() string {
	if e.Type != "" {
		return fmt.Sprintf("emq: key %s is a %s; want a %s", e.Key, e.Type, e.Want)
	}
	want := "a whole number up to 9007199254740991"
	if e.Want != "" {
		want = e.Want
	}
	return fmt.Sprintf("emq: key %s holds %s; want %s", e.Key, strconv.QuoteToASCII(cut(e.Value, 64)), want)
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// How often, and after which first pause, a script is sent again when the server's answer proves that it did not run.
const (
	maxResends  = 5
	resendAfter = 20 * time.Millisecond
)

// unavailable are the beginnings of answers that prove that a script did not run and that it may run later. NOSCRIPT, MOVED
// and ASK are answered by the client library.
var unavailable = []string{"TRYAGAIN", "CLUSTERDOWN", "LOADING", "BUSY", "READONLY", "NOREPLICAS", "MASTERDOWN"}

// didNotRun tells whether err proves that the script did not run. After a time-out or a broken connection it may have.
func didNotRun(err error) bool {
	answer, ok := valkey.IsValkeyErr(err)
	if !ok {
		return false
	}
	for _, prefix := range unavailable {
		if strings.HasPrefix(answer.Error(), prefix) {
			return true
		}
	}
	return false
}

// explain turns an error of the server or the connection into one that says what is wrong and where.
func (s *script[A]) explain(err error) error {
	answer, ok := valkey.IsValkeyErr(err)
	if !ok {
		return fmt.Errorf("emq: %s: %w", s.name, err)
	}
	text := answer.Error()
	switch {
	case didNotRun(err):
		return fmt.Errorf("emq: %s: %w: %w", s.name, ErrUnavailable, err)
	case strings.HasPrefix(text, "OOM"), strings.HasPrefix(text, "MISCONF"):
		return fmt.Errorf("emq: %s: %w: %w", s.name, ErrStoreFull, err)
	case strings.HasPrefix(text, "WRONGKEY "):
		if m := wrongKey.FindStringSubmatch(text); m != nil {
			return &CorruptError{Key: m[3], Type: m[2], Want: kindOf(m[1])}
		}
	}
	where := scriptLine.ReplaceAllStringFunc(text, func(m string) string {
		if n, _ := strconv.Atoi(scriptLine.FindStringSubmatch(m)[1]); n >= 1 && n <= len(s.lines) {
			return s.lines[n-1] + ":"
		}
		return m
	})
	return fmt.Errorf("emq: %s: %w", s.name, &located{where, err})
}

// located is an answer of the server that names the file and line of a script's piece, not of its assembled text.
type located struct {
	text string
	err  error
}

func (e *located) Error() string { return e.text }
func (e *located) Unwrap() error { return e.err }

// wrongKey is how scripts say that a key is of another type than a command needs.
var wrongKey = regexp.MustCompile(`^WRONGKEY (\w+) (\w+) (.*);`)

// kindOf is the type of the keys that a command works on.
func kindOf(command string) string {
	switch command[0] {
	case 'Z':
		return "zset"
	case 'H':
		return "hash"
	case 'L', 'R':
		return "list"
	case 'X':
		return "stream"
	}
	return "string"
}
