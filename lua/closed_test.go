package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// A closed queue grants nothing until its time: one job is sent back, without cost of an attempt, and nothing is spent.
func TestAClosedQueueGrantsNothing(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.do("HSET", ":meta", "max", "5", "duration", "20000")
	q.wait("a", "b", "c")
	require.Equal(t, []string{"a"}, q.claim(1).IDs)
	q.close("", "", "+1000")
	c := q.claim(9)
	require.Equal(t, "limited", c.Word)
	require.Equal(t, time.Second, c.Retry)
	require.Equal(t, []lua.SentBack{{ID: "b", By: lua.Blocker{Closed: true}, RetryAfter: time.Second}}, c.SentBack)
	_, record := q.found("b")
	require.Zero(t, record.Attempts)
	require.Equal(t, "1", q.text("GET :limiter"), "the count stays")
	q.clock.Advance(999 * time.Millisecond)
	require.Empty(t, q.claim(9).IDs)
	q.clock.Advance(time.Millisecond)
	require.Equal(t, []string{"b", "c"}, q.claim(9).IDs, "the order too")
	require.Equal(t, "3", q.text("GET :limiter"))
	require.EqualValues(t, 19_000, q.number("PTTL :limiter"))
}

// A close only ever lengthens.
func TestACloseOnlyLengthens(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	for i, when := range []string{"+1000", "+500", "@1800000002000", "@1799999999999", "+2000"} {
		before, till, err := lua.Close(t.Context(), q.client, q.keys, "close", "model", "m", when, when)
		require.NoError(t, err)
		want := []int64{1000, 1000, 2000, 2000, 2000}
		require.Equal(t, start+want[i], till.UnixMilli(), when)
		require.Equal(t, i > 0, !before.IsZero())
	}
	all, err := lua.ReadBudgets(t.Context(), q.client, q.keys, 0, nil)
	require.NoError(t, err)
	require.Equal(t, []lua.Closed{{Key: "model", Value: "m", Until: time.UnixMilli(start + 2000), Reason: "@1800000002000"}}, all.Closed)
	q.clock.Advance(3 * time.Second)
	before, till, err := lua.Close(t.Context(), q.client, q.keys, "close", "model", "m", "+100", "again")
	require.NoError(t, err)
	require.True(t, before.IsZero(), "the first is over")
	require.Equal(t, int64(start+3100), till.UnixMilli())
}

// A key value that is closed holds its jobs in a line, and no others; it opens at its time, or by hand.
func TestAClosedKeyValueHoldsItsJobsAlone(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"time", "reopen"} {
		q := clocked(t)
		q.limit("set chat max=1 by=chat")
		q.close("model", "a:b c", "+5000")
		body := func(id, model, chat string) lua.NewJob {
			return lua.NewJob{ID: id, Priority: 2, Body: lua.Body(lua.Header{Keys: map[string]string{"model": model, "chat": chat}}, nil)}
		}
		q.enqueue(body("m1", "a:b c", "1"), body("m2", "a:b c", "2"), body("other", "a", "1"), body("m3", "a:b c", "1"), job("none"))
		c := q.claim(9)
		require.Equal(t, []string{"other", "none"}, c.IDs)
		require.Len(t, c.SentBack, 3)
		for i, id := range []string{"m1", "m2", "m3"} {
			by := lua.Blocker{Key: "model", Value: "a:b c", Closed: true}
			require.Equal(t, lua.SentBack{ID: id, By: by, RetryAfter: 5 * time.Second}, c.SentBack[i])
			require.Equal(t, "=model:a%3Ab%20c", q.in(id))
		}
		f, record := q.found("m2")
		require.Equal(t, [2]string{"delayed", "limit"}, [2]string{f.State, f.By})
		require.Equal(t, 1, record.Deferrals)
		q.do("DEL", ":wake")
		if how == "time" {
			q.clock.Advance(4999 * time.Millisecond)
			require.Empty(t, q.claim(9).IDs)
			q.clock.Advance(time.Millisecond)
		} else {
			q.clock.Advance(time.Second)
			q.reopen("model", "a:b c")
			require.EqualValues(t, 1, q.number("LLEN :wake"))
		}
		require.Equal(t, []string{"m1", "m2"}, q.claim(9).IDs, how)
		require.Equal(t, "chat:1", q.in("m3"), "judged by its limit")
	}
}

