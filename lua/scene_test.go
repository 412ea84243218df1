package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// lined fills a queue that has limits by name so that a claim finds each kind of line: asleep, open, stale, closed; with a head that is
// granted, refused, moves, holds, dies.
func lined(q *queue) {
	q.clock.Set(start - 1000)
	q.limit("set chat max=1 by=chat")
	q.limit("set model max=1 by=model window=5000")
	q.limit("set flight max=2 by=tenant algorithm=concurrency")
	q.limit("set tpm max=10 by=org unit=tokens algorithm=token_bucket", lua.NamedValue{Value: "p", Max: "10"})
	q.limit("set upm max=10 by=org unit=units algorithm=sliding_log")
	q.limit("set bits max=10 unit=bits algorithm=sliding_window_counter")
	q.limit("set drip max=1 by=drip algorithm=leaky_bucket")
	q.limit("set shade max=1 by=chat mode=shadow")
	q.limit("set shade.flight max=1 by=tenant mode=shadow algorithm=concurrency")
	q.close("region", "r", "+6000")
	q.enqueue(carries("a1", "chat=a"), carries("a2", "chat=a"), carries("a3", "chat=a"),
		carries("b1", "chat=b"), carries("mover", "chat=b model=m"), carries("b2", "chat=b"), carries("m1", "model=m"), carries("m2", "model=m"),
		carries("h1", "chat=h"), carries("holder", "chat=h model=n"), carries("n1", "model=n"),
		carries("t1", "tenant=t"), carries("t2", "tenant=t"), carries("t3", "tenant=t"),
		carries("u1", "tenant=u"), carries("u2", "tenant=u"), carries("u3", "tenant=u"),
		carries("k1", "org=o tokens:10 units:9 bits:3"), carries("k2", "org=o tokens:5 units:5 bits:4"), carries("k3", "org=o tokens:1 units:1"),
		carries("p1", "org=p tokens:10"), carries("heavy", "org=p tokens:9"), carries("p3", "org=p tokens:1"),
		carries("d1", "drip=d"), carries("d2", "drip=d"), carries("r1", "region=r"), carries("r2", "region=r chat=a"),
		carries("o1", "model=o"), carries("o2", "model=o"), carries("s1", "model=s"), carries("s2", "model=s"))
	c := q.claim(100)
	require.Equal(q, []string{"a1", "b1", "m1", "h1", "n1", "t1", "t2", "u1", "u2", "k1", "p1", "d1", "o1", "s1"}, c.IDs)
	q.do("HSET", ":overrides", "tpm:p", "5 1000 0")
	q.do("SETRANGE", ":job:holder", "32", "2")
	for bucket, id := range map[string]string{"chat:a": "a2", "model:n": "p3"} {
		_, record := q.found(id)
		q.do("SET", ":hold:"+bucket, fmt.Sprintf("%d 1 %d %d %s", record.Place(), start, start+900, id), "PX", "1900")
	}
	q.do("HSET", ":state", "held", fmt.Sprint(start+900))
	for bucket, set := range map[string]string{"model:o": ":open", "model:s": ":stale"} {
		place := q.text("ZSCORE :line:" + bucket + " " + bucket[len("model:"):] + "2")
		q.do("ZREM", ":lines", bucket)
		q.do("ZADD", set, place, bucket)
	}
	for _, id := range []string{"t1", "u1", "u2"} {
		for _, set := range []string{":active", ":limiter:flight:" + id[:1], ":limiter:shade.flight:" + id[:1]} {
			q.do("ZADD", set, fmt.Sprint(start), id+"|"+c.Token)
		}
	}
	q.do("DEL", ":job:u1")
	q.enqueue(carries("new", "chat=c"), carries("c2", "chat=c"), carries("n2", "model=n chat=q"), carries("free", ""))
	q.do("HSET", ":meta", "audit", "1000")
	q.do("DEL", ":wake")
	q.clock.Set(start)
}

// The scene is what it is meant to be.
func TestLinedScene(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	lined(q)
	require.Equal(t, "=region:r", q.in("r1"))
	require.Equal(t, "flight:t", q.in("t3"))
	c := q.claim(100)
	require.Equal(t, []string{"a2", "b2", "t1", "u2", "u3", "k2", "k3", "p3", "d2", "new", "free"}, c.IDs)
	require.Equal(t, 2, c.Reclaimed)
	require.Equal(t, 2, c.Died, "heavy, and u1 without a record")
	require.Equal(t, "model:m", q.in("mover"))
	require.Equal(t, "model:n", q.in("holder"))
	require.Equal(t, "holder", q.holder("model:n"), "it took the hold of a later job over")
	require.Empty(t, q.holder("chat:a"))
	require.Contains(t, q.list("HKEYS :tally"), "shadow shade.flight")
}

