package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// A key over budget does not hold up the others, and its jobs wait for it in a line.
func TestAKeyOverBudgetHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=1 by=chat")
	q.enqueue(alike("chat=a", "a1", "a2", "a3")...)
	q.enqueue(alike("chat=b", "b1", "b2")...)
	q.enqueue(job("free"))
	c := q.claim(10)
	require.Equal(t, []string{"a1", "b1", "free"}, c.IDs)
	require.Equal(t, []lua.SentBack{
		{ID: "a2", By: lua.Blocker{Limit: "chat", Value: "a"}, RetryAfter: time.Second},
		{ID: "a3", By: lua.Blocker{Limit: "chat", Value: "a"}, RetryAfter: time.Second},
		{ID: "b2", By: lua.Blocker{Limit: "chat", Value: "b"}, RetryAfter: time.Second},
	}, c.SentBack)
	require.Equal(t, time.Second, c.Next)
	f, record := q.found("a2")
	assert.Equal(t, [2]string{"delayed", "limit"}, [2]string{f.State, f.By})
	assert.Equal(t, c.Now.Add(time.Second), f.At)
	assert.Equal(t, 1, record.Deferrals)
	assert.Zero(t, record.Attempts)
	require.Equal(t, [6]int64{0, 3, 3, 3, 0, 0}, q.counts())
	require.Empty(t, q.claim(10).IDs)

	q.clock.Advance(time.Second)
	c = q.claim(10)
	require.Equal(t, []string{"a2", "b2"}, c.IDs)
	require.Empty(t, c.SentBack, "a job that stays in its line is not sent back again")
	q.clock.Advance(time.Second)
	require.Equal(t, []string{"a3"}, q.claim(10).IDs)
	require.Equal(t, [6]int64{0, 6, 0, 0, 0, 0}, q.counts())
	require.Empty(t, q.list("KEYS "+q.keys.Prefix()+"line*"))
	require.EqualValues(t, 0, q.number("EXISTS :tally"))
}

// Jobs that come later do not pass those in line, and jobs of another priority stand there by their place.
func TestALineIsServedInOrderOfPlace(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=1 by=chat")
	q.enqueue(alike("chat=a", "j1", "j2", "j3")...)
	require.Equal(t, []string{"j1"}, q.claim(9).IDs)
	q.enqueue(alike("chat=a", "j4")...)
	first := carries("urgent", "chat=a")
	first.Priority = 1
	q.enqueue(first)
	for _, id := range []string{"urgent", "j2", "j3", "j4"} {
		q.clock.Advance(time.Second)
		require.Equal(t, []string{id}, q.claim(9).IDs)
	}
}

// A heavy head waits for its cost and is not passed by lighter jobs.
func TestAHeavyHeadIsNotPassed(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set tpm max=10 window=1000 algorithm=token_bucket unit=tokens")
	q.enqueue(carries("first", "tokens:6"), carries("heavy", "tokens:10"), carries("light", "tokens:1"), carries("none", ""))
	c := q.claim(9)
	require.Equal(t, []string{"first", "none"}, c.IDs, "a job that spends nothing there is not blocked")
	require.Equal(t, 600*time.Millisecond, c.SentBack[0].RetryAfter)
	q.clock.Advance(500 * time.Millisecond)
	require.Empty(t, q.claim(9).IDs)
	q.clock.Advance(100 * time.Millisecond)
	require.Equal(t, []string{"heavy"}, q.claim(9).IDs)
	q.clock.Advance(100 * time.Millisecond)
	require.Equal(t, []string{"light"}, q.claim(9).IDs)
}

// A head that another bucket blocks moves to that bucket's line at its place, and its old line goes on.
func TestAHeadBlockedElsewhereMovesAndItsLineGoesOn(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=1 by=chat")
	q.limit("set model max=1 window=5000 by=model")
	q.enqueue(carries("x", "chat=a"), carries("both", "chat=a model=m"), carries("y", "chat=a"))
	require.Equal(t, []string{"x"}, q.claim(9).IDs)
	require.Equal(t, "chat:a", q.in("both"))
	q.enqueue(carries("m1", "model=m"), carries("m2", "model=m"))
	require.Equal(t, []string{"m1"}, q.claim(9).IDs)
	require.Equal(t, "model:m", q.in("m2"))

	q.clock.Advance(time.Second)
	c := q.claim(9)
	require.Equal(t, []string{"y"}, c.IDs)
	require.Empty(t, c.SentBack, "a move is no sending back")
	require.Equal(t, "model:m", q.in("both"))
	require.Equal(t, []string{"both", "m2"}, q.list("ZRANGE :line:model:m 0 -1"), "at its place")
	q.clock.Advance(4 * time.Second)
	require.Equal(t, []string{"both"}, q.claim(9).IDs)
	q.clock.Advance(5 * time.Second)
	require.Equal(t, []string{"m2"}, q.claim(9).IDs)
}

