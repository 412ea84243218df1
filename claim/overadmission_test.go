package claim_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// Four ordinary situations in which another queue was measured to let more through than its limit says, with the right number here.

// claims is a queue with jobs enough, claimed on a clock that stands still.
type claims struct {
	*testing.T
	q     *queue.Queue
	c     *claim.Claimer
	at    func(ms int64)
	do    func(args ...string)
	times []int64 // of the grants, ms
}

func newClaims(t *testing.T, limit limiter.Limit) *claims {
	t.Helper()
	q, c, clock, client := clocked(t)
	_, err := q.SetLimit(t.Context(), limit, "")
	require.NoError(t, err)
	_, err = q.EnqueueMany(t.Context(), make([]queue.Job, 300))
	require.NoError(t, err)
	return &claims{T: t, q: q, c: c, at: func(ms int64) { clock.Set(start + ms) }, do: func(args ...string) {
		t.Helper()
		require.NoError(t, client.Do(t.Context(), client.B().Arbitrary(args...).Build()).Error())
	}}
}

// claim claims up to k jobs at a time and returns them, settled by outcome.
func (c *claims) claim(ms int64, k int, outcome func(*claim.Job) claim.Outcome) int {
	c.Helper()
	c.at(ms)
	b, err := c.c.Claim(c.Context(), k)
	require.NoError(c, err)
	var done []claim.Outcome
	for _, j := range b.Jobs {
		c.times = append(c.times, ms)
		done = append(done, outcome(j))
	}
	_, err = c.c.Settle(c.Context(), done)
	require.NoError(c, err)
	return len(b.Jobs)
}

// most is the largest number of grants in a span shorter than window.
func (c *claims) most(window int64) (most int) {
	first := 0
	for i, at := range c.times {
		for at-c.times[first] >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// A handler backs off for a second within a window that is spent: the window stays spent.
func TestBackOffInASpentWindow(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingWindowCounter} {
		c := newClaims(t, limiter.Limit{Algorithm: algorithm, Max: 10, Window: 20 * time.Second})
		require.Equal(t, 10, c.claim(0, 50, func(j *claim.Job) claim.Outcome {
			return claim.RateLimited(j, time.Second, "", errors.New("429"))
		}))
		for ms := int64(1); ms < 20_000; ms += 7 {
			require.Zero(t, c.claim(ms, 50, claim.Complete), "%s at %d", algorithm, ms)
		}
		require.Positive(t, c.claim(40_000, 50, claim.Complete), algorithm)
		require.Equal(t, 10, c.most(20_000), algorithm)
	}
}

// The cap is the queue's, max and window both: a worker has none of its own, and what a client of another family writes beside them
// changes nothing.
func TestOneLimitForTheQueueAndItsWorkers(t *testing.T) {
	t.Parallel()
	c := newClaims(t, limiter.Limit{Max: 5, Window: 2 * time.Second})
	c.do("HSET", "emq:{q}:meta", "version", "bullmq:6.7.0", "concurrency", "100", "limiterMax", "100")
	for ms := int64(0); ms < 20_000; ms += 10 {
		c.claim(ms, 50, claim.Complete)
	}
	require.Len(t, c.times, 10*5)
	require.Equal(t, 5, c.most(2_000), "windows that open on time do not meet")
}

// A counter that lost its TTL is a window that runs: it ends one window later, whatever it counts.
func TestCounterWithoutTTL(t *testing.T) {
	t.Parallel()
	for count, left := range map[int]int{0: 10, 3: 7, 10: 0, 99: 0} {
		c := newClaims(t, limiter.Limit{Max: 10, Window: time.Second})
		c.do("SET", "emq:{q}:limiter", strconv.Itoa(count))
		require.Equal(t, left, c.claim(0, 50, claim.Complete), "a counter at %d", count)
		for ms := int64(1); ms < 1_000; ms++ {
			require.Zero(t, c.claim(ms, 50, claim.Complete), "a counter at %d, %d ms later", count, ms)
		}
		require.Equal(t, 10, c.claim(1_000, 50, claim.Complete))
	}
}

// Where two windows meet a fixed window lets up to 2*max-1 through, as said; a sliding log never more than max.
func TestSeam(t *testing.T) {
	t.Parallel()
	for algorithm, most := range map[limiter.Algorithm]int{limiter.FixedWindow: 19, limiter.SlidingLog: 10} {
		c := newClaims(t, limiter.Limit{Algorithm: algorithm, Max: 10, Window: time.Second})
		require.Equal(t, 1, c.claim(0, 1, claim.Complete))
		require.Equal(t, 9, c.claim(999, 50, claim.Complete))
		for ms := int64(1_000); ms < 3_000; ms++ {
			c.claim(ms, 50, claim.Complete)
		}
		require.Equal(t, most, c.most(1_000), algorithm)
	}
}

// A caller that keeps an even pace of max in each window is never refused, and a token bucket of 7 a second that is tried each
// millisecond lets exactly 7,006 through in 1,000,000, by the vectors of package limiter: here the first 5,000 through the claim.
func TestEvenPace(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket} {
		c := newClaims(t, limiter.Limit{Algorithm: algorithm, Max: 5, Window: time.Second, Burst: 1})
		for ms := int64(0); ms < 50_000; ms += 200 {
			require.Equal(t, 1, c.claim(ms, 1, claim.Complete), "%s at %d", algorithm, ms)
		}
	}
	c := newClaims(t, limiter.Limit{Algorithm: limiter.TokenBucket, Max: 7, Window: time.Second, Burst: 7})
	for ms := int64(0); ms < 5_000; ms++ {
		c.claim(ms, 1, claim.Complete)
	}
	require.Len(t, c.times, 7+7*5-1)
}
