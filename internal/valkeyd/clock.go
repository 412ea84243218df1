package valkeyd

import (
	"sync/atomic"
	"time"
)

// Clock is the wall clock of a server started by [StartWithClock]. It begins
// as the real clock; once set it stands still until it is set or advanced
// again. TIME, TTLs, expiry and stream ids follow it from the next command on.
// The server's monotonic timers do not, so its background work goes on while
// the clock stands; the time-outs of blocking commands need the clock to move.
// Its methods may be called from any goroutine, also after the server stopped.
type Clock struct {
	ns *atomic.Int64 // shared with the server; 0 = the real clock
}

// Set puts the clock at ms milliseconds since 1970; 0 returns it to the real
// clock.
func (c *Clock) Set(ms int64) { c.ns.Store(ms * int64(time.Millisecond)) }

// Advance moves the clock by d, back when d is negative. A clock that was
// never set stops at the real time first.
func (c *Clock) Advance(d time.Duration) {
	c.ns.CompareAndSwap(0, time.Now().UnixNano())
	c.ns.Add(int64(d))
}

// Ms returns the time the server sees, in milliseconds since 1970.
func (c *Clock) Ms() int64 {
	ns := c.ns.Load()
	if ns == 0 {
		ns = time.Now().UnixNano()
	}
	return ns / int64(time.Millisecond)
}