// All that a job asks for is granted, or nothing is spent.
func TestF84AllOrNothing(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=5 by=chat")
	q.limit("set model max=1 by=model")
	q.do("HSET", ":meta", "max", "9")
	q.enqueue(alike("chat=a model=m", "a1", "a2", "a3")...)
	require.Equal(t, []string{"a1"}, q.claim(9).IDs)
	assert.EqualValues(t, 1, q.bucket("chat", "a").Used)
	assert.EqualValues(t, 1, q.bucket("model", "m").Used)
	assert.Equal(t, "1", q.text("GET :limiter"), "a job in a line spends nothing of the queue's own limit")
}

// A job stands in the line with the latest retry-after of those that block it.
func TestAJobStandsInTheLineWithTheLatestRetry(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"chat", "model"} {
		q := clocked(t)
		q.limit("set chat max=1 by=chat")
		q.limit("set model max=1 by=model")
		q.limit("set " + slow + " window=9000")
		q.enqueue(alike("chat=a model=m", "a1", "a2")...)
		c := q.claim(9)
		require.Equal(t, []string{"a1"}, c.IDs)
		require.Equal(t, slow, c.SentBack[0].By.Limit)
		require.Equal(t, 9*time.Second, c.SentBack[0].RetryAfter)
	}
}

// A job that no budget could ever grant is refused at enqueue, by the rule of its own key value.
func TestTooHeavyJobsAreRefusedAtEnqueue(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set tpm max=10 by=tenant unit=tokens", lua.NamedValue{Value: "big", Max: "100"}, lua.NamedValue{Value: "all", Max: "0"})
	answers, err := lua.Enqueue(t.Context(), q.client, q.keys, []lua.NewJob{
		carries("a", "tenant=a tokens:11"), carries("b", "tenant=a tokens:10"), carries("c", "tenant=big tokens:100"),
		carries("d", "tenant=big tokens:101"), carries("e", "tenant=all tokens:9007199254740991"), carries("f", "tokens:99"),
	})
	require.NoError(t, err)
	require.Equal(t, []lua.Enqueued{
		{Heavy: &lua.Heavy{Limit: "tpm", Unit: "tokens", Cost: 11, Most: 10}}, {}, {},
		{Heavy: &lua.Heavy{Limit: "tpm", Unit: "tokens", Cost: 101, Most: 100}}, {}, {},
	}, answers)
	require.Equal(t, "unknown", q.state("a"))
	require.Equal(t, []string{"b", "c", "e", "f"}, q.claim(9).IDs)
}

// A job that a lowered limit makes too heavy goes to dead with the reason when it is met at the head, and its line goes on.
func TestNeverFittingJobsDieAtTheHead(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set tpm max=10 by=tenant unit=tokens")
	q.enqueue(carries("a", "tenant=x tokens:10"), carries("heavy", "tenant=x tokens:9"), carries("light", "tenant=x tokens:2"))
	require.Equal(t, []string{"a"}, q.claim(9).IDs)
	q.enqueue(carries("waiting", "tenant=y tokens:9"))
	q.limit("set tpm max=5")
	c := q.claim(9)
	require.Empty(t, c.IDs)
	require.Equal(t, 2, c.Died)
	for _, id := range []string{"heavy", "waiting"} {
		f, record := q.found(id)
		require.Equal(t, "dead", f.State)
		require.Equal(t, "never_fits\ncost tokens=9 can never be granted: limit tpm for tenant="+record.Header.Keys["tenant"]+
			" grants at most 5 at once", f.Failure)
	}
	q.clock.Advance(time.Second)
	require.Equal(t, []string{"light"}, q.claim(9).IDs)
}

