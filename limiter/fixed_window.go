package limiter

import "strconv"

// fixedWindow is a counter whose TTL is its window.
type fixedWindow struct {
	m             *Model
	now, max      int64
	length        int64 // of a window that opens now
	count, change int64 // units spent, and how many of them now
	left          int64 // ms until the window ends
	open, stopped bool
	repair        bool // the TTL
}

func readFixedWindow(m *Model, now int64, l Limit) (judged, error) {
	window := l.window().Milliseconds()
	b := &fixedWindow{m: m, now: now, max: l.Max, length: window}
	if l.Aligned {
		b.length -= now % window
	}
	b.left = b.length
	if m.end == 0 {
		return b, nil
	}
	count, err := strconv.ParseInt(m.value, 10, 64)
	if err != nil || count < -Most || count > Most || strconv.FormatInt(count, 10) != m.value {
		return nil, m.corrupt()
	}
	left := m.left(now)
	if left == 0 { // the key can still be read, but its window is over
		return b, nil
	}
	b.open, b.left, b.count = true, left, max(0, count)
	b.stopped = count == Most && left > window // another runtime's manual stop keeps its TTL
	if left < 0 || left > window && !b.stopped {
		b.left, b.repair = b.length, true
	}
	return b, nil
}

func (b *fixedWindow) free() int64      { return max(0, b.max-b.count) }
func (b *fixedWindow) wait(int64) int64 { return b.left }
func (b *fixedWindow) delay() int64     { return 0 }

func (b *fixedWindow) spend(n int64) { b.count, b.change = b.count+n, b.change+n }

func (b *fixedWindow) refund(n int64) {
	if n = min(n, b.count); n > 0 && !b.stopped {
		b.spend(-n)
	}
}

func (b *fixedWindow) deny(n int64) {
	if !b.stopped {
		b.spend(min(n, Most-b.count))
	}
}

func (b *fixedWindow) charge(n int64) { b.spend(min(n, Most-b.count)) }

func (b *fixedWindow) mark() string {
	if b.open {
		return strconv.FormatInt(b.m.window, 10)
	}
	return strconv.FormatInt(b.m.opened+1, 10)
}

// giveBack wants the same window, and one that it knows.
func (b *fixedWindow) giveBack(n int64, mark string) {
	if b.open && b.m.window > 0 && mark == strconv.FormatInt(b.m.window, 10) {
		b.refund(n)
	}
}

func (b *fixedWindow) resetIn() int64 {
	if b.count == 0 {
		return 0
	}
	return b.left
}

func (b *fixedWindow) write() {
	if b.change != 0 && !b.open {
		b.m.opened++
		b.m.window = b.m.opened
	}
	if b.change != 0 {
		b.m.value = strconv.FormatInt(b.count, 10)
	}
	if b.change != 0 || b.repair {
		b.m.end = b.now + b.left
	}
}
