package metrics

import (
	"math"
	"time"

	"github.com/echomq/emq/limiter"
)

// ETA is when the last of some jobs is handed out, if nothing changes.
type ETA struct {
	ByLimit   time.Duration // as far as the limits go
	ByWorkers time.Duration // as far as the workers go; 0 when that is not known
	// Limit is the name of the limit that binds, if ByLimit is the longer; empty for the queue's own, or for none.
	Limit string
}

// In is the longer of the two.
func (e ETA) In() time.Duration { return max(e.ByLimit, e.ByWorkers) }

// Backlog is when the last of n waiting jobs is handed out under the limits that all jobs fall under and that count jobs: those by
// key or by cost depend on what the jobs are. mean is how long a job runs and slots how many run at once; 0 for not known.
func (all All) Backlog(n int64, mean time.Duration, slots int) ETA {
	var e ETA
	if mean > 0 && slots > 0 && n > 0 {
		e.ByWorkers = scale((n-1)/int64(slots), 1, mean)
	}
	for _, l := range all.Limits {
		if !l.forAll() || len(l.Buckets) == 0 {
			continue
		}
		b := l.Buckets[0]
		var in time.Duration
		if l.Window > 0 {
			in = granted(n, l.Limit, b)
		} else if mean > 0 { // of jobs in flight
			in = scale((n-1)/b.Max, 1, mean)
		}
		if in > e.ByLimit {
			e.ByLimit, e.Limit = in, l.Name
		}
	}
	return e
}

// forAll says whether the limit counts every job of the queue.
func (l Limit) forAll() bool { return l.By == "" && l.Unit == "" && !l.Shadow && l.Max > 0 }

// granted is when a limit grants the n-th unit from now.
func granted(n int64, l limiter.Limit, b Bucket) time.Duration {
	n -= b.Remaining
	if n <= 0 {
		return 0
	}
	if l.Algorithm == limiter.FixedWindow {
		windows := (n - 1) / b.Max // whole ones after the next
		return b.ResetAfter + scale(windows, 1, b.Window)
	}
	// The others grant one unit each window/max once what they hold is spent.
	return b.RetryAfter + scale(n-1, b.Max, b.Window)
}

// scale is n/of windows, at most about 290 years.
func scale(n, of int64, window time.Duration) time.Duration {
	f := float64(n) / float64(of) * float64(window)
	if f >= math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	return time.Duration(f)
}
