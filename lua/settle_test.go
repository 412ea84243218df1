package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// What each outcome leaves behind.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	at := func(d time.Duration) time.Time {
		if d < 0 {
			return time.Time{}
		}
		return time.UnixMilli(start).Add(d)
	}
	const minute = time.Minute
	for name, c := range map[string]struct {
		outcome   string
		wait      time.Duration
		text      string
		state     string
		at        time.Duration // -1: none
		by        string
		counters  [3]int // attempts, deferrals, reclaims
		failure   string
		result    string
		counts    [6]int64
		wakes     int64 // tokens pushed
		claimable int   // at once
	}{
		"complete":            {lua.Complete, 0, "dropped", "unknown", -1, "", [3]int{}, "", "", [6]int64{}, 0, 0},
		"complete and keep":   {lua.Complete, minute, "r\x00\xff", "completed", minute, "", [3]int{1, 0, 0}, "", "r\x00\xff", [6]int64{5: 1}, 0, 0},
		"complete, no result": {lua.Complete, minute, "", "completed", minute, "", [3]int{1, 0, 0}, "", "", [6]int64{5: 1}, 0, 0},
		"retry":               {lua.Retry, minute, "e2", "delayed", minute, "retry", [3]int{2, 0, 0}, "retry\ne2", "", [6]int64{2: 1}, 1, 0},
		"retry at once":       {lua.Retry, 0, "e2", "delayed", 0, "retry", [3]int{2, 0, 0}, "retry\ne2", "", [6]int64{2: 1}, 1, 1},
		"defer":               {lua.Defer, minute, "", "delayed", minute, "retry", [3]int{1, 1, 0}, "retry\ne1", "", [6]int64{2: 1}, 1, 0},
		"hand back":           {lua.HandBack, 0, "", "wait", -1, "", [3]int{1, 0, 0}, "retry\ne1", "", [6]int64{0: 1}, 1, 1},
		"dead":                {lua.DeadLetter, 0, "attempts\ne2", "dead", 0, "", [3]int{2, 0, 0}, "attempts\ne2", "", [6]int64{4: 1}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := shared.another(t)
			q.wait("a")
			q.settle(q.claimed(lua.Retry, 0, "e1")) // it failed once before
			s := q.claimed(c.outcome, c.wait, c.text)
			q.do("DEL", ":wake")
			q.do("HDEL", ":state", "alarm")
			q.settle(s)

			require.Equal(t, c.state, q.state("a"))
			require.Equal(t, c.counts, q.counts())
			require.Equal(t, c.wakes, q.number("LLEN :wake"))
			require.EqualValues(t, 0, q.number("ZCARD :active"))
			if c.state == "unknown" {
				require.EqualValues(t, 0, q.number("EXISTS :errors :job:a :result:a :completed"))
				return
			}
			f, record := q.found("a")
			assert.Equal(t, at(c.at), f.At)
			assert.Equal(t, c.by, f.By)
			assert.Equal(t, c.failure, f.Failure)
			assert.Equal(t, c.result, f.Result)
			assert.Equal(t, c.counters, [3]int{record.Attempts, record.Deferrals, record.Reclaims})
			assert.Len(t, q.claim(9).IDs, c.claimable)
		})
	}
}

func TestTimersOfDelayedJobsWakeOnlyIfNobodyHasSetOne(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a", "b", "c")
	q.enqueue(delayed("first", time.Second))
	leases := q.claim(3) // the claimer will come back after a second
	q.do("DEL", ":wake")
	settle := func(id string, wait time.Duration) int64 {
		q.settle(lua.Settlement{Outcome: lua.Retry, ID: id, Token: leases.Token, Wait: wait})
		return q.number("LLEN :wake")
	}
	require.EqualValues(t, 0, settle("a", 2*time.Second))
	require.EqualValues(t, 0, settle("b", time.Second))
	require.EqualValues(t, 1, settle("c", 999*time.Millisecond))

	q.do("DEL", ":wake")
	q.wait("d", "e", "f")
	leases = q.claim(3)
	q.do("DEL", ":wake")
	var jobs []lua.Settlement
	for id, wait := range map[string]time.Duration{"d": time.Hour, "e": 998 * time.Millisecond, "f": time.Minute} {
		jobs = append(jobs, lua.Settlement{Outcome: lua.Defer, ID: id, Token: leases.Token, Wait: wait})
	}
	q.settle(jobs...)
	require.EqualValues(t, 1, q.number("LLEN :wake"), "the earliest of them counts")
}

