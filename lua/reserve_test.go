package lua_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// byCost are the algorithms that a limit by cost may have for costs above 1.
var byCost = []string{"fixed_window", "sliding_log", "sliding_window_counter", "token_bucket"}

// reserving runs a test for a limit of ten tokens a second, for each algorithm and with and without a key.
func reserving(t *testing.T, test func(t *testing.T, q *queue, algorithm, keys, value string)) {
	t.Parallel()
	for _, algorithm := range byCost {
		for _, keyed := range []bool{false, true} {
			t.Run(fmt.Sprint(algorithm, keyed), func(t *testing.T) {
				t.Parallel()
				q := clocked(t)
				by, keys, value := "*", "", ""
				if keyed {
					by, keys, value = "tenant", "tenant=é:1 ", "é:1"
				}
				q.limit("set tpm max=10 unit=tokens by=" + by + " algorithm=" + algorithm)
				test(t, q, algorithm, keys, value)
			})
		}
	}
}

func tokens(n int64) map[string]int64 { return map[string]int64{"tokens": n} }

// free is how many units the limit tpm would grant.
func (q *queue) free(value string) int64 { q.Helper(); return q.bucket("tpm", value).Free }

// What a job cost less than it reserved is given back at its end, once, and wakes whoever can use it.
func TestUnusedCostIsGivenBack(t *testing.T) {
	reserving(t, func(t *testing.T, q *queue, algorithm, keys, value string) {
		q.enqueue(carries("a", keys+"tokens:8"), carries("b", keys+"tokens:6"), carries("c", keys+"tokens:1"))
		c := q.claim(9)
		require.Equal(t, []string{"a"}, c.IDs)
		require.EqualValues(t, 2, q.free(value))
		q.do("DEL", ":wake")
		q.settle(done(c, "a", tokens(3)))
		require.EqualValues(t, 7, q.free(value))
		require.EqualValues(t, 1, q.number("LLEN :wake"))
		require.EqualValues(t, 0, q.number("EXISTS :leases"))
		lost, err := q.trySettle(done(c, "a", tokens(0)))
		require.NoError(t, err)
		require.Equal(t, []bool{true}, lost, "settled twice")
		require.EqualValues(t, 7, q.free(value))
		require.Equal(t, []string{"b", "c"}, q.claim(9).IDs)
		require.EqualValues(t, 0, q.free(value))
	})
}

// A leaky bucket, whose burst is 1, gets its unit back.
func TestALeakyBucketGetsItsUnitBack(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set tpm max=2 unit=tokens algorithm=leaky_bucket")
	q.enqueue(alike("tokens:1", "a", "b")...)
	c := q.claim(9)
	require.Equal(t, []string{"a"}, c.IDs)
	q.clock.Advance(100 * time.Millisecond)
	q.settle(done(c, "a", tokens(0)))
	require.Equal(t, []string{"b"}, q.claim(9).IDs)
}

// A settle without real costs, or of other units, leaves the reservation as it is.
func TestAReservationStaysWithoutRealCost(t *testing.T) {
	reserving(t, func(t *testing.T, q *queue, algorithm, keys, value string) {
		q.enqueue(carries("a", keys+"tokens:4"), carries("b", keys+"tokens:4"))
		c := q.claim(9)
		q.settle(done(c, "a", nil), done(c, "b", map[string]int64{"other": 0}))
		require.EqualValues(t, 2, q.free(value))
	})
}

// A crash keeps the reservation.
func TestACrashKeepsTheReservation(t *testing.T) {
	reserving(t, func(t *testing.T, q *queue, algorithm, keys, value string) {
		q.limit("set tpm window=60000")
		q.enqueue(carries("a", keys+"tokens:8"))
		c := q.claim(9)
		before := q.free(value)
		q.clock.Advance(lease)
		require.Equal(t, 1, q.claim(0).Reclaimed)
		lost, err := q.trySettle(done(c, "a", tokens(0)))
		require.NoError(t, err)
		require.Equal(t, []bool{true}, lost)
		want := before
		if algorithm == "token_bucket" {
			want += 5 // half a window
		}
		require.Equal(t, want, q.free(value))
	})
}