func TestReopenTheQueue(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a", "b")
	q.close("", "", "+3600000")
	require.Empty(t, q.claim(9).IDs)
	q.do("DEL", ":wake")
	q.enqueue(job("c"))
	q.claim(9)
	q.reopen("", "")
	require.EqualValues(t, 1, q.number("LLEN :wake"))
	require.Equal(t, []string{"a", "b", "c"}, q.claim(9).IDs)
	q.reopen("", "")
	q.reopen("model", "never closed")
}

// A handler that meets a 429 closes the queue, or the value of a key of its job; the job waits at its place.
func TestLimitedClosesWhatTheJobAskedFor(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.enqueue(alike("model=m", "m1", "m2")...)
	q.enqueue(alike("model=n", "n1")...)
	c := q.claim(1)
	q.settle(lua.Settlement{Outcome: lua.Limited, ID: "m1", Token: c.Token, Wait: 2 * time.Second, Text: "model\n429"})
	_, record := q.found("m1")
	require.Zero(t, record.Attempts)
	require.Equal(t, 1, record.Deferrals)
	require.Equal(t, "wait", q.state("m1"))
	c = q.claim(9)
	require.Equal(t, []string{"n1"}, c.IDs)
	q.settle(lua.Settlement{Outcome: lua.Limited, ID: "n1", Token: c.Token, Wait: time.Second, Text: "\nslow"})
	require.Equal(t, "limited", q.claim(9).Word, "the queue is closed")
	q.clock.Advance(time.Second)
	require.Equal(t, []string{"n1"}, q.claim(9).IDs)
	q.clock.Advance(time.Second)
	require.Equal(t, []string{"m1", "m2"}, q.claim(9).IDs)

	q = q.another(t)
	q.enqueue(job("a"))
	q.settle(lua.Settlement{Outcome: lua.Limited, ID: "a", Token: q.claim(1).Token, Wait: time.Second, Text: "model\n429"})
	require.Equal(t, []string{"a"}, q.claim(9).IDs, "a job without that key closes nothing")
}

// After the clock stepped back an hour, what was closed stays so for its own length at most.
func TestAClosedQueueDoesNotOutliveAStepOfTheClock(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "model"} {
		q := clocked(t)
		q.limit("set chat max=1 by=chat")
		q.enqueue(alike("model=m chat=1", "a", "b")...)
		q.claim(0)
		q.close(key, "m", "+3000")
		require.Empty(t, q.granted(9))
		q.clock.Advance(-time.Hour)
		require.Empty(t, q.granted(9))
		q.clock.Advance(3 * time.Second)
		require.Equal(t, []string{"a"}, q.granted(9), key)
		q.clock.Advance(time.Second)
		require.Equal(t, []string{"b"}, q.granted(9), key)
	}
}

// Nor does a close that no job waited for when the clock stepped back.
func TestACloseWithoutLinesDoesNotOutliveAStepOfTheClock(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.claim(0)
	q.close("model", "m", "+3000")
	q.enqueue(carries("a", "model=m"))
	q.clock.Advance(-time.Hour)
	require.Empty(t, q.granted(9))
	q.clock.Advance(3 * time.Second)
	require.Equal(t, []string{"a"}, q.granted(9))
}

// Closes by handlers that have ended are forgotten by the settles that follow.
func TestEndedClosesAreForgottenBySettles(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	const n = 500
	for i := range n {
		q.enqueue(carries(fmt.Sprint("j", i), fmt.Sprint("tenant=", i)))
	}
	c := q.claim(n)
	var limited []lua.Settlement
	for _, id := range c.IDs {
		limited = append(limited, lua.Settlement{Outcome: lua.Limited, ID: id, Token: c.Token, Wait: time.Millisecond, Text: "tenant\n429"})
	}
	q.settle(limited...)
	require.EqualValues(t, n, q.number("ZCARD :closed"))
	q.clock.Advance(time.Millisecond)
	for range 4 {
		q.settle(q.claimed(lua.Complete, 0, ""))
	}
	require.EqualValues(t, 0, q.number("ZCARD :closed"))
	require.EqualValues(t, 0, q.number("HLEN :reasons"))
}
