package metrics

import (
	"math"
	"time"
)

// Scale is how many workers a queue can use: enough to spend its budget as it comes, and no more than there are jobs. A fleet that is
// scaled by the number of waiting jobs grows while a limit refuses, by workers that can do nothing.
type Scale struct {
	// Jobs is how many could run now if there were no limits: those that wait, those that limits sent back, those that run.
	Jobs int64
	// Slots is how many of them can run at once with the budget there is.
	Slots int64
	// Workers is how many processes that takes.
	Workers int64
	// Bound says what keeps it there: "jobs", "limit" or "concurrency"; "paused" and "closed" when nothing is handed out.
	Bound string
	// Limit is the limit that does, if one does; empty for the queue's own.
	Limit string
}

// ScaleFor is the scale of a queue whose jobs run for mean each, in processes of so many slots; both above 0.
func ScaleFor(all All, n Counts, mean time.Duration, slots int64) Scale {
	s := Scale{Jobs: n.Wait + n.SentBack + n.Active, Bound: "jobs"}
	s.Slots = s.Jobs
	lower := func(to int64, bound, limit string) {
		if to < s.Slots {
			s.Slots, s.Bound, s.Limit = to, bound, limit
		}
	}
	for _, l := range all.Limits {
		if !l.forAll() || len(l.Buckets) == 0 {
			continue
		}
		if l.Window == 0 {
			lower(l.Max, "concurrency", l.Name)
			continue
		}
		// As many slots as jobs that are granted while one runs.
		perJob := math.Ceil(float64(l.Max) * (float64(mean) / float64(l.Window)))
		lower(max(1, int64(min(perJob, 1<<53))), "limit", l.Name)
	}
	if _, _, closed := closedUntil(all); closed {
		lower(n.Active, "closed", "")
	}
	if all.Paused || n.Paused {
		lower(n.Active, "paused", "")
	}
	s.Workers = (s.Slots + slots - 1) / slots
	return s
}
