package limiter_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/limiter"
)

// randomLimit is one whose numbers do not go into each other.
func randomLimit(r *rand.Rand, algorithm limiter.Algorithm) limiter.Limit {
	l := limiter.Limit{Algorithm: algorithm, Max: 1 + r.Int64N(12), Window: time.Duration(1+r.Int64N(100)) * time.Millisecond}
	switch algorithm {
	case limiter.FixedWindow:
		l.Aligned = r.IntN(2) == 0
	case limiter.TokenBucket, limiter.LeakyBucket:
		l.Burst = r.Int64N(15)
	}
	return l
}

// What Remaining, RetryAfter and ResetAfter promise is true, and one unit more or a millisecond less is not: after any calls,
// other limits and steps of the clock.
func TestPromisesHoldToTheMillisecond(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			r := random(t)
			for range 300 {
				var m limiter.Model
				now, limit := start+r.Int64N(1000), randomLimit(r, algorithm)
				for range 40 {
					switch r.IntN(20) {
					case 0:
						limit = randomLimit(r, algorithm)
					case 1:
						now -= r.Int64N(3 * limit.Window.Milliseconds())
					default:
						now += r.Int64N(1 + pick(r, 1, 5, limit.Window.Milliseconds()))
					}
					n, take := 1+r.Int64N(limit.Capacity()), m.Take
					if r.IntN(4) == 0 {
						n, take = 1, m.TakeUpTo
					}
					if r.IntN(8) == 0 {
						take = m.Refund
					}
					d, err := take(now, limit, n)
					require.NoError(t, err)
					what := fmt.Sprintf("%v, %s: %d at %d: %+v", limit, stateOf(&m, now), n, now, d)

					passes := func(after time.Duration, n int64) bool {
						later := m
						d, err := later.Peek(now+after.Milliseconds(), limit, n)
						require.NoError(t, err)
						return d.Allowed
					}
					require.LessOrEqual(t, d.Remaining, limit.Capacity(), what)
					require.True(t, passes(0, d.Remaining), what)
					require.False(t, passes(0, d.Remaining+1), what)
					if d.RetryAfter > 0 {
						require.True(t, passes(d.RetryAfter, n), what)
						for early := time.Millisecond; early < d.RetryAfter; early += pick[time.Duration](r, 1, 3, 20) * time.Millisecond {
							require.False(t, passes(d.RetryAfter-early, n), "%s: %v earlier", what, early)
						}
					}
					require.True(t, passes(d.ResetAfter, limit.Capacity()), what)
					if d.ResetAfter > 0 {
						require.False(t, passes(d.ResetAfter-time.Millisecond, limit.Capacity()), what)
					}
					if !d.Allowed { // asked again, it answers the same and changes nothing
						before := stateOf(&m, now)
						again, err := take(now, limit, n)
						require.NoError(t, err)
						require.Equal(t, d, again, what)
						require.Equal(t, before, stateOf(&m, now), what)
					}
				}
			}
		})
	}
}

// Fractions of a unit are neither lost nor won: a bucket agrees with one that counts in fractions.
func TestBucketsAreExact(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket} {
		r := random(t)
		for range 100 {
			var m limiter.Model
			limit := randomLimit(r, algorithm)
			rate := big.NewRat(limit.Max, limit.Window.Milliseconds())
			full := new(big.Rat).SetInt64(limit.Capacity())
			free, now := new(big.Rat).Set(full), start
			for range 200 {
				step := r.Int64N(1 + pick(r, 1, 3, limit.Window.Milliseconds()))
				now += step
				if free.Add(free, new(big.Rat).Mul(rate, big.NewRat(step, 1))); free.Cmp(full) > 0 {
					free.Set(full)
				}
				n := 1 + r.Int64N(limit.Capacity())
				cost := big.NewRat(n, 1)
				d, err := m.Take(now, limit, n)
				require.NoError(t, err)
				require.Equal(t, free.Cmp(cost) >= 0, d.Allowed, "%v at %d", limit, now)
				if d.Allowed {
					level := new(big.Rat).Sub(full, free)
					if algorithm == limiter.LeakyBucket {
						require.Equal(t, roundUp(level.Quo(level, rate)), d.Delay.Milliseconds())
					}
					free.Sub(free, cost)
				} else {
					missing := cost.Sub(cost, free)
					require.Equal(t, roundUp(missing.Quo(missing, rate)), d.RetryAfter.Milliseconds())
				}
			}
		}
	}
}

func roundUp(r *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		return q.Int64() + 1
	}
	return q.Int64()
}

