package limiter

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/echomq/emq/lua"
)

// NoEnd is the end of a key without TTL: it counts, and the next call that may write gives it an end.
const NoEnd = -1

// Model is one bucket without a server, for tests and simulation: it answers to the millisecond as the scripts do, by the
// algorithm of the limit that it is asked with, and holds what its key would. Time is an argument, in ms of the server's clock,
// from 1 up; it may step back. The zero Model is a bucket that nothing was taken of. It is not safe for concurrent use.
type Model struct {
	value string  // what the key holds, if that is a string
	log   []int64 // the scores of a sorted set, in order; nil if the key holds none
	end   int64   // ms at which the key's TTL runs out, or NoEnd; 0 when there is no key
	debt  int64   // the capacity of a bucket above which its level lies by a charge; 0 for none

	opened, window int64 // fixed windows opened by takes so far, and which of them runs; 0 for one that others opened
}

// Put makes the bucket one whose key was set to value by somebody else. end is when the key's TTL runs out, or [NoEnd]. From
// a value that is no state of its limit's algorithm every call but [Model.Reset] fails with a [*lua.CorruptError], until end.
func (m *Model) Put(value string, end int64) { *m = Model{value: value, end: end, opened: m.opened} }

// PutLog makes the bucket one whose key holds the log of a [SlidingLog], with a unit taken at each of the times.
func (m *Model) PutLog(times []int64, end int64) {
	*m = Model{log: slices.Sorted(slices.Values(times)), end: end, opened: m.opened}
}

// State is what the key holds at now, a string or the times of a log, and when its TTL runs out; end is 0 when there is no key.
func (m *Model) State(now int64) (value string, log []int64, end int64) {
	m.expire(now)
	return m.value, slices.Clone(m.log), m.end
}

// Take takes n units, or none. It fails with [ErrBadLimit], [ErrBadCost] or a [*lua.CorruptError], and changes nothing then.
func (m *Model) Take(now int64, limit Limit, n int64) (Decision, error) {
	return m.decide(now, limit, opTake, n)
}

// TakeUpTo takes as many units as remain, at most n. It fails as Take does.
func (m *Model) TakeUpTo(now int64, limit Limit, n int64) (Decision, error) {
	return m.decide(now, limit, opTakeUpTo, n)
}

// Peek answers as Take would and takes nothing. It fails as Take does.
func (m *Model) Peek(now int64, limit Limit, n int64) (Decision, error) {
	return m.decide(now, limit, opPeek, n)
}

// Refund gives back up to n units. It fails as Take does.
func (m *Model) Refund(now int64, limit Limit, n int64) (Decision, error) {
	return m.decide(now, limit, opRefund, n)
}

// Reset makes the bucket one that nothing was taken of.
func (m *Model) Reset() { *m = Model{opened: m.opened} }

// Mark says where units that are taken now are taken from. It fails as Take does.
func (m *Model) Mark(now int64, limit Limit) (string, error) {
	if limit.Max == 0 {
		return "", nil
	}
	b, err := m.judge(now, limit)
	if err != nil {
		return "", err
	}
	return b.mark(), nil
}

// GiveBack gives back n of the units that were taken with a mark, where they were taken and nowhere else: in the same fixed window;
// from a log exactly those entries; from a counter's window while it is the current or the previous one; of a bucket's level what has
// not run out since. It fails as Take does.
func (m *Model) GiveBack(now int64, limit Limit, n int64, mark string) error {
	return m.change(now, limit, func(b judged) { b.giveBack(n, mark) })
}

// Charge takes n units whether they remain or not. It fails as Take does.
func (m *Model) Charge(now int64, limit Limit, n int64) error {
	return m.change(now, limit, func(b judged) { b.charge(n) })
}

// Repair writes what any call that may write would: an end for a key without one, and a state that a clock behind it left. It fails as
// Take does.
func (m *Model) Repair(now int64, limit Limit) error {
	return m.change(now, limit, func(judged) {})
}

func (m *Model) change(now int64, limit Limit, do func(judged)) error {
	if limit.Max == 0 {
		return nil
	}
	b, err := m.judge(now, limit)
	if err == nil {
		do(b)
		b.write()
	}
	return err
}

// expire drops the key as the server does, which can still read it in the ms of its end.
func (m *Model) expire(now int64) {
	if m.end > 0 && now > m.end {
		m.Reset()
	}
}

