package limiter

import (
	"slices"
	"strconv"
)

// slidingLog is one entry for each unit: the ms in which it was taken.
type slidingLog struct {
	m                *Model
	now, max, window int64
	times            []int64 // of the units that count, in order
	stamp            int64   // the time of units taken now
	change, rebased  bool
}

func readSlidingLog(m *Model, now int64, l Limit) judged {
	b := &slidingLog{m: m, now: now, max: l.Max, window: l.window().Milliseconds(), stamp: now}
	if m.end == 0 {
		return b
	}
	newest := m.log[len(m.log)-1]
	b.stamp = max(now, newest)
	for i, time := range m.log {
		if time > b.stamp-b.window {
			b.times = append(b.times, m.log[i:]...)
			break
		}
	}
	if newest-now > b.window { // the clock stepped far back: as if all had been taken now
		b.stamp, b.change, b.rebased = now, true, true
		for i := range b.times {
			b.times[i] = now
		}
	}
	if m.left(now) < b.resetIn() {
		b.change = true
	}
	return b
}

func (b *slidingLog) free() int64  { return max(0, b.max-int64(len(b.times))) }
func (b *slidingLog) delay() int64 { return 0 }

func (b *slidingLog) wait(n int64) int64 {
	return b.times[int64(len(b.times))+n-b.max-1] + b.window - b.now
}

func (b *slidingLog) spend(n int64) {
	for range n {
		b.times = append(b.times, b.stamp)
	}
	b.change = true
}

func (b *slidingLog) refund(n int64) {
	if back := min(n, int64(len(b.times))); back > 0 {
		b.times, b.change = b.times[:int64(len(b.times))-back], true
	}
}

// deny keeps no more than the newest max, which decide.
func (b *slidingLog) deny(n int64) {
	b.spend(n)
	b.times = b.times[max(0, int64(len(b.times))-b.max):]
}

// charge keeps no more than max units: they are all of one time, so max of them decide.
func (b *slidingLog) charge(n int64) {
	if n > 0 {
		b.spend(min(n, b.max))
	}
}

func (b *slidingLog) mark() string { return strconv.FormatInt(b.stamp, 10) }

// giveBack takes out units of that very time: which of them does not matter.
func (b *slidingLog) giveBack(n int64, mark string) {
	if b.rebased {
		return
	}
	stamp, _ := strconv.ParseInt(mark, 10, 64)
	first, _ := slices.BinarySearch(b.times, stamp)
	last, _ := slices.BinarySearch(b.times, stamp+1)
	if back := int(min(n, int64(last-first))); back > 0 {
		b.times = slices.Delete(slices.Clone(b.times), first, first+back)
		b.m.log = slices.Clone(b.times)
		if len(b.times) == 0 && !b.change {
			b.m.Reset()
		}
	}
}

func (b *slidingLog) resetIn() int64 {
	if len(b.times) == 0 {
		return 0
	}
	return b.times[len(b.times)-1] + b.window - b.now
}

func (b *slidingLog) write() {
	switch {
	case !b.change:
	case len(b.times) == 0:
		b.m.Reset()
	default:
		b.m.PutLog(b.times, b.now+b.resetIn())
	}
}
