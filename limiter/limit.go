package limiter

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Bounds of a [Limit].
const (
	// Most is the largest max, burst and cost: integers are exact in a script up to 2^53-1.
	Most = 1<<53 - 1
	// MostLogged is the largest max of a [SlidingLog], which keeps one entry for each unit.
	MostLogged = 1_000_000
)

// Algorithm names the rule by which a bucket fills and empties. The package's introduction says which one to take when.
type Algorithm string

// The algorithms. At most so many units as said fall into any span of one window.
const (
	// FixedWindow grants max in a window that opens with the first grant and ends one window later. Two windows may meet: up to
	// 2·max-1 (2·max when Aligned).
	FixedWindow Algorithm = "fixed_window"
	// SlidingLog keeps the time of each unit, which is free again exactly one window later: never more than max. It takes 10 to
	// 100 bytes of memory for each unit.
	SlidingLog Algorithm = "sliding_log"
	// SlidingWindowCounter estimates a sliding window from the counts of two fixed ones, in constant memory: max if calls come
	// evenly, up to 2·max-1 if they are placed for it.
	SlidingWindowCounter Algorithm = "sliding_window_counter"
	// TokenBucket gains max tokens each window, evenly, holds burst of them at most and gives one for each unit: up to
	// burst+max-1.
	TokenBucket Algorithm = "token_bucket"
	// LeakyBucket holds burst units that leave evenly, max each window; [Decision.Delay] says when a unit leaves. Idle time earns
	// no credit: never more than max leave. With a burst of 1 it grants one unit each window/max, and at most one each ms.
	LeakyBucket Algorithm = "leaky_bucket"
)

var algorithms = []Algorithm{FixedWindow, SlidingLog, SlidingWindowCounter, TokenBucket, LeakyBucket}

// Limit is a rule: at most Max units in each Window, as the Algorithm counts them. The zero value limits nothing.
type Limit struct {
	// Algorithm is [FixedWindow] when empty.
	Algorithm Algorithm
	// Max is the number of units a window grants, up to [Most]. 0 means not limited, as in EchoMQ (golang.org/x/time/rate
	// means the opposite by 0); to let nothing through, pause the queue.
	Max int64
	// Window is the length of a window in whole milliseconds, 1 ms or more. 0 means one second.
	Window time.Duration
	// Burst is the number of units that a [TokenBucket] gives at once (0 means Max) or that a [LeakyBucket] holds (0 means 1).
	// The others have none.
	Burst int64
	// Aligned lets the windows of a [FixedWindow] begin at multiples of Window since 1970, not with the first grant.
	Aligned bool
	// CountDenied counts a denied call of a [FixedWindow] or [SlidingLog] as if it had been granted, so that a caller who does
	// not wait stays denied. Calls that could never be granted are not counted.
	CountDenied bool
}

// PerSecond allows n units a second.
func PerSecond(n int64) Limit { return Limit{Max: n, Window: time.Second} }

// PerMinute allows n units a minute.
func PerMinute(n int64) Limit { return Limit{Max: n, Window: time.Minute} }

// PerHour allows n units an hour.
func PerHour(n int64) Limit { return Limit{Max: n, Window: time.Hour} }

// Every allows one unit each d.
func Every(d time.Duration) Limit { return Limit{Max: 1, Window: d} }

// Capacity is the largest number of units that can ever be granted at once: Burst of a bucket, else Max; [Most] when Max is
// 0. A call for more is never granted.
func (l Limit) Capacity() int64 {
	switch {
	case l.Max == 0:
		return Most
	case l.Algorithm == TokenBucket && l.Burst > 0, l.Algorithm == LeakyBucket && l.Burst > 0:
		return l.Burst
	case l.Algorithm == LeakyBucket:
		return 1
	}
	return l.Max
}

// Validate refuses a limit that no script obeys; the error wraps [ErrBadLimit] and names the field, its value and what would
// be right. Beside the bounds of the fields, numbers must stay exact: Max·Window of a [SlidingWindowCounter] up to [Most] ms,
// and Burst·Window/gcd(Max, Window) of the buckets; of a [LeakyBucket] also with Max in the place of Burst.
func (l Limit) Validate() error {
	bad := func(format string, values ...any) error {
		return fmt.Errorf("emq: %w: "+format, append([]any{ErrBadLimit}, values...)...)
	}
	algorithm, window, ms := l.algorithm(), l.window(), l.window().Milliseconds()
	bucket := algorithm == TokenBucket || algorithm == LeakyBucket
	switch {
	case !slices.Contains(algorithms, algorithm):
		return bad("algorithm %q is unknown; want one of %s", l.Algorithm, strings.Trim(fmt.Sprint(algorithms), "[]"))
	case l.Max < 0 || l.Max > Most:
		return bad("max is %d; want 0 (not limited) to %d", l.Max, int64(Most))
	case l.Window < 0 || l.Window > 0 && l.Window < time.Millisecond:
		return bad("window is %v; want 1ms or more", l.Window)
	case l.Window%time.Millisecond != 0:
		return bad("window is %v; want whole milliseconds", l.Window)
	case l.Burst < 0 || l.Burst > Most:
		return bad("burst is %d; want 0 (the default) to %d", l.Burst, int64(Most))
	case l.Burst > 0 && !bucket:
		return bad("burst is %d; want 0: %s has none, %s and %s have", l.Burst, algorithm, TokenBucket, LeakyBucket)
	case l.Aligned && algorithm != FixedWindow:
		return bad("aligned is true; want false: only %s can be aligned", FixedWindow)
	case l.CountDenied && algorithm != FixedWindow && algorithm != SlidingLog:
		return bad("count_denied is true; want false: only %s and %s can count what they deny", FixedWindow, SlidingLog)
	case l.Max == 0:
		return nil
	case algorithm == SlidingLog && l.Max > MostLogged:
		return bad("max is %d; want %d or less: %s keeps an entry for each unit", l.Max, MostLogged, algorithm)
	case algorithm == SlidingWindowCounter && l.Max > Most/ms:
		return bad("max is %d; want %d or less with a window of %v: %s is not exact above", l.Max, Most/ms, window, algorithm)
	case bucket:
		units, most := l.Capacity(), Most/(ms/gcd(l.Max, ms))
		if algorithm == LeakyBucket {
			units = max(units, l.Max)
		}
		if units > most {
			name := "burst"
			if units == l.Max {
				name = "max"
			}
			return bad("%s is %d; want %d or less at a rate of %d in %v: %s is not exact above", name, units, most, l.Max, window, algorithm)
		}
	}
	return nil
}

func (l Limit) algorithm() Algorithm {
	if l.Algorithm == "" {
		return FixedWindow
	}
	return l.Algorithm
}

func (l Limit) window() time.Duration {
	if l.Window == 0 {
		return time.Second
	}
	return l.Window
}

func gcd(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// scaleUp is n·a/b, rounded up; at most Most.
func scaleUp(n, a, b int64) int64 {
	high, low := bits.Mul64(uint64(n), uint64(a))
	if high >= uint64(b) {
		return Most
	}
	q, rest := bits.Div64(high, low, uint64(b))
	if rest > 0 {
		q++
	}
	return int64(min(q, Most))
}

// milliseconds is n ms, or the longest Duration.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}
