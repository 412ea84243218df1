package limiter

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Most is the largest max and cost: integers are exact in a script up to 2^53-1.
const Most = 1<<53 - 1

// Algorithm names the rule by which a bucket fills and empties.
type Algorithm string

// FixedWindow grants up to max in a window that opens with the first grant and ends one window later. Two windows may meet:
// up to 2·max-1 grants can then fall into a span shorter than one window, never more.
const FixedWindow Algorithm = "fixed_window"

// Limit is a rule: at most Max units in each Window. The zero value limits nothing.
type Limit struct {
	// Algorithm is [FixedWindow] when empty.
	Algorithm Algorithm
	// Max is the number of units a window grants, up to [Most]. 0 means not limited, as in EchoMQ (golang.org/x/time/rate
	// means the opposite by 0); to let nothing through, pause the queue.
	Max int64
	// Window is the length of a window in whole milliseconds, 1 ms or more. 0 means one second.
	Window time.Duration
}

// PerSecond allows n units a second.
func PerSecond(n int64) Limit { return Limit{Max: n, Window: time.Second} }

// PerMinute allows n units a minute.
func PerMinute(n int64) Limit { return Limit{Max: n, Window: time.Minute} }

// PerHour allows n units an hour.
func PerHour(n int64) Limit { return Limit{Max: n, Window: time.Hour} }

// Every allows one unit each d.
func Every(d time.Duration) Limit { return Limit{Max: 1, Window: d} }

// Validate refuses a limit that no script obeys; the error wraps [ErrBadLimit] and names the field, its value and what would
// be right.
func (l Limit) Validate() error {
	switch {
	case l.Algorithm != "" && l.Algorithm != FixedWindow:
		return fmt.Errorf("emq: %w: algorithm %q is unknown; want %s", ErrBadLimit, l.Algorithm, FixedWindow)
	case l.Max < 0 || l.Max > Most:
		return fmt.Errorf("emq: %w: max is %d; want 0 (not limited) to %d", ErrBadLimit, l.Max, int64(Most))
	case l.Window < 0 || l.Window > 0 && l.Window < time.Millisecond:
		return fmt.Errorf("emq: %w: window is %v; want 1ms or more", ErrBadLimit, l.Window)
	case l.Window%time.Millisecond != 0:
		return fmt.Errorf("emq: %w: window is %v; want whole milliseconds", ErrBadLimit, l.Window)
	}
	return nil
}

// String is the limit as [Parse] reads it: "100/1m0s", or "unlimited".
func (l Limit) String() string {
	if l.Max == 0 {
		return "unlimited"
	}
	return strconv.FormatInt(l.Max, 10) + "/" + l.window().String()
}

func (l Limit) window() time.Duration {
	if l.Window == 0 {
		return time.Second
	}
	return l.Window
}

// Parse reads a limit written as max/window: "100/1m", "5/1s", "2000/24h" or "2000/1d", "3/s" (one second), or "unlimited".
// The error wraps [ErrBadLimit].
func Parse(s string) (Limit, error) {
	if s == "unlimited" {
		return Limit{}, nil
	}
	max, window, found := strings.Cut(s, "/")
	n, err := strconv.ParseInt(max, 10, 64)
	if !found || err != nil {
		return Limit{}, fmt.Errorf("emq: %w: %q; want max/window as in 100/1m", ErrBadLimit, s)
	}
	length := window
	if length != "" && length[0] >= 'a' && length[0] <= 'z' {
		length = "1" + length
	}
	if days, ok := strings.CutSuffix(length, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			length = strconv.FormatUint(24*n, 10) + "h"
		}
	}
	d, err := time.ParseDuration(length)
	if err != nil || d <= 0 {
		return Limit{}, fmt.Errorf("emq: %w: window %q of %q is no length of time; want one as in 500ms, 1s, 1m, 24h", ErrBadLimit, window, s)
	}
	l := Limit{Max: n, Window: d}
	if err := l.Validate(); err != nil {
		return Limit{}, err
	}
	return l, nil
}

// FromMeta is the limit that stands in a queue's meta hash, as the texts of its max and duration fields; the zero Limit when
// max is no number.
func FromMeta(max, duration string) Limit {
	n, err := strconv.ParseInt(max, 10, 64)
	if err != nil || n <= 0 {
		return Limit{}
	}
	ms, err := strconv.ParseInt(duration, 10, 64)
	if err != nil {
		ms = time.Second.Milliseconds()
	}
	return Limit{Algorithm: FixedWindow, Max: n, Window: milliseconds(ms)}
}

// milliseconds is n ms, or the longest Duration.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}
