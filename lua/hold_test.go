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

// moved makes a job one that went between lines often enough to hold what it asks for, when it is refused next.
func (q *queue) moved(id string) {
	q.Helper()
	q.do("SETRANGE", ":job:"+id, "32", "3")
}

// holder is the job for which units of a bucket are held; "" for none.
func (q *queue) holder(bucket string) string {
	q.Helper()
	words := strings.Fields(q.text("GET :hold:" + bucket))
	if len(words) == 0 || q.number("PTTL :hold:"+bucket) == 0 { // its last millisecond: it is over
		return ""
	}
	require.Len(q, words, 5)
	return words[4]
}

// pair gives the queue two limits of one a second by key, a and b.
func pair(t *testing.T) *queue {
	t.Helper()
	q := clocked(t)
	q.limit("set a max=1 by=a")
	q.limit("set b max=1 by=b")
	return q
}

// A job under two buckets that open in turn is granted although others always want both.
func TestAHoldEndsStarvation(t *testing.T) {
	t.Parallel()
	q := pair(t)
	half := 500 * time.Millisecond
	q.enqueue(alike("a=1", "a0")...)
	require.Equal(t, []string{"a0"}, q.claim(9).IDs)
	q.clock.Advance(half)
	q.enqueue(alike("b=1", "b0")...)
	q.enqueue(alike("a=1 b=1", "both")...)
	q.enqueue(alike("a=1", "a1", "a2", "a3", "a4", "a5")...)
	q.enqueue(alike("b=1", "b1", "b2", "b3", "b4", "b5")...)
	require.Equal(t, []string{"b0"}, q.claim(9).IDs)
	for i, want := range []string{"a1", "b1", "a2", ""} {
		require.Empty(t, q.holder("a:1")+q.holder("b:1"), "step %d", i)
		q.clock.Advance(half)
		require.Equal(t, want, strings.Join(q.claim(9).IDs, " "), "step %d", i)
	}
	require.Equal(t, "both", q.holder("a:1"))
	require.Equal(t, "both", q.holder("b:1"), "at its third move it holds what it asks for")
	q.clock.Advance(half)
	require.Equal(t, []string{"both"}, q.claim(9).IDs)
	q.clock.Advance(time.Second)
	require.Equal(t, []string{"a3", "b2"}, q.claim(9).IDs)
}

// held has job x hold both buckets for half a second: a refuses it, b would grant.
func held(t *testing.T) *queue {
	t.Helper()
	q := pair(t)
	q.enqueue(carries("a0", "a=1"))
	require.Equal(t, []string{"a0"}, q.claim(9).IDs)
	q.clock.Advance(500 * time.Millisecond)
	q.enqueue(carries("x", "a=1 b=1"), carries("b1", "b=1"))
	q.moved("x")
	c := q.claim(9)
	require.Empty(t, c.IDs)
	require.Equal(t, []string{"x", "b1"}, []string{c.SentBack[0].ID, c.SentBack[1].ID})
	require.Equal(t, "x", q.holder("a:1"))
	require.Equal(t, "x", q.holder("b:1"))
	require.Equal(t, 500*time.Millisecond, c.SentBack[1].RetryAfter, "the end of the hold")
	return q
}

func TestAHoldKeepsUnitsFromLaterJobs(t *testing.T) {
	t.Parallel()
	q := held(t)
	earlier := carries("earlier", "b=1")
	earlier.Priority = 1
	q.enqueue(earlier)
	require.Equal(t, []string{"earlier"}, q.claim(9).IDs, "an earlier job may spend them")
}

func TestAHoldEndsByItsTime(t *testing.T) {
	t.Parallel()
	q := held(t)
	_, err := remove(q, "x")
	require.NoError(t, err)
	q.clock.Advance(499 * time.Millisecond)
	require.Empty(t, q.claim(9).IDs)
	q.clock.Advance(time.Millisecond)
	require.Equal(t, []string{"b1"}, q.claim(9).IDs)
	require.Empty(t, q.holder("b:1"))
}

func TestAnEarlierJobTakesTheHoldOver(t *testing.T) {
	t.Parallel()
	q := held(t)
	earlier := carries("earlier", "a=1 b=1")
	earlier.Priority = 1
	q.enqueue(earlier)
	q.moved("earlier")
	require.Empty(t, q.claim(9).IDs)
	require.Equal(t, "earlier", q.holder("a:1"))
	require.Equal(t, "earlier", q.holder("b:1"))
	later := carries("later", "a=1 b=1")
	q.enqueue(later)
	q.moved("later")
	require.Empty(t, q.claim(9).IDs)
	require.Equal(t, "earlier", q.holder("a:1"), "a later one does not")
	q.clock.Advance(500 * time.Millisecond)
	require.Equal(t, []string{"earlier"}, q.claim(9).IDs)
}

