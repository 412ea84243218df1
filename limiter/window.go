package limiter

import (
	"strconv"
	"time"

	"github.com/echomq/emq/lua"
)

// NoEnd is the End of a window whose key has no TTL: it counts, and the next call that may write gives it an end.
const NoEnd = -1

// Window models one bucket of [FixedWindow] without a server, for tests and simulation: it answers to the millisecond as the
// scripts do. Time is an argument, in ms of the server's clock, from 1 up; it may step back. The zero Window is one that never
// opened. It is not safe for concurrent use.
type Window struct {
	Count int64 // units used; below 0 counts as 0
	End   int64 // ms at which the window ends; 0 when none is open; or [NoEnd]

	corrupt *lua.CorruptError // the key holds what is no counter
}

// Put makes the window one whose key was set to value by somebody else. end is when the key's TTL runs out, or [NoEnd]. From
// a value that is no counter every call but [Window.Reset] fails with a [*lua.CorruptError], until end.
func (w *Window) Put(value string, end int64) {
	*w = Window{End: end}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < -Most || n > Most || strconv.FormatInt(n, 10) != value {
		w.corrupt = &lua.CorruptError{Value: value}
		return
	}
	w.Count = n
}

// Take takes n units, or none. It fails with [ErrBadLimit], [ErrBadCost] or a [*lua.CorruptError], and changes nothing then.
func (w *Window) Take(now int64, limit Limit, n int64) (Decision, error) {
	return w.decide(now, limit, opTake, n)
}

// TakeUpTo takes as many units as remain, at most n. It fails as Take does.
func (w *Window) TakeUpTo(now int64, limit Limit, n int64) (Decision, error) {
	return w.decide(now, limit, opTakeUpTo, n)
}

// Peek answers as Take would and takes nothing. It fails as Take does.
func (w *Window) Peek(now int64, limit Limit, n int64) (Decision, error) {
	return w.decide(now, limit, opPeek, n)
}

// Refund gives back up to n units to the window that runs. It fails as Take does.
func (w *Window) Refund(now int64, limit Limit, n int64) (Decision, error) {
	return w.decide(now, limit, opRefund, n)
}

// Reset makes the window one that never opened.
func (w *Window) Reset() { *w = Window{} }

func (w *Window) decide(now int64, limit Limit, op string, n int64) (Decision, error) {
	if err := check(limit, n); err != nil {
		return Decision{}, err
	}
	if w.End > 0 && now > w.End { // the server drops the key
		w.Reset()
	}
	if limit.Max == 0 {
		return unlimited(op, n), nil
	}
	if w.corrupt != nil {
		return Decision{}, w.corrupt
	}

	length := limit.window().Milliseconds()
	var used, left int64
	end, stopped := w.End, false
	open := w.End != 0 && w.End != now // at its end the key can still be read, but its window is over
	if open {
		used, left = max(0, w.Count), w.End-now
		stopped = w.Count == Most && left > length // another runtime's manual stop
		if w.End == NoEnd || left > length && !stopped {
			left, end = length, now+length
		}
	}
	free := max(0, limit.Max-used)

	d := Decision{Allowed: true, Limit: limit.Max, At: time.UnixMilli(now), Source: Store}
	switch {
	case op == opRefund:
		if back := min(n, used); back > 0 && !stopped {
			used -= back
			w.Count, w.End = used, end
		}
	case n == 0:
	case op != opTakeUpTo && n > limit.Max:
		d.Allowed, d.RetryAfter = false, Never
	case free == 0 || op != opTakeUpTo && n > free:
		d.Allowed, d.RetryAfter = false, milliseconds(left)
		if op != opPeek {
			w.End = end
		}
	case op != opPeek:
		if !open {
			left, end = length, now+length
		}
		d.Granted = min(n, free)
		used += d.Granted
		w.Count, w.End = used, end
	}
	d.Remaining = max(0, limit.Max-used)
	if used > 0 {
		d.ResetAfter = milliseconds(left)
	}
	return d, nil
}
