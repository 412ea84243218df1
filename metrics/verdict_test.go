package metrics_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
)

var noon = time.Date(2027, 1, 2, 12, 0, 0, 0, time.UTC)

// own is a limit for all jobs with a bucket.
func own(name string, max int64, window time.Duration, algorithm limiter.Algorithm, b metrics.Bucket) metrics.Limit {
	b.Max, b.Window = max, window
	return metrics.Limit{Name: name, Limit: limiter.Limit{Algorithm: algorithm, Max: max, Window: window}, Buckets: []metrics.Bucket{b}}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	workers := metrics.Fleet{Workers: []metrics.Worker{{Concurrency: 10, Alive: true}, {Concurrency: 10, Alive: true}, {Concurrency: 5}}}
	spent := own("", 100, time.Minute, limiter.FixedWindow, metrics.Bucket{Used: 100, RetryAfter: 14 * time.Second})
	free := own("", 100, time.Minute, limiter.FixedWindow, metrics.Bucket{Used: 3, Remaining: 97})
	byKey := metrics.Limit{Name: "tenant", By: "tenant", Waiting: 7, Buckets: []metrics.Bucket{{Value: "a", RetryAfter: 90 * time.Second}}}
	named := own("rpm", 5, time.Second, limiter.TokenBucket, metrics.Bucket{RetryAfter: 400 * time.Millisecond})
	named.Waiting = 3
	shadow := spent
	shadow.Shadow = true
	shut := []metrics.Closed{{Key: "model", Value: "x", Until: noon.Add(time.Hour)}, {Until: noon.Add(3 * time.Second), Reason: "429"}}
	for _, c := range []struct {
		name  string
		all   metrics.All
		n     metrics.Counts
		fleet metrics.Fleet
		word  metrics.Word
		text  string
	}{
		{"nothing", metrics.All{}, metrics.Counts{}, workers, metrics.Idle, "idle"},
		{"delayed ones alone", metrics.All{}, metrics.Counts{Delayed: 2}, workers, metrics.Idle, "idle - 2 jobs delayed"},
		{"dead ones alone", metrics.All{}, metrics.Counts{Dead: 2, Completed: 1}, workers, metrics.Idle, "idle"},
		{"paused", metrics.All{Paused: true, PauseReason: "deploy"}, metrics.Counts{Wait: 2}, workers, metrics.Paused, "paused: deploy"},
		{"paused and empty", metrics.All{Paused: true}, metrics.Counts{}, metrics.Fleet{}, metrics.Paused, "paused"},
		{"no worker", metrics.All{}, metrics.Counts{Wait: 1}, metrics.Fleet{}, metrics.Starved, "starved - 1 job waits and no worker is there"},
		{"no worker says so, yet jobs run", metrics.All{}, metrics.Counts{Wait: 1, Active: 1}, metrics.Fleet{}, metrics.Flowing, "flowing"},
		{"no worker and limited", metrics.All{Limits: []metrics.Limit{spent}}, metrics.Counts{Wait: 9}, metrics.Fleet{}, metrics.Starved, "starved - 9 jobs wait and no worker is there"},
		{"closed", metrics.All{Closed: shut}, metrics.Counts{Wait: 9, SentBack: 1, Delayed: 1}, workers, metrics.Shut, "closed: 429 - resumes in 3 s"},
		{"a key value is closed", metrics.All{Closed: shut[:1]}, metrics.Counts{Wait: 9}, workers, metrics.Flowing, "flowing"},
		{"limited", metrics.All{Limits: []metrics.Limit{spent}}, metrics.Counts{Wait: 9}, workers, metrics.Limited, "limited - resumes in 14 s"},
		{"limited while some run", metrics.All{Limits: []metrics.Limit{spent}}, metrics.Counts{SentBack: 1, Delayed: 1, Active: 3}, workers, metrics.Limited, "limited - resumes in 14 s"},
		{"spent, nobody waits", metrics.All{Limits: []metrics.Limit{spent}}, metrics.Counts{Active: 3}, workers, metrics.Flowing, "flowing"},
		{"shadow", metrics.All{Limits: []metrics.Limit{shadow}}, metrics.Counts{Wait: 3}, workers, metrics.Flowing, "flowing"},
		{"limited by name", metrics.All{Limits: []metrics.Limit{free, named}}, metrics.Counts{SentBack: 3, Delayed: 3}, workers, metrics.Limited, "limited by rpm - resumes in 0.4 s"},
		{"by key, others run", metrics.All{Limits: []metrics.Limit{byKey}}, metrics.Counts{SentBack: 7, Delayed: 7, Active: 2}, workers, metrics.Flowing, "flowing"},
		{"by key, none else", metrics.All{Limits: []metrics.Limit{byKey}}, metrics.Counts{SentBack: 7, Delayed: 7}, workers, metrics.Limited, "limited by tenant - resumes in 1 min 30 s"},
		{"full", metrics.All{}, metrics.Counts{Wait: 5, Active: 20}, workers, metrics.Backlogged, "backlogged - 5 jobs wait, 20 of 20 worker slots are full"},
		{"flowing", metrics.All{Limits: []metrics.Limit{free}}, metrics.Counts{Wait: 5, Active: 19}, workers, metrics.Flowing, "flowing"},
	} {
		c.all.At = noon
		v := metrics.Judge(c.all, c.n, c.fleet)
		assert.Equal(t, []any{c.word, c.text}, []any{v.Word, v.Text}, c.name)
	}
	assert.Equal(t, noon.Add(14*time.Second), metrics.Judge(metrics.All{At: noon, Limits: []metrics.Limit{spent}}, metrics.Counts{Wait: 1}, workers).Until)
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-1: "0 s", 0: "0 s", 400 * time.Millisecond: "0.4 s", time.Second: "1 s", 14*time.Second + 400*time.Millisecond: "14 s", 200 * time.Second: "3 min 20 s",
		2 * time.Minute: "2 min", 125 * time.Minute: "2 h 5 min", 76 * time.Hour: "3 d 4 h", math.MaxInt64: "106751 d 23 h",
	} {
		assert.Equal(t, want, metrics.Short(d), "%d", d)
	}
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	fixed := own("", 10, time.Minute, limiter.FixedWindow, metrics.Bucket{Remaining: 3, ResetAfter: 20 * time.Second})
	bucket := own("rpm", 60, time.Minute, limiter.TokenBucket, metrics.Bucket{Remaining: 0, RetryAfter: 500 * time.Millisecond})
	inFlight := own("flight", 5, 0, "concurrency", metrics.Bucket{Remaining: 5})
	byKey := metrics.Limit{Name: "tenant", By: "tenant", Limit: limiter.Limit{Max: 1, Window: time.Hour}, Buckets: []metrics.Bucket{{Max: 1}}}
	limits := func(l ...metrics.Limit) metrics.All { return metrics.All{Limits: l} }
	for _, c := range []struct {
		name  string
		all   metrics.All
		n     int64
		mean  time.Duration
		slots int
		want  metrics.ETA
	}{
		{"none wait", limits(fixed), 0, time.Second, 1, metrics.ETA{}},
		{"within what is left", limits(fixed), 3, 0, 0, metrics.ETA{}},
		{"the next window", limits(fixed), 4, 0, 0, metrics.ETA{ByLimit: 20 * time.Second}},
		{"the last of the next window", limits(fixed), 13, 0, 0, metrics.ETA{ByLimit: 20 * time.Second}},
		{"the one after", limits(fixed), 14, 0, 0, metrics.ETA{ByLimit: 80 * time.Second}},
		{"one unit a second", limits(bucket), 11, 0, 0, metrics.ETA{ByLimit: 10*time.Second + 500*time.Millisecond, Limit: "rpm"}},
		{"in flight", limits(inFlight), 11, 2 * time.Second, 0, metrics.ETA{ByLimit: 4 * time.Second, Limit: "flight"}},
		{"the slower of two", limits(fixed, bucket), 14, 0, 0, metrics.ETA{ByLimit: 80 * time.Second}},
		{"workers", limits(fixed), 3, time.Second, 2, metrics.ETA{ByWorkers: time.Second}},
		{"by key is not known", limits(byKey), 100, 0, 0, metrics.ETA{}},
		{"very many", limits(fixed), math.MaxInt64, 0, 0, metrics.ETA{ByLimit: math.MaxInt64/2 + 20*time.Second}},
	} {
		assert.Equal(t, c.want, c.all.Backlog(c.n, c.mean, c.slots), c.name)
	}
}