// A batch that finds no budget left stops after one job that a limit for all jobs refuses; the lines wait for that too.
func TestALimitForAllStopsTheLines(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set all max=1 window=3000")
	q.limit("set chat max=1 by=chat")
	q.enqueue(alike("chat=a", "a1", "a2", "a3")...)
	c := q.claim(9)
	require.Equal(t, []string{"a1"}, c.IDs)
	require.Equal(t, []lua.SentBack{{ID: "a2", By: lua.Blocker{Limit: "all"}, RetryAfter: 3 * time.Second}}, c.SentBack)
	require.Equal(t, 3*time.Second, c.Retry)
	q.clock.Advance(3 * time.Second)
	require.Equal(t, []string{"a2"}, q.claim(9).IDs)
	require.Empty(t, q.in("a3"))
	q.clock.Advance(3 * time.Second)
	require.Equal(t, []string{"a3"}, q.claim(9).IDs)
}

// Work per job does not grow with the jobs that wait for a key.
func TestAClaimDoesNotTouchThoseInLine(t *testing.T) {
	t.Parallel()
	var few int
	for _, n := range []int{10, 1000} {
		s := newSpy(t)
		s.limit("set chat max=1 by=chat")
		s.enqueue(alike("chat=a", ids(n)...)...)
		require.Len(t, s.granted(1000), 1)
		s.clock.Advance(time.Second)
		size := 0
		for _, command := range s.watch(func() { require.Len(t, s.claim(1).IDs, 1) }) {
			size += len(command)
		}
		if few == 0 {
			few = size
		}
		require.Equal(t, few, size)
	}
}

// Values of keys may hold any bytes; each has a bucket of its own, and the answers name it.
func TestKeyValuesOfAnyBytes(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=1 by=chat")
	values := []string{"a", "a:b", "a%3Ab", "%", "a b", " ", "\x00", "a\x00", "é", "\xff", "a=b", "a|b", "a\nb", "~2", "*", "=", "{x}", "a~2"}
	for i, value := range values {
		for _, n := range []string{"x", "y"} {
			q.enqueue(lua.NewJob{ID: fmt.Sprint(n, i), Priority: 2, Body: lua.Body(lua.Header{Keys: map[string]string{"chat": value}}, nil)})
		}
	}
	c := q.claim(100)
	require.Len(t, c.IDs, len(values))
	require.Len(t, c.SentBack, len(values))
	for i, back := range c.SentBack {
		require.Equal(t, lua.SentBack{ID: fmt.Sprint("y", i), By: lua.Blocker{Limit: "chat", Value: values[i]}, RetryAfter: time.Second}, back)
		require.Equal(t, "delayed", q.state(back.ID))
		require.EqualValues(t, 1, q.bucket("chat", values[i]).Used)
	}
	all, err := lua.ReadBudgets(t.Context(), q.client, q.keys, 100, nil)
	require.NoError(t, err)
	got := []string{}
	for _, b := range all.Limits[0].Buckets {
		got = append(got, b.Value)
	}
	require.ElementsMatch(t, values, got)
	q.clock.Advance(time.Second)
	require.Len(t, q.claim(100).IDs, len(values))
}

// A heavy head is deleted: the next in line can run at once, so somebody is woken.
func TestDeletingAHeadWakes(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set tpm max=10 unit=tokens")
	q.enqueue(
		lua.NewJob{ID: "first", Priority: 2, Body: lua.Body(lua.Header{Cost: map[string]int64{"tokens": 5}}, nil)},
		lua.NewJob{ID: "heavy", Priority: 2, Body: lua.Body(lua.Header{Cost: map[string]int64{"tokens": 9}}, nil)},
		lua.NewJob{ID: "light", Priority: 2, Body: lua.Body(lua.Header{Cost: map[string]int64{"tokens": 5}}, nil)})
	require.Equal(t, []string{"first"}, q.claim(5).IDs)
	q.do("DEL", ":wake")
	_, err := remove(q, "light")
	require.NoError(t, err)
	q.enqueue(lua.NewJob{ID: "last", Priority: 2, Body: lua.Body(lua.Header{Cost: map[string]int64{"tokens": 5}}, nil)})
	require.Empty(t, q.claim(5).IDs, "the heavy one is not passed")
	q.do("DEL", ":wake")
	_, err = remove(q, "heavy")
	require.NoError(t, err)
	require.EqualValues(t, 1, q.number("LLEN :wake"))
	require.Equal(t, []string{"last"}, q.claim(5).IDs)
}