// refused fails unless each settlement of the lease is refused and changes nothing.
func (q *queue) refused(s lua.Settlement) {
	q.Helper()
	for _, outcome := range []string{lua.Complete, lua.Retry, lua.Defer, lua.HandBack, lua.DeadLetter} {
		for _, wait := range []time.Duration{0, time.Minute} {
			s.Outcome, s.Wait, s.Text = outcome, wait, "text"
			q.do("DEL", ":settled:"+process)
			before := q.digest()
			lost, err := q.trySettle(s)
			require.NoError(q, err)
			require.Equal(q, []bool{true}, lost, outcome)
			q.do("DEL", ":settled:"+process)
			require.Equal(q, before, q.digest(), outcome)
		}
	}
	before := q.digest()
	lost, err := lua.Extend(q.ctx(), q.client, q.keys, time.Hour, []lua.Settlement{s})
	require.NoError(q, err)
	require.Equal(q, []bool{true}, lost)
	require.Equal(q, before, q.digest(), "extend")
}

func TestF07StaleTokenCannotSettle(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a", "b")
	stale := q.claimed("", 0, "")
	q.refused(lua.Settlement{ID: "a", Token: stale.Token + "x"})
	q.refused(lua.Settlement{ID: "a"})
	q.refused(lua.Settlement{ID: "b", Token: stale.Token})
	q.refused(lua.Settlement{ID: "none", Token: stale.Token})

	q.clock.Advance(lease - time.Millisecond)
	lost, err := lua.Extend(t.Context(), q.client, q.keys, lease, []lua.Settlement{stale})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, lost, "a lease holds until its last millisecond")

	q.clock.Advance(lease)
	q.refused(stale) // it has ended, though nobody reclaimed it
	require.Equal(t, "active", q.state("a"))

	fresh := q.claimed(lua.Complete, 0, "")
	require.Equal(t, "a", fresh.ID)
	q.refused(stale) // and now it is another's
	q.settle(fresh)
	q.refused(fresh)
	require.Equal(t, "unknown", q.state("a"))
}

func TestExtend(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a", "b", "c")
	leases := q.claim(3)
	jobs := []lua.Settlement{{ID: "a", Token: leases.Token}, {ID: "b", Token: "stale"}, {ID: "c", Token: leases.Token}, {ID: "d", Token: leases.Token}}
	q.clock.Advance(10 * time.Second)
	lost, err := lua.Extend(t.Context(), q.client, q.keys, lease, jobs)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true, false, true}, lost)
	for id, end := range map[string]time.Duration{"a": 40 * time.Second, "b": lease, "c": 40 * time.Second} {
		f, _ := q.found(id)
		require.Equal(t, time.UnixMilli(start).Add(end), f.At, id)
	}
	require.EqualValues(t, 3, q.number("ZCARD :active"))
	q.clock.Advance(20 * time.Second)
	require.Equal(t, []string{"b"}, q.claim(9).IDs)
}

// A call that is sent again gets the answers of the first and changes nothing, until another call of that process, or the
// time for which it is remembered has passed.
func TestF24SettleSentAgain(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	jobs := settled(q)
	call := func(process string, sequence int64) []bool {
		t.Helper()
		lost, err := lua.Settle(t.Context(), q.client, q.keys, process, sequence, lease, jobs)
		require.NoError(t, err)
		return lost
	}
	first := call("p", 7)
	require.Equal(t, []bool{false, false, false, false, false, false, false, false, true}, first)
	before := q.digest()
	require.Equal(t, first, call("p", 7))
	require.Equal(t, before, q.digest())

	all := []bool{true, true, true, true, true, true, true, true, true}
	require.Equal(t, all, call("other", 7), "another process")
	require.Equal(t, first, call("p", 7))
	require.Equal(t, all, call("p", 70), "a longer number")
	require.Equal(t, all, call("p", 7), "only the last call is remembered")
	require.Equal(t, lease.Milliseconds(), q.number("PTTL :settled:p"))
	q.clock.Advance(lease + time.Millisecond)
	require.EqualValues(t, 0, q.number("EXISTS :settled:p :settled:other"))
}

func TestOneLeaseSettlesOnceInABatch(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a")
	s := q.claimed(lua.Retry, time.Minute, "e")
	again := s
	again.Outcome = lua.Complete
	lost, err := q.trySettle(s, again, s)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true, true}, lost)
	f, record := q.found("a")
	require.Equal(t, "delayed", f.State)
	require.Equal(t, 1, record.Attempts)
}

