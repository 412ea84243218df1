package claim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/internal/model"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// saturated is a queue with limits by key on a clock that stands still, and the same queue as the model has it.
type saturated struct {
	t       *testing.T
	q       *queue.Queue
	claimer *claim.Claimer
	model   *model.Queue
	set     func(ms int64)
	jobs    int
	granted map[string]int64 // ms
	spent   map[string]int64 // units by limit
}

func newSaturated(t *testing.T, windows map[string]int64) *saturated {
	q, claimer, clock, _ := clocked(t)
	s := &saturated{t: t, q: q, claimer: claimer, model: model.New(start, lease, maxReclaims), set: clock.Set, granted: map[string]int64{}, spent: map[string]int64{}}
	for name, window := range windows {
		l := limiter.Limit{Algorithm: limiter.FixedWindow, Max: 1, Window: ms(window)}
		_, err := q.SetNamedLimit(t.Context(), queue.NamedLimit{Name: name, Limit: l, By: name}, "")
		require.NoError(t, err)
		s.model.SetLimit(model.Limit{Name: name, Limit: l, By: name})
	}
	return s
}

// enqueue puts a job in that falls under the named limits.
func (s *saturated) enqueue(id string, limits ...string) {
	s.t.Helper()
	keys := map[string]string{}
	for _, l := range limits {
		keys[l] = "x"
	}
	_, err := s.q.Enqueue(s.t.Context(), queue.Job{ID: id, Keys: keys})
	require.NoError(s.t, err)
	require.Equal(s.t, "new", s.model.Enqueue(model.Job{ID: id, Priority: 2, Keys: keys}, 0))
}

// waiting counts the jobs under that limit alone.
func (s *saturated) waiting(limit string) (n int) {
	for _, j := range s.model.Jobs {
		if _, has := j.Keys[limit]; has && len(j.Keys) == 1 {
			n++
		}
	}
	return n
}

// claim claims and completes all that is granted at now, and holds the model to it unless its rule against starvation is off.
func (s *saturated) claim(now int64) {
	s.t.Helper()
	s.set(start + now)
	s.model.Now = start + now
	b, err := s.claimer.Claim(s.t.Context(), 50)
	require.NoError(s.t, err)
	want := s.model.Claim(50).Granted
	var done []claim.Outcome
	var got []string
	for _, j := range b.Jobs {
		got = append(got, j.ID)
		s.granted[j.ID] = now
		for key := range j.Keys {
			s.spent[key]++
		}
		done = append(done, claim.Complete(j))
	}
	if !s.model.NoHolds {
		require.Equal(s.t, want, got, "at %d", now)
	}
	for _, id := range want {
		s.model.Settle(s.model.Jobs[id], "complete", 0, "", nil)
	}
	_, err = s.claimer.Settle(s.t.Context(), done)
	require.NoError(s.t, err)
}

// Two buckets of one job each 100 ms open in turn, and a job under one of them always waits for it: a job under both gets its turn by
// the rule against starvation, and never without.
func TestNoStarvation(t *testing.T) {
	t.Parallel()
	windows := map[string]int64{"a": 100, "b": 100}
	s, without := newSaturated(t, windows), newSaturated(t, windows)
	without.model.NoHolds = true
	granted := int64(-1)
	for now := int64(0); now <= 20_000; now += 50 {
		for _, s := range []*saturated{s, without} {
			for _, name := range []string{"a", "b"} { // b's window opens 50 ms after a's
				for s.waiting(name) < 2 && (now > 0 || name == "a") {
					s.enqueue(fmt.Sprintf("%s%d", name, s.jobs), name)
					s.jobs++
				}
			}
			if now == 500 {
				s.enqueue("both", "a", "b")
			}
		}
		s.claim(now)
		without.claim(now)
		if at, ok := s.granted["both"]; ok && granted < 0 {
			granted = at - 500
		}
	}
	require.GreaterOrEqual(t, granted, int64(0), "the job under both buckets is granted")
	require.LessOrEqual(t, granted, int64(5*100), "within five windows")
	require.Equal(t, model.Delayed, without.model.Jobs["both"].State, "without the rule it waits for ever: the model, which agrees else, says so")
	t.Logf("granted after %d ms; %d and %d units spent of 201", granted, s.spent["a"], s.spent["b"])
}

// Six saturated buckets of unequal windows, and jobs under two to four of them: each is granted, and less than a tenth of the budget
// stays unused.
func TestManySaturatedBuckets(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	windows := map[string]int64{"a": 70, "b": 100, "c": 130, "d": 170, "e": 210, "f": 290}
	names := []string{"a", "b", "c", "d", "e", "f"}
	s := newSaturated(t, windows)
	born := map[string]int64{}
	add := func(now int64, limits ...string) {
		id := fmt.Sprintf("j%d-%d", len(limits), s.jobs)
		s.jobs++
		born[id] = now
		s.enqueue(id, limits...)
	}
	const end = 20_000
	for now := int64(0); now < end; now += 10 {
		// A few jobs under one bucket wait for each, and now and then one comes that needs several.
		for _, name := range names {
			for s.waiting(name) < 2 {
				add(now, name)
			}
		}
		if now%500 == 0 && now < end*3/4 {
			some := slices.Clone(names)
			rnd.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			add(now, some[:2+rnd.IntN(3)]...)
		}
		s.claim(now)
	}
	longest := int64(0)
	for id, at := range born {
		if id[1] != '1' {
			granted, ok := s.granted[id]
			require.True(t, ok, "job %s, enqueued at %d, still waits at %d", id, at, end)
			longest = max(longest, granted-at)
		}
	}
	all := 0.0
	for _, name := range names {
		used := float64(s.spent[name]) * float64(windows[name]) / end
		t.Logf("%s: %.1f %% of its budget used", name, 100*used)
		all += used / float64(len(names))
	}
	require.Greater(t, all, 0.9, "less than a tenth stays unused")
	t.Logf("the longest wait of a job under several buckets was %v", time.Duration(longest)*time.Millisecond)
}
