package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// inFlight gives the queue a limit of two jobs in flight by tenant, and three jobs of one; the first two are active.
func inFlight(t *testing.T) (*queue, lua.Claimed) {
	t.Helper()
	q := clocked(t)
	q.limit("set flight max=2 by=tenant algorithm=concurrency")
	q.enqueue(alike("tenant=a", "a1", "a2", "a3")...)
	c := q.claim(9)
	require.Equal(t, []string{"a1", "a2"}, c.IDs)
	require.Equal(t, []lua.SentBack{{ID: "a3", By: lua.Blocker{Limit: "flight", Value: "a"}, RetryAfter: lease}}, c.SentBack)
	q.do("DEL", ":wake")
	return q, c
}

// Jobs in flight are the leases that have not ended; every end of one frees its place, readies the head of the line and wakes.
func TestConcurrencyCountsLeases(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{lua.Complete, lua.Retry, lua.Defer, lua.DeadLetter, lua.HandBack, lua.Limited} {
		q, c := inFlight(t)
		q.enqueue(alike("tenant=b", "b1", "b2")...)
		require.Equal(t, []string{"b1", "b2"}, q.claim(9).IDs, "another tenant has places of its own")
		q.do("DEL", ":wake")
		q.clock.Advance(time.Second)
		require.Empty(t, q.claim(9).IDs)
		q.settle(lua.Settlement{Outcome: outcome, ID: "a2", Token: c.Token, Wait: 500 * time.Millisecond, Text: "dead_lettered\nno"})
		require.EqualValues(t, 1, q.number("LLEN :wake"), outcome)
		assert.EqualValues(t, 1, q.bucket("flight", "a").Used)
		want := []string{"a3"}
		switch outcome {
		case lua.HandBack:
			want = []string{"a2"} // at its place, before a3
		case lua.Limited:
			q.clock.Advance(500 * time.Millisecond)
			want = []string{"a2"}
		}
		require.Equal(t, want, q.claim(9).IDs, outcome)
	}
}

// The place of a lease that ends with its worker comes free with the claim that reclaims the job.
func TestReclaimFreesThePlace(t *testing.T) {
	t.Parallel()
	q, c := inFlight(t)
	q.clock.Advance(lease - time.Millisecond)
	require.Empty(t, q.claim(9).IDs)
	lost, err := lua.Extend(t.Context(), q.client, q.keys, lease, []lua.Settlement{{ID: "a1", Token: c.Token}})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, lost)
	q.clock.Advance(time.Millisecond)
	next := q.claim(9)
	require.Equal(t, 1, next.Reclaimed)
	require.Equal(t, []string{"a2"}, next.IDs, "it was reclaimed, and its place lies before the line's")
	require.EqualValues(t, 2, q.bucket("flight", "a").Used, "the extended lease keeps its place")
	require.EqualValues(t, 2, q.number("HLEN :leases"))
	q.clock.Advance(lease - time.Millisecond)
	require.Equal(t, []string{"a1"}, q.claim(9).IDs)
	q.settle(lua.Settlement{Outcome: lua.Complete, ID: "a2", Token: next.Token})
	require.Equal(t, []string{"a3"}, q.claim(9).IDs)
}

// A stale settle frees nothing.
func TestAStaleSettleFreesNoPlace(t *testing.T) {
	t.Parallel()
	q, c := inFlight(t)
	q.clock.Advance(lease)
	require.Equal(t, []string{"a1", "a2"}, q.claim(9).IDs)
	lost, err := q.trySettle(done(c, "a1", nil), done(c, "a2", nil))
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, lost)
	require.Empty(t, q.claim(9).IDs)
}

// A limit that is set while jobs run counts them; removed and set again it counts those that run then.
func TestANewConcurrencyLimitCountsWhatRuns(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.enqueue(alike("tenant=a", "a1", "a2", "a3", "a4", "a5")...)
	c := q.claim(2)
	q.limit("set flight max=2 by=tenant algorithm=concurrency")
	require.EqualValues(t, 2, q.bucket("flight", "a").Used)
	require.Empty(t, q.claim(9).IDs)
	q.limit("unset flight")
	more := q.granted(1)
	require.Equal(t, []string{"a3"}, more)
	q.settle(done(c, "a1", nil))
	q.limit("set flight max=2 by=tenant algorithm=concurrency")
	require.EqualValues(t, 2, q.bucket("flight", "a").Used)
	require.Empty(t, q.granted(9))
	q.settle(done(c, "a2", nil))
	require.Equal(t, []string{"a4"}, q.granted(9))
	q.limit("set flight max=3")
	require.Equal(t, []string{"a5"}, q.granted(9), "raised")
}