func TestAGrantDropsTheHold(t *testing.T) {
	t.Parallel()
	q := held(t)
	q.limit("reset a", lua.NamedValue{Value: "1"})
	require.Equal(t, []string{"x"}, q.granted(9))
	require.Empty(t, q.holder("a:1")+q.holder("b:1"))
}

// A job behind another in a line holds nothing.
func TestAJobBehindAnotherHoldsNothing(t *testing.T) {
	t.Parallel()
	q := pair(t)
	q.enqueue(carries("a0", "a=1"))
	require.Equal(t, []string{"a0"}, q.claim(9).IDs)
	q.enqueue(carries("first", "a=1"), carries("second", "a=1 b=1"), carries("b1", "b=1"))
	q.moved("second")
	require.Equal(t, []string{"b1"}, q.claim(9).IDs)
	require.Empty(t, q.holder("a:1")+q.holder("b:1"))
}

// A bucket whose window is shorter than the wait is not held.
func TestAShortWindowIsNotHeld(t *testing.T) {
	t.Parallel()
	q := pair(t)
	q.limit("set b window=100")
	q.enqueue(carries("a0", "a=1"))
	require.Equal(t, []string{"a0"}, q.claim(9).IDs)
	q.enqueue(carries("x", "a=1 b=1"), carries("b1", "b=1"))
	q.moved("x")
	require.Equal(t, []string{"b1"}, q.claim(9).IDs)
	require.Equal(t, "x", q.holder("a:1"))
	require.Empty(t, q.holder("b:1"))
}

func TestDeathDropsAHold(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set a max=1 by=a")
	q.limit("set tpm max=10 unit=tokens")
	q.enqueue(carries("a0", "a=1"))
	require.Equal(t, []string{"a0"}, q.claim(9).IDs)
	q.enqueue(carries("x", "a=1 tokens:8"), carries("y", "tokens:5"))
	q.moved("x")
	require.Empty(t, q.claim(9).IDs)
	require.Equal(t, "x", q.holder("tpm"))
	q.limit("set tpm max=6")
	c := q.claim(9)
	if len(c.IDs) == 0 {
		c = q.claim(9)
	}
	require.Equal(t, []string{"y"}, c.IDs)
	require.Equal(t, "dead", q.state("x"))
	require.Empty(t, q.holder("tpm")+q.holder("a:1"))
}

// A concurrency limit is held for one lease at most.
func TestAConcurrencyLimitIsHeldForALease(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set flight max=1 by=a algorithm=concurrency")
	q.limit("set b max=1 by=b window=30000")
	q.enqueue(carries("a0", "a=1"))
	require.Equal(t, []string{"a0"}, q.claim(9).IDs)
	q.enqueue(carries("x", "a=1 b=1"), carries("b1", "b=1"))
	q.moved("x")
	require.Empty(t, q.claim(9).IDs)
	require.Equal(t, lease.Milliseconds(), q.number("PTTL :hold:flight:1"))
	require.Equal(t, "x", q.holder("b:1"))
}

// Others get what a hold keeps within two windows, even when the clock steps back an hour and the job that held it is gone.
func TestAHoldDoesNotOutliveAStepOfTheClock(t *testing.T) {
	t.Parallel()
	q := held(t)
	_, err := remove(q, "x")
	require.NoError(t, err)
	q.clock.Advance(-time.Hour)
	q.granted(9)
	q.clock.Advance(time.Second)
	q.granted(9)
	q.clock.Advance(time.Second)
	q.granted(9)
	assert.Equal(t, "active", q.state("b1"))
}

// The same without the rule: the job under both buckets is never granted, though many younger ones are.
func TestWithoutHoldsAJobStarves(t *testing.T) {
	t.Parallel()
	q := pair(t)
	half := 500 * time.Millisecond
	q.enqueue(alike("a=1", "a0")...)
	require.Equal(t, []string{"a0"}, q.claim(9).IDs)
	q.clock.Advance(half)
	q.enqueue(alike("b=1", "b0")...)
	q.enqueue(alike("a=1 b=1", "both")...)
	granted := 0
	for i := range 40 {
		q.enqueue(alike("a=1", fmt.Sprint("a", i+1))...)
		q.enqueue(alike("b=1", fmt.Sprint("b", i+1))...)
		ids, err := lua.ClaimWithoutHolds(t.Context(), q.client, q.keys, fmt.Sprint("n", i), 9, lease)
		require.NoError(t, err)
		require.NotContains(t, ids, "both", "half second %d", i)
		require.Len(t, ids, 1)
		granted++
		q.clock.Advance(half)
	}
	require.Equal(t, 40, granted)
	q.claim(0)
	require.Equal(t, "both", q.holder("a:1"), "with the rule it is its turn next")
}