// left is the key's TTL; below 0 when it has none.
func (m *Model) left(now int64) int64 {
	if m.end == NoEnd {
		return -1
	}
	return m.end - now
}

// numbers are the n numbers up to Most, at most 4, that the key holds, in plain digits with a blank between them.
func (m *Model) numbers(n int) (found [4]int64, err error) {
	i := 0
	for word := range strings.SplitSeq(m.value, " ") {
		number, err := strconv.ParseInt(word, 10, 64)
		if plain := err == nil && word[0] >= '0' && word[0] <= '9' && (word[0] > '0' || word == "0"); !plain || number > Most || i == n {
			return found, m.corrupt()
		}
		found[i] = number
		i++
	}
	if i < n {
		return found, m.corrupt()
	}
	return found, nil
}

// join writes what numbers reads.
func join(numbers ...int64) string {
	text := make([]byte, 0, 64)
	for i, n := range numbers {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(text)
}

func (m *Model) corrupt() error { return &lua.CorruptError{Value: m.value} }

// judged is one bucket at one moment: what its algorithm reads out of the key, changes in memory and writes back once. It is the
// twin of a bucket in the scripts.
type judged interface {
	free() int64        // units that are granted now
	wait(n int64) int64 // ms until n units are, for n above free and up to the capacity
	delay() int64       // ms until a unit granted now leaves a leaky bucket
	spend(n int64)      // n up to free
	refund(n int64)     // up to n
	deny(n int64)       // counts a denied call
	mark() string       // where units are taken from
	giveBack(n int64, mark string)
	charge(n int64) // whether they are free or not
	resetIn() int64 // ms until all is free
	write()         // what was spent, refunded and denied, and repairs
}

// judge reads the bucket as the limit's algorithm does.
func (m *Model) judge(now int64, l Limit) (judged, error) {
	m.expire(now)
	if isLog := l.Algorithm == SlidingLog; m.end != 0 && isLog != (m.log != nil) {
		return nil, m.corrupt()
	}
	switch l.algorithm() {
	case SlidingLog:
		return readSlidingLog(m, now, l), nil
	case SlidingWindowCounter:
		return readSlidingWindowCounter(m, now, l)
	case TokenBucket:
		return readTokenBucket(m, now, l)
	case LeakyBucket:
		return readLeakyBucket(m, now, l)
	}
	return readFixedWindow(m, now, l)
}

// retryAfter is how many ms until n units are granted: 0 now, -1 never.
func retryAfter(b judged, l Limit, n int64) int64 {
	switch {
	case n > l.Capacity():
		return -1
	case n <= b.free():
		return 0
	}
	return b.wait(n)
}

// askNow is retryAfter for a call that is made now: a denied one is counted if the limit says so.
func askNow(b judged, l Limit, n int64) int64 {
	retry := retryAfter(b, l, n)
	if retry > 0 && l.CountDenied {
		b.deny(n)
		retry = retryAfter(b, l, n)
	}
	return retry
}

func (m *Model) decide(now int64, limit Limit, op string, n int64) (Decision, error) {
	if err := check(limit, n); err != nil {
		return Decision{}, err
	}
	if limit.Max == 0 {
		return unlimited(op, n), nil
	}
	b, err := m.judge(now, limit)
	if err != nil {
		return Decision{}, err
	}
	var retry, granted, delay int64
	switch {
	case n == 0:
	case op == opRefund:
		b.refund(n)
	case op == opPeek:
		if retry = retryAfter(b, limit, n); retry == 0 {
			delay = b.delay()
		}
	default:
		want := n
		if op == opTakeUpTo {
			want = max(1, min(n, b.free()))
		}
		if retry = askNow(b, limit, want); retry == 0 {
			granted, delay = want, b.delay()
			b.spend(want)
		}
	}
	d := Decision{
		Allowed: retry == 0, Granted: granted, Limit: limit.Max, Remaining: b.free(), RetryAfter: Never,
		ResetAfter: milliseconds(b.resetIn()), Delay: milliseconds(delay), At: time.UnixMilli(now), Source: Store,
	}
	if retry >= 0 {
		d.RetryAfter = milliseconds(retry)
		if n > 0 && op != opPeek {
			b.write()
		}
	}
	return d, nil
}