func TestKeptJobsEnd(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	keep := func(id string, wait time.Duration) {
		q.wait(id)
		q.settle(q.claimed(lua.Complete, wait, "result"))
	}
	keep("a", time.Minute)
	keep("b", 2*time.Minute)
	keep("c", 2*time.Minute)
	require.Equal(t, [6]int64{5: 3}, q.counts())
	duplicate, err := lua.Enqueue(t.Context(), q.client, q.keys, []lua.NewJob{job("a")})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, duplicates(duplicate), "a kept job keeps its id")

	q.clock.Advance(time.Minute)
	require.Equal(t, "completed", q.state("a"), "its last millisecond")
	require.Equal(t, [6]int64{5: 3}, q.counts())
	q.clock.Advance(time.Millisecond)
	require.Equal(t, "unknown", q.state("a"))
	require.EqualValues(t, 0, q.number("EXISTS :result:a :job:a"))
	require.Equal(t, [6]int64{5: 2}, q.counts())
	require.Equal(t, []string{"b", "c"}, q.page("completed", 0, 9), "what has ended is not listed")
	require.Equal(t, []string{"c"}, q.page("completed", 1, 9))

	// The id is free again, though the list of kept jobs still has it.
	require.EqualValues(t, 3, q.number("ZCARD :completed"))
	q.wait("a")
	require.Equal(t, "wait", q.state("a"))
	states, err := remove(q, "a")
	require.NoError(t, err)
	require.Equal(t, []string{"wait"}, states)
	require.EqualValues(t, 0, q.number("LLEN :wait2"))

	q.do("ZADD", ":completed", fmt.Sprint(q.now()-1), "ended", fmt.Sprint(q.now()), "ending")
	keep("d", 0)
	require.Equal(t, []string{"ending", "b", "c"}, q.list("ZRANGE :completed 0 -1"), "settles trim it")
}

func TestNothingIsRememberedOfACompletedJob(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a")
	q.settle(q.claimed(lua.Retry, 0, "e"))
	q.settle(q.claimed(lua.Defer, 0, ""))
	q.settle(q.claimed(lua.HandBack, 0, ""))
	q.settle(q.claimed(lua.Complete, 0, "result"))
	q.do("DEL", ":wake", ":settled:"+process)
	for key := range q.contents() {
		assert.True(t, strings.HasSuffix(key, ":meta") || strings.HasSuffix(key, ":state"), key)
	}
}

// Arguments out of range count as the nearest that is right: nothing may fail once a script writes.
func TestSettleTimesOutOfRange(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a", "b")
	leases := q.claim(2)
	lost, err := lua.Settle(t.Context(), q.client, q.keys, "p", 1, 0, []lua.Settlement{
		{Outcome: lua.Complete, ID: "a", Token: leases.Token, Wait: -time.Second, Text: "result"},
		{Outcome: lua.Retry, ID: "b", Token: leases.Token, Wait: -time.Second},
	})
	require.NoError(t, err)
	require.Equal(t, []bool{false, false}, lost)
	require.Equal(t, "unknown", q.state("a"))
	f, _ := q.found("b")
	require.Equal(t, time.UnixMilli(start), f.At)
}

func TestSettleOfALostRecord(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{lua.Retry, lua.Defer, lua.HandBack, lua.DeadLetter} {
		q := clocked(t)
		q.wait("a")
		s := q.claimed(outcome, time.Minute, "text")
		q.do("DEL", ":job:a")
		q.settle(s)
		f, record := q.found("a")
		require.Equal(t, "dead", f.State)
		require.Equal(t, "missing\nthe server lost the record of this job", f.Failure)
		require.Equal(t, time.UnixMilli(start), record.Enqueued)
		require.Equal(t, [6]int64{4: 1}, q.counts())
	}
}

func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a", "b")
	first, second := q.claimed(lua.Complete, 0, ""), q.claimed("done", 0, "")
	err := q.unchanged(func() error { _, err := q.trySettle(first, second); return err })
	require.ErrorContains(t, err, "emq: settle: an outcome is none of complete, retry, defer, back, dead")
}

func TestSettleOnAnotherLayout(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a")
	s := q.claimed(lua.Complete, 0, "")
	q.do("HSET", ":meta", "max", "garbage")
	q.do("HSET", ":meta", "layout", "2")
	_, err := q.trySettle(s)
	var config *lua.ConfigError
	require.ErrorAs(t, err, &config)
	q.do("HSET", ":meta", "layout", "1")
	q.settle(s) // a limit that is misconfigured closes the claim only
}
