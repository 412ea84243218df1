package subbudget_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/internal/subbudget"
	"github.com/echomq/emq/limiter"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the simulations; 0: a new one each time")

// most is the budget of a window of one second.
const most = 200

var (
	fixed   = limiter.Limit{Max: most, Window: time.Second}
	aligned = limiter.Limit{Max: most, Window: time.Second, Aligned: true}
	bucket  = limiter.Limit{Algorithm: limiter.TokenBucket, Max: most, Window: time.Second}

	leases = []int64{1, most * 2 / 100, most * 5 / 100, most * 10 / 100, most * 25 / 100}
)

// The demands: more than the budget on each shard alike, or nearly all on one; less than the budget, but in bursts.
func even(s subbudget.Setup) subbudget.Setup { s.Load = 1.2; return s }
func hot(s subbudget.Setup) subbudget.Setup  { s.Load, s.Hot = 1.2, 0.9; return s }
func bursts(s subbudget.Setup) subbudget.Setup {
	s.Load, s.Bursts = 0.9, true
	return s
}

func setup(seed uint64, budget limiter.Limit, shards int, lease int64, faults bool) subbudget.Setup {
	return subbudget.Setup{Seed: seed, Budget: budget, Shards: shards, Lease: lease, Term: 100, Faults: faults, Length: 20}
}

func TestNeverOver(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to run this again: -seed %d", seed)
	for name, budget := range map[string]limiter.Limit{"fixed_window": fixed, "aligned": aligned, "token_bucket": bucket} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, lease := range leases {
				for _, shards := range []int{2, 4, 8} {
					for i, demand := range []func(subbudget.Setup) subbudget.Setup{even, hot, bursts} {
						for _, faults := range []bool{false, true} {
							for _, exact := range []bool{false, true} {
								s := demand(setup(seed, budget, shards, lease, faults))
								s.Exact, s.Length = exact, 3
								r := subbudget.Run(s)
								what := fmt.Sprintf("lease of %d, %d shards, demand %d, faults %v, exact %v", lease, shards, i, faults, exact)
								assert.Zero(t, r.Over, what)
								require.NotEmpty(t, r.Admitted, what)
								if budget.Algorithm == "" {
									assert.LessOrEqual(t, mostWithin(r.Admitted, 1000), 2*most, what)
								}
							}
						}
					}
				}
			}
		})
	}
}

// mostWithin is how many of the times fall into a span shorter than span, at most.
func mostWithin(times []int64, span int64) (n int) {
	first := 0
	for i, at := range times {
		for times[first] <= at-span {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// A run that breaks a rule of the plan is over somewhere, or the replay is blind.
func TestReplayNoticesBugs(t *testing.T) {
	t.Parallel()
	over := func(bug subbudget.Bug, budget limiter.Limit) (over int64) {
		for _, lease := range leases {
			for _, demand := range []func(subbudget.Setup) subbudget.Setup{hot, bursts} {
				s := demand(setup(1, budget, 4, lease, true))
				s.Bug = bug
				over += subbudget.Run(s).Over
			}
		}
		return over
	}
	assert.Zero(t, over(subbudget.None, aligned))
	assert.Zero(t, over(subbudget.None, bucket))
	for _, bug := range []subbudget.Bug{subbudget.DebitAfterUse, subbudget.Outlives, subbudget.FromReceipt, subbudget.ReturnsTwice} {
		assert.Positive(t, over(bug, aligned), bug)
	}
	for _, bug := range []subbudget.Bug{subbudget.DebitAfterUse, subbudget.Outlives} {
		assert.Positive(t, over(bug, bucket), bug)
	}
	full := bursts(setup(1, bucket, 4, 1, false))
	full.Bug = subbudget.FullBurst
	assert.Positive(t, subbudget.Run(full).Over)
}

func TestSameSeedSameRun(t *testing.T) {
	t.Parallel()
	s := hot(setup(7, bucket, 4, leases[2], true))
	r := subbudget.Run(s)
	assert.Equal(t, r, subbudget.Run(s))
	s.Seed++
	assert.NotEqual(t, r, subbudget.Run(s))
}

// One shard that asks for units one by one is as good as one server. Shards that hoard are not.
func TestUnderIsMeasuredAgainstOneServer(t *testing.T) {
	t.Parallel()
	s := even(setup(1, aligned, 1, 1, false))
	one, r := subbudget.OneServer(s), subbudget.Run(s)
	assert.EqualValues(t, 20*most, one)
	assert.InDelta(t, 0, r.Under(one), 0.005)
	assert.Greater(t, r.CallsPerJob(), 1.0)
	s = hot(setup(1, aligned, 8, leases[4], false))
	s.Keep = true
	assert.Greater(t, subbudget.Run(s).Under(subbudget.OneServer(s)), 0.3, "seven shards keep for themselves what the eighth could use")
}