// claimingLined claims k jobs of such a queue that change made different.
func claimingLined(k int, change func(q *queue)) scene {
	return func(q *queue) func() error {
		lined(q)
		change(q)
		q.do("DEL", ":wake", ":audit")
		return func() error { return second(q.tryClaim(k)) }
	}
}

// callingLined makes one call on such a queue.
func callingLined(call func(q *queue) error) scene {
	return func(q *queue) func() error {
		lined(q)
		return func() error { return call(q) }
	}
}

// naming changes a limit of such a queue.
func naming(line string, values ...lua.NamedValue) scene {
	return callingLined(func(q *queue) error {
		_, known, err := q.tryLimit(line, values...)
		require.True(q, known || err != nil)
		return err
	})
}

func closing(op, key, value, when string) scene {
	return callingLined(func(q *queue) error {
		_, _, err := lua.Close(q.ctx(), q.client, q.keys, op, key, value, when, "why")
		return err
	})
}

// far is a clock that stepped back an hour, with everything that it moved away.
func far(q *queue) {
	hour := fmt.Sprint(start + time.Hour.Milliseconds())
	q.do("HSET", ":state", "seen", hour)
	for _, member := range q.list("ZRANGE :active 0 -1") {
		q.do("ZADD", ":active", hour, member)
	}
	q.do("ZADD", ":closed", hour, "region:r", hour, "queue")
	q.do("HSET", ":reasons", "queue", "1000\nwhy")
}

// realCosts leaves jobs under leases whose real costs are other than those reserved, for each algorithm, and jobs that wait for them.
func realCosts(q *queue) func() error {
	units := []string{"fixed", "log", "counter", "token", "leaky"}
	for i, algorithm := range []string{"fixed_window", "sliding_log", "sliding_window_counter", "token_bucket", "leaky_bucket"} {
		q.limit("set l." + units[i] + " max=10 by=org unit=" + units[i] + " algorithm=" + algorithm)
	}
	q.limit("set flight max=2 by=tenant algorithm=concurrency")
	costs := "fixed:5 log:5 counter:5 token:5"
	q.enqueue(carries("less", "org=a tenant=t leaky:1 "+costs), carries("more", "org=b model=m "+costs), carries("none", "org=c tenant=t"),
		carries("wait.fixed", "org=a fixed:9"), carries("wait.log", "org=a log:9"), carries("wait.leaky", "org=a leaky:1"),
		carries("wait.place", "tenant=t"), carries("queue", ""))
	c := q.claim(9)
	require.Equal(q, []string{"less", "more", "none", "queue"}, c.IDs)
	q.do("HSET", ":meta", "audit", "1000")
	q.do("DEL", ":wake")
	real := func(n int64) map[string]int64 {
		return map[string]int64{"fixed": n, "log": n, "counter": n, "token": n, "leaky": 0}
	}
	more, none, less := done(c, "more", real(20)), done(c, "none", real(20)), done(c, "less", real(2))
	more.Outcome, more.Wait, more.Text = lua.Limited, time.Second, "model\n429"
	none.Outcome, none.Wait = lua.Retry, time.Second
	shut := lua.Settlement{Outcome: lua.Limited, ID: "queue", Token: c.Token, Wait: time.Second, Text: "\n429"}
	return func() error { return second(q.trySettle(less, more, none, shut)) }
}

// extendLined extends leases that hold places.
func extendLined(q *queue) func() error {
	lined(q)
	var jobs []lua.Settlement
	for _, member := range q.list("ZRANGE :active 0 -1") {
		id, token, _ := strings.Cut(member, "|")
		jobs = append(jobs, lua.Settlement{ID: id, Token: token})
	}
	return func() error { return second(lua.Extend(q.ctx(), q.client, q.keys, time.Hour, jobs)) }
}

// enqueueLined enqueues jobs that limits judge, one of them too heavy.
func enqueueLined(q *queue) error {
	answers, err := lua.Enqueue(q.ctx(), q.client, q.keys, []lua.NewJob{carries("e1", "org=p tokens:6"), carries("e2", "org=o tokens:6"),
		carries("e3", "chat=a")})
	if err == nil {
		require.Equal(q, []bool{true, false, false}, []bool{answers[0].Heavy != nil, answers[1].Heavy != nil, answers[2].Heavy != nil})
	}
	return err
}
