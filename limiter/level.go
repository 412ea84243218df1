package limiter

import "fmt"

// level is what token_bucket and leaky_bucket share: a level that runs out evenly. At a rate of max/window = p/q in lowest terms,
// q parts make a unit and p parts run out in a ms, so all is whole numbers.
type level struct {
	m        *Model
	now      int64
	p, q     int64
	capacity int64 // in parts
	used     int64 // in parts
	at       int64 // ms of used; ahead of now while time stands still
	change   bool
	debt     bool // it may lie above the capacity by a charge
}

func readLevel(m *Model, now int64, l Limit, cut bool) (level, error) {
	window := l.window().Milliseconds()
	divisor := gcd(l.Max, window)
	b := level{m: m, now: now, p: l.Max / divisor, q: window / divisor, at: now}
	b.capacity = l.Capacity() * b.q
	if m.end == 0 {
		return b, nil
	}
	n, err := m.numbers(3)
	if err != nil {
		return level{}, err
	}
	q, used, at := n[0], n[1], n[2]
	if q == 0 {
		return level{}, m.corrupt()
	}
	used = scaleUp(used, b.q, q)
	b.debt = m.debt > 0 && m.debt == b.capacity/b.q
	if cut && !b.debt {
		used = min(used, b.capacity)
	}
	if at-now > window { // the clock stepped far back
		at, b.change = now, true
	}
	if passed := now - at; passed >= b.time(used) {
		used = 0
	} else if passed > 0 {
		used -= passed * b.p
	}
	if b.used = used; used > 0 {
		b.at = max(now, at)
	}
	if m.left(now) < b.resetIn() {
		b.change = true
	}
	return b, nil
}

// time is how many ms parts take to run out.
func (b *level) time(parts int64) int64 {
	ms := parts / b.p
	if parts%b.p > 0 {
		ms++
	}
	return ms
}

// until is how many ms from now parts have run out; at most Most.
func (b *level) until(parts int64) int64 { return min(Most, b.at-b.now+b.time(parts)) }

func (b *level) free() int64        { return max(0, (b.capacity-b.used)/b.q) }
func (b *level) wait(n int64) int64 { return b.until(b.used + n*b.q - b.capacity) }
func (b *level) spend(n int64)      { b.used, b.change = b.used+n*b.q, true }
func (b *level) deny(int64)         {}

func (b *level) refund(n int64) {
	if n > b.used/b.q {
		b.used = 0
	} else {
		b.used -= n * b.q
	}
	b.change = true
}

func (b *level) charge(n int64) {
	if n > 0 {
		b.spend(min(n, (Most-b.used)/b.q))
		b.debt = true
	}
}

func (b *level) mark() string { return join(b.p, b.q, b.at) }

// giveBack gives back what has not run out since, if the rate is the same.
func (b *level) giveBack(n int64, mark string) {
	var p, q, at int64
	fmt.Sscan(mark, &p, &q, &at)
	parts, passed := n*b.q, max(0, b.now-at)
	if p != b.p || q != b.q || passed >= b.time(parts) {
		return
	}
	b.used, b.change = max(0, b.used-(parts-passed*b.p)), true
}

func (b *level) resetIn() int64 {
	if b.used == 0 {
		return 0
	}
	return b.until(b.used)
}

func (b *level) write() {
	switch reset := b.resetIn(); {
	case !b.change:
	case reset == 0:
		b.m.Reset()
	default:
		b.m.Put(join(b.q, b.used, b.at), b.now+reset)
		if b.debt && b.used > b.capacity {
			b.m.debt = b.capacity / b.q
		}
	}
}