// More leases than a script counts at once are counted by the claims, which grant nothing before they are done.
func TestManyRunningJobsAreCountedBeforeAnythingIsGranted(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	const n = 2500
	for from := 0; from < n; from += 500 {
		jobs := make([]lua.NewJob, 500)
		for i := range jobs {
			jobs[i] = carries(fmt.Sprint("r", from+i), "tenant=a")
		}
		q.enqueue(jobs...)
	}
	var some lua.Claimed
	for active := 0; active < n; active += len(some.IDs) {
		some = q.claim(1000)
		require.NotEmpty(t, some.IDs)
	}
	q.limit(fmt.Sprintf("set flight max=%d by=tenant algorithm=concurrency", n))
	q.enqueue(carries("x", "tenant=a"), carries("y", "tenant=b"))
	q.settle(done(some, some.IDs[0], nil))
	claims := 0
	for {
		c := q.claim(9)
		claims++
		require.Less(t, claims, 100)
		if len(c.IDs) > 0 {
			require.Equal(t, []string{"x", "y"}, c.IDs)
			break
		}
		require.True(t, c.More, "it is worth claiming again at once")
	}
	require.Greater(t, claims, 2)
	require.EqualValues(t, n, q.bucket("flight", "a").Used)
	require.EqualValues(t, 0, q.number("EXISTS :uncounted"))
}

// A concurrency limit without key is one for all jobs: it sends back the head and is over when a place comes free.
func TestConcurrencyForAll(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set flight max=1 algorithm=concurrency")
	q.wait("a", "b")
	c := q.claim(9)
	require.Equal(t, []string{"a"}, c.IDs)
	require.Equal(t, []lua.SentBack{{ID: "b", By: lua.Blocker{Limit: "flight"}, RetryAfter: lease}}, c.SentBack)
	q.do("DEL", ":wake")
	q.settle(done(c, "a", nil))
	require.EqualValues(t, 1, q.number("LLEN :wake"))
	require.Equal(t, []string{"b"}, q.claim(9).IDs)
}

// Jobs in flight are no budget to be made whole, and have no unit.
func TestConcurrencyHasNothingToReset(t *testing.T) {
	t.Parallel()
	q, _ := inFlight(t)
	_, _, err := q.tryLimit("reset flight")
	var refused *lua.NamedError
	require.ErrorAs(t, err, &refused)
	require.EqualError(t, err, "limit flight counts jobs in flight: it has nothing to reset")
	_, _, err = q.tryLimit("set other algorithm=concurrency max=1 unit=tokens")
	require.EqualError(t, err, `limit other counts jobs in flight, which have no unit; want none, not "tokens"`)
}

// After the clock stepped back an hour, places of workers that died come free after one lease.
func TestPlacesDoNotOutliveAStepOfTheClock(t *testing.T) {
	t.Parallel()
	q, _ := inFlight(t)
	q.clock.Advance(-time.Hour)
	require.Empty(t, q.granted(9))
	q.clock.Advance(lease)
	require.Equal(t, []string{"a1", "a2"}, q.granted(9))
	require.EqualValues(t, 2, q.bucket("flight", "a").Used)
}

// A place that comes free while all lines are judged anew opens its line, which then is stale no longer: when it has ended no set has it.
func TestALineThatOpensIsNotStaleToo(t *testing.T) {
	t.Parallel()
	q, c := inFlight(t)
	q.do("ZADD", ":active", fmt.Sprint(start), "a2|"+c.Token)
	q.do("HSET", ":state", "seen", fmt.Sprint(start+time.Hour.Milliseconds()))
	require.Equal(t, 1, q.claim(9).Reclaimed)
	require.EqualValues(t, 1, q.number("ZCARD :lines:open"))
	require.EqualValues(t, 0, q.number("ZCARD :lines:stale"))
	q.limit("set flight max=3")
	require.Equal(t, []string{"a2", "a3"}, q.granted(9))
	require.Empty(t, q.list("KEYS "+q.keys.Prefix()+"line*"))
}