// Once the window of a reservation is over it gives nothing back, not even to the next one; a counter weighs the one before.
func TestAWindowThatTurnedGetsNothingBack(t *testing.T) {
	reserving(t, func(t *testing.T, q *queue, algorithm, keys, value string) {
		q.enqueue(carries("old", keys+"tokens:8"), carries("older", keys+"tokens:2"))
		first := q.claim(9)
		require.Len(t, first.IDs, 2)
		q.clock.Advance(1500 * time.Millisecond)
		q.enqueue(carries("new", keys+"tokens:5"))
		require.Len(t, q.claim(9).IDs, 1)
		require.EqualValues(t, map[string]int64{"fixed_window": 5, "sliding_log": 5, "sliding_window_counter": 0, "token_bucket": 5}[algorithm],
			q.free(value))
		q.settle(done(first, "old", tokens(0)))
		require.EqualValues(t, map[string]int64{"fixed_window": 5, "sliding_log": 5, "sliding_window_counter": 4, "token_bucket": 5}[algorithm],
			q.free(value))
		q.clock.Advance(600 * time.Millisecond)
		before := q.free(value)
		q.settle(done(first, "older", tokens(0)))
		require.Equal(t, before, q.free(value), "two windows later")
	})
}

// A token bucket gives back what it has not refilled since.
func TestABucketGivesBackWhatItHasNotRefilled(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set tpm max=10 unit=tokens algorithm=token_bucket")
	q.enqueue(carries("a", "tokens:8"), carries("b", "tokens:2"))
	c := q.claim(9)
	require.Len(t, c.IDs, 2)
	q.clock.Advance(300 * time.Millisecond)
	require.EqualValues(t, 3, q.free(""))
	q.settle(done(c, "a", tokens(2)))
	require.EqualValues(t, 6, q.free(""), "6 units, of which 3 have come in since")
	q.settle(done(c, "b", tokens(0)))
	require.EqualValues(t, 6, q.free(""), "2 units came in long ago")
}

// A log gives back exactly the job's own units, though others are older or newer.
func TestALogGivesBackTheJobsOwnUnits(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set tpm max=10 unit=tokens algorithm=sliding_log")
	var claims []lua.Claimed
	for _, id := range []string{"old", "own", "new"} {
		q.enqueue(carries(id, "tokens:3"))
		claims = append(claims, q.claim(9))
		q.clock.Advance(200 * time.Millisecond)
	}
	log := q.list("ZRANGE :limiter:tpm 0 -1")
	require.Len(t, log, 9)
	q.settle(done(claims[1], "own", tokens(1)))
	require.Equal(t, slices.Delete(slices.Clone(log), 4, 6), q.list("ZRANGE :limiter:tpm 0 -1"))
	require.EqualValues(t, 3, q.free(""))
	q.clock.Advance(400 * time.Millisecond)
	require.EqualValues(t, 6, q.free(""), "those of old are free in their own time")
	q.settle(done(claims[0], "old", tokens(0)))
	require.EqualValues(t, 6, q.free(""))
}

// A charge beyond the reservation may exceed max, and those that come later see the debt.
func TestAChargeMakesDebt(t *testing.T) {
	reserving(t, func(t *testing.T, q *queue, algorithm, keys, value string) {
		q.enqueue(carries("a", keys+"tokens:2"))
		c := q.claim(9)
		q.settle(done(c, "a", tokens(25)))
		require.EqualValues(t, 0, q.free(value))
		q.enqueue(carries("b", keys+"tokens:1"))
		refused := q.claim(9)
		require.Empty(t, refused.IDs)
		retry := refused.SentBack[0].RetryAfter
		switch algorithm {
		case "fixed_window", "sliding_log":
			require.Equal(t, time.Second, retry)
		case "sliding_window_counter": // 25 * (2000-t)/1000 <= 9
			require.Equal(t, 1640*time.Millisecond, retry)
		case "token_bucket": // 16 units too many
			require.Equal(t, 1600*time.Millisecond, retry)
		}
		q.clock.Advance(retry - time.Millisecond)
		require.Empty(t, q.claim(9).IDs)
		q.clock.Advance(time.Millisecond)
		require.Equal(t, []string{"b"}, q.claim(9).IDs)
	})
}