func TestScale(t *testing.T) {
	t.Parallel()
	fixed := own("", 600, time.Minute, limiter.FixedWindow, metrics.Bucket{})
	inFlight := own("flight", 3, 0, "concurrency", metrics.Bucket{})
	limits := func(l ...metrics.Limit) metrics.All { return metrics.All{Limits: l} }
	for _, c := range []struct {
		name string
		all  metrics.All
		n    metrics.Counts
		mean time.Duration
		want metrics.Scale
	}{
		{"idle scales to none", limits(fixed), metrics.Counts{Delayed: 5}, time.Second, metrics.Scale{Bound: "jobs"}},
		{"few jobs", limits(fixed), metrics.Counts{Wait: 4}, time.Second, metrics.Scale{Jobs: 4, Slots: 4, Workers: 1, Bound: "jobs"}},
		{"no limit", limits(), metrics.Counts{Wait: 4000, Active: 2}, time.Second, metrics.Scale{Jobs: 4002, Slots: 4002, Workers: 1001, Bound: "jobs"}},
		{"the budget", limits(fixed), metrics.Counts{Wait: 1, SentBack: 4000}, time.Second, metrics.Scale{Jobs: 4001, Slots: 10, Workers: 3, Bound: "limit"}},
		{"short jobs still take one", limits(fixed), metrics.Counts{Wait: 4000}, time.Millisecond, metrics.Scale{Jobs: 4000, Slots: 1, Workers: 1, Bound: "limit"}},
		{"in flight", limits(fixed, inFlight), metrics.Counts{Wait: 4000}, time.Second, metrics.Scale{Jobs: 4000, Slots: 3, Workers: 1, Bound: "concurrency", Limit: "flight"}},
		{"paused", metrics.All{Paused: true}, metrics.Counts{Wait: 4000, Active: 2}, time.Second, metrics.Scale{Jobs: 4002, Slots: 2, Workers: 1, Bound: "paused"}},
		{"closed", metrics.All{Closed: []metrics.Closed{{}}}, metrics.Counts{Wait: 4000}, time.Second, metrics.Scale{Jobs: 4000, Bound: "closed"}},
	} {
		assert.Equal(t, c.want, metrics.ScaleFor(c.all, c.n, c.mean, 4), c.name)
	}
}
