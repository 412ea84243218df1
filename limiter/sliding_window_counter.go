package limiter

// slidingWindowCounter is the counts of the window that runs and of the one before it, whose weight is what of it lies within
// the last window. Windows are multiples of the window.
type slidingWindowCounter struct {
	m                 *Model
	now, max, window  int64
	index, elapsed    int64 // of the window that runs, and of its ms
	ahead             int64 // ms for which time stands still
	current, previous int64
	change            bool
}

func readSlidingWindowCounter(m *Model, now int64, l Limit) (judged, error) {
	window := l.window().Milliseconds()
	b := &slidingWindowCounter{m: m, now: now, max: l.Max, window: window, index: now / window, elapsed: now % window}
	if m.end == 0 {
		return b, nil
	}
	n, err := m.numbers(4)
	if err != nil {
		return nil, err
	}
	stored, index, current, previous := n[0], n[1], n[2], n[3]
	if stored == 0 || index > Most/stored {
		return nil, m.corrupt()
	}
	age := now - stored*index
	switch {
	case stored != window || age < -window: // what still counts is carried over whole
		switch {
		case age < 0:
			current += previous
		case age < stored:
			current += scaleUp(previous, stored-age, stored)
		case age-stored >= stored:
			current = 0
		}
		b.current, b.change = min(Most, current), true
	case age < 0: // the clock stepped back: time stands still where the stored window begins
		b.index, b.elapsed, b.ahead, b.current, b.previous = index, 0, -age, current, previous
	case age < window:
		b.current, b.previous = current, previous
	case age-window < window:
		b.previous = current
	}
	if m.left(now) < b.resetIn() {
		b.change = true
	}
	return b, nil
}

func (b *slidingWindowCounter) free() int64 {
	return max(0, b.max-b.current-scaleUp(b.previous, b.window-b.elapsed, b.window))
}

func (b *slidingWindowCounter) delay() int64 { return 0 }

// wait is until the previous window's weight leaves room for n: this window's, if the current count does, else the next one's.
func (b *slidingWindowCounter) wait(n int64) int64 {
	edge := b.ahead + b.window - b.elapsed
	if room := b.max - n - b.current; room >= 0 {
		return edge - room*b.window/b.previous
	}
	return edge + b.window - (b.max-n)*b.window/b.current
}

func (b *slidingWindowCounter) spend(n int64) { b.current, b.change = b.current+n, true }

func (b *slidingWindowCounter) refund(n int64) {
	back := min(n, b.current)
	b.current, b.previous, b.change = b.current-back, b.previous-min(n-back, b.previous), true
}

func (b *slidingWindowCounter) deny(int64) {}

func (b *slidingWindowCounter) charge(n int64) {
	if n = min(n, Most-b.current); n > 0 {
		b.spend(n)
	}
}

func (b *slidingWindowCounter) mark() string { return join(b.window, b.index) }

func (b *slidingWindowCounter) giveBack(n int64, mark string) {
	switch mark {
	case join(b.window, b.index):
		b.current, b.change = b.current-min(n, b.current), true
	case join(b.window, b.index-1):
		b.previous, b.change = b.previous-min(n, b.previous), true
	}
}

func (b *slidingWindowCounter) resetIn() int64 {
	switch {
	case b.current > 0:
		return b.ahead + b.window - b.elapsed + b.window
	case b.previous > 0:
		return b.ahead + b.window - b.elapsed
	}
	return 0
}

func (b *slidingWindowCounter) write() {
	switch reset := b.resetIn(); {
	case !b.change:
	case reset == 0:
		b.m.Reset()
	default:
		b.m.Put(join(b.window, b.index, b.current, b.previous), b.now+reset)
	}
}