// A charge adds no more units to a log than its max: they are all of one time, so no more of them decide.
func TestAChargeAddsNoMoreToALogThanItsMax(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set tpm max=100 window=60000 unit=tokens algorithm=sliding_log")
	q.enqueue(alike("tokens:1", "a", "b", "c")...)
	c := q.claim(9)
	require.Len(t, c.IDs, 3)
	q.settle(done(c, "a", tokens(1_000_000)))
	require.EqualValues(t, 3+100, q.number("ZCARD :limiter:tpm"))
	q.settle(done(c, "b", tokens(1_000_000)), done(c, "c", tokens(1_000_000)))
	require.EqualValues(t, 3+200, q.number("ZCARD :limiter:tpm"), "of one call too")
	q.clock.Advance(time.Minute - time.Millisecond)
	require.Zero(t, q.free(""))
	q.clock.Advance(time.Millisecond)
	require.EqualValues(t, 100, q.free(""))
}

// A job that declared no cost of a unit is charged what it turns out to have cost.
func TestACostThatWasNotReservedIsCharged(t *testing.T) {
	reserving(t, func(t *testing.T, q *queue, algorithm, keys, value string) {
		q.enqueue(carries("a", keys))
		q.settle(done(q.claim(9), "a", tokens(4)))
		require.EqualValues(t, 6, q.free(value))
	})
}

// After a reset nothing is given back of what was taken before it: the budget is whole and stays whole.
func TestNothingIsGivenBackAfterAReset(t *testing.T) {
	for _, one := range []bool{true, false} {
		t.Run(fmt.Sprint("one value ", one), func(t *testing.T) {
			reserving(t, func(t *testing.T, q *queue, algorithm, keys, value string) {
				q.enqueue(carries("a", keys+"tokens:8"))
				c := q.claim(9)
				q.clock.Advance(10 * time.Millisecond)
				if one && value != "" {
					q.limit("reset tpm", lua.NamedValue{Value: value})
				} else {
					q.limit("reset tpm")
				}
				require.EqualValues(t, 10, q.free(value))
				q.enqueue(carries("b", keys+"tokens:5"))
				require.Equal(t, []string{"b"}, q.granted(9))
				q.settle(done(c, "a", tokens(3)))
				assert.LessOrEqual(t, q.free(value), int64(5), "more was given back than was taken since")
				assert.GreaterOrEqual(t, q.free(value), int64(5), "the job cost no more than it had reserved")
			})
		})
	}
}

// Real costs of a limit that was removed, or that shadows, or of a corrupt bucket, stop no settle.
func TestRealCostsOfOddLimits(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set gone max=10 unit=tokens")
	q.limit("set tpm max=10 unit=tokens mode=shadow")
	q.enqueue(carries("a", "tokens:8"), carries("b", "tokens:8"), carries("c", "tokens:1"))
	c := q.claim(1)
	require.EqualValues(t, 2, q.free(""))
	q.limit("unset gone")
	q.settle(done(c, "a", tokens(3)))
	require.EqualValues(t, 7, q.free(""), "a shadow counts real costs too")
	c = q.claim(9)
	q.do("SET", ":limiter:tpm", "garbage")
	q.settle(done(c, "c", tokens(3)))
	require.Equal(t, "garbage", q.text("GET :limiter:tpm"))
}