type longrun struct {
	Runs []struct {
		Limit    int64
		Window   int64 `json:"window_ms"`
		Attempts int64
		Every    int64 `json:"every_ms"`
		Admitted int64
	}
	Greedy map[string]int64 `json:"greedy_limit10"`
	Paced  []struct {
		Limit   int64
		Window  int64 `json:"window_ms"`
		Burst   int64
		Every   int64 `json:"every_ms"`
		Takes   int64
		Refused int64
	}
}

// A million attempts admit exactly what the rate allows. Valkey is asked for the first ten thousand of them.
func TestLongRun(t *testing.T) {
	t.Parallel()
	var file longrun
	load(t, "testdata/longrun.json", &file)
	require.NotEmpty(t, file.Runs)
	l, clock, _ := onVirtualClock(t)
	for i, run := range file.Runs {
		limit := limiter.Limit{Algorithm: limiter.TokenBucket, Max: run.Limit, Window: time.Duration(run.Window) * time.Millisecond}
		var m limiter.Model
		var admitted int64
		for j := range run.Attempts {
			now := start + j*run.Every
			want, err := m.Take(now, limit, 1)
			if err != nil {
				t.Fatal(err)
			}
			admitted += want.Granted
			if j < 10_000/int64(len(file.Runs)) {
				clock.Set(now)
				got, err := l.Take(t.Context(), fmt.Sprint("run", i), limit, 1)
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		}
		require.Equal(t, run.Admitted, admitted, "%v", limit)
	}
	for i, p := range file.Paced {
		limit := limiter.Limit{Algorithm: limiter.TokenBucket, Max: p.Limit, Window: time.Duration(p.Window) * time.Millisecond, Burst: p.Burst}
		for _, limit.Algorithm = range []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket} {
			var m limiter.Model
			var refused int64
			for j := range p.Takes {
				now := start + j*p.Every
				want, err := m.Take(now, limit, 1)
				require.NoError(t, err)
				refused += 1 - want.Granted
				if j < 100 {
					clock.Set(now)
					got, err := l.Take(t.Context(), fmt.Sprint("paced", limit.Algorithm, i), limit, 1)
					require.NoError(t, err)
					require.Equal(t, want, got)
				}
			}
			require.Equal(t, p.Refused, refused, "%v", limit)
		}
	}
}

// The most that a greedy caller gets within any one window: it takes one unit or none, waits, then takes what it can each ms.
func TestMostWithinAWindow(t *testing.T) {
	t.Parallel()
	var file longrun
	load(t, "testdata/longrun.json", &file)
	const window = 1000
	base := limiter.PerSecond(10)
	with := func(change func(*limiter.Limit)) limiter.Limit {
		l := base
		change(&l)
		return l
	}
	limits := map[string]limiter.Limit{
		"fixed_window":            base,
		"fixed_window/aligned":    with(func(l *limiter.Limit) { l.Aligned = true }),
		"sliding_log":             with(func(l *limiter.Limit) { l.Algorithm = limiter.SlidingLog }),
		"sliding_window_counter":  with(func(l *limiter.Limit) { l.Algorithm = limiter.SlidingWindowCounter }),
		"token_bucket":            with(func(l *limiter.Limit) { l.Algorithm = limiter.TokenBucket }),
		"token_bucket/burst1":     with(func(l *limiter.Limit) { l.Algorithm, l.Burst = limiter.TokenBucket, 1 }),
		"leaky_bucket/capacity10": with(func(l *limiter.Limit) { l.Algorithm, l.Burst = limiter.LeakyBucket, 10 }),
		"leaky_bucket/capacity1":  with(func(l *limiter.Limit) { l.Algorithm, l.Burst = limiter.LeakyBucket, 1 }),
	}
	require.Len(t, limits, len(file.Greedy))
	for name, want := range file.Greedy {
		limit, most := limits[name], int64(0)
		for wait := int64(0); wait < window; wait += 111 {
			for first := range int64(2) {
				most = max(most, mostWithin(t, limit, first, wait))
			}
		}
		require.Equal(t, want, most, name)
	}
}

// mostWithin is the most units that leave within one second, when first are taken, and after a wait of so many ms whatever
// there is each ms.
func mostWithin(t *testing.T, limit limiter.Limit, first, wait int64) (most int64) {
	t.Helper()
	const window = 1000
	var m limiter.Model
	leave := make([]int64, 6*window)
	for now := int64(0); now < wait+3*window; now++ {
		n := limit.Max
		if now < wait {
			n = first
			first = 0
		}
		d, err := m.TakeUpTo(start+now, limit, n)
		require.NoError(t, err)
		for i := range d.Granted {
			at := now
			if limit.Algorithm == limiter.LeakyBucket {
				at += d.Delay.Milliseconds() + i*window/limit.Max
			}
			leave[at]++
		}
	}
	var within int64
	for i, n := range leave {
		within += n
		if i >= window {
			within -= leave[i-window]
		}
		most = max(most, within)
	}
	return most
}
