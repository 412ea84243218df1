package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// The text of a limit that is none stops the claim with its name; jobs still go in and leases still end.
func TestGarbageLimits(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for _, text := range []string{
		"", "x", "tpm fixed_window 5 1000 0 * * live 0", "tpm fixed_window 5 1000 0 * * live 0 ", "tpm fixed_window x 1000 0 * * live 0 5 why",
		"tpm fixed_window 05 1000 0 * * live 0 5 why", "tpm fixed_window 5 0 0 * * live 0 5 why", "tpm fixed_window 5 1000 -1 * * live 0 5 why",
		"tpm other 5 1000 0 * * live 0 5 why", "tpm fixed_window 5 1000 0 * * odd 0 5 why", "tpm fixed_window 5 1000 0 * * live x 5 why",
		"tpm fixed_window 5 1000 0 * * live 0 1e3 why", "tpm sliding_log 1000001 1000 0 * * live 0 5 why", "tpm concurrency -1 1 0 * * live 0 5 why",
		"tpm  fixed_window 5 1000 0 * * live 0 5 why", "tpm fixed_window 9007199254740992 1000 0 * * live 0 5",
	} {
		q := shared.another(t)
		q.wait("a")
		c := q.claim(1)
		q.do("HSET", ":limits", "tpm", text)
		q.enqueue(carries("b", "tokens:1"))
		for _, call := range []func() error{
			func() error { return second(q.tryClaim(9)) },
			func() error { return second(lua.Look(t.Context(), q.client, q.keys, "", lua.Busy, false, 0)) },
			func() error { return second(lua.ReadBudgets(t.Context(), q.client, q.keys, 9, nil)) },
			func() error { _, _, err := lua.Explain(t.Context(), q.client, q.keys, "b", lease); return err },
		} {
			var wrong *lua.ConfigError
			require.ErrorAs(t, q.unchanged(call, text), &wrong, text)
			assert.Equal(t, lua.ConfigError{Key: q.key("limits"), Field: "tpm", Value: text}, *wrong)
		}
		for _, read := range []func() error{
			func() error { _, _, err := lua.ReadJob(t.Context(), q.client, q.keys, "b"); return err },
			func() error { return second(lua.ReadPage(t.Context(), q.client, q.keys, "delayed", 0, 9)) },
		} {
			require.NoError(t, q.unchanged(read, text))
		}
		q.settle(done(c, "a", tokens(5)))
		q.limit("set tpm max=5")
		require.Equal(t, []string{"b"}, q.claim(9).IDs, "a set mends it: %s", text)
	}
}

func TestGarbageOverrides(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for _, text := range []string{"", "x", "5", "5 1000", "5 1000 0 0", "-5 1000 0", "5 0 0", "5 1000 x", " 5 1000 0"} {
		q := shared.another(t)
		q.limit("set chat max=1 by=chat", lua.NamedValue{Value: "a:b", Max: "2"})
		q.do("HSET", ":overrides", "chat:a:b", text)
		q.enqueue(carries("other", "chat=x"), carries("a", "chat=a:b"))
		var wrong *lua.ConfigError
		require.ErrorAs(t, q.unchanged(func() error { return second(q.tryClaim(9)) }, text), &wrong, text)
		assert.Equal(t, lua.ConfigError{Key: q.key("overrides"), Field: "chat:a:b", Value: text}, *wrong)
		require.Equal(t, "wait", q.state("other"), "nothing was popped")
	}
}

func TestGarbageHolds(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for _, text := range []string{"", "x", "1 2 3", "1 2 3 ", "a 1 1800000001000 id", "1 1.5 1800000001000 id", "1 1 -5 id", "1 1 1800000001000 id more"} {
		q := shared.another(t)
		q.limit("set chat max=1 by=chat")
		q.enqueue(carries("other", "chat=x"), carries("a", "chat=a"))
		q.do("HSET", ":state", "held", fmt.Sprint(start+1000))
		q.do("SET", ":hold:chat:a", text, "PX", "1000")
		garbage := func() {
			t.Helper()
			var corrupt *lua.CorruptError
			require.ErrorAs(t, q.unchanged(func() error { return second(q.tryClaim(9)) }, text), &corrupt, text)
			assert.Equal(t, q.key("hold:chat:a"), corrupt.Key)
			require.Equal(t, "wait", q.state("other"), "nothing was popped")
		}
		garbage()
		q.do("DEL", ":hold:chat:a")
		q.do("HSET", ":hold:chat:a", "f", "x")
		garbage()
		q.limit("reset chat", lua.NamedValue{Value: "a"})
		require.Len(t, q.granted(9), 2, "a reset heals it")
	}
}

// The state of a bucket that its limit cannot read stops the claim with the key; a reset heals it.
func TestGarbageBuckets(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for algorithm, garbage := range map[string][]string{
		"fixed_window":           {"", "x", "-", "05 1", "5 x", "5 1 1", "5 ", " 5", "5  1", "-0 1", "9007199254740992 1"},
		"sliding_window_counter": {"", "x", "1000 1 1", "1000 1 1 x", "0 1 1 1", "1000 1 1 1 1", "1000 9007199254740991 1 1"},
		"token_bucket":           {"", "x", "5", "200 1", "0 1 1", "200 x 1", "200 1 x", "200 1 1 x", "200 1 1 ", "200 1 1 1 1", "200 1 1 05"},
		"leaky_bucket":           {"", "x", "5", "200 1", "0 1 1", "200 1 1 x"},
		"sliding_log":            {},
		"concurrency":            {},
	} {
		for _, keyed := range []bool{true, false} {
			q := shared.another(t)
			by, bucket := "*", "tpm"
			if keyed {
				by, bucket = "tenant", "tpm:a"
			}
			unit := " unit=tokens"
			if algorithm == "concurrency" {
				unit = ""
			}
			q.limit("set tpm max=5 window=1000 by=" + by + " algorithm=" + algorithm + unit)
			q.enqueue(carries("other", "tenant=b"), carries("a", "tenant=a tokens:1"))
			refuse := func(want lua.CorruptError) {
				t.Helper()
				var corrupt *lua.CorruptError
				require.ErrorAs(t, q.unchanged(func() error { return second(q.tryClaim(9)) }, algorithm), &corrupt, "%s %q", algorithm, want.Value)
				assert.Equal(t, want, *corrupt)
				require.Equal(t, "wait", q.state("a"), "nothing was popped")
			}
			for _, text := range garbage {
				q.do("SET", ":limiter:"+bucket, text, "PX", "900")
				refuse(lua.CorruptError{Key: q.key("limiter:" + bucket), Value: text})
			}
			q.do("DEL", ":limiter:"+bucket)
			kind := "string"
			if algorithm == "sliding_log" || algorithm == "concurrency" {
				kind = "zset"
			}
			q.do("SADD", ":limiter:"+bucket, "x")
			refuse(lua.CorruptError{Key: q.key("limiter:" + bucket), Type: "set", Want: kind})
			if algorithm == "sliding_log" {
				q.do("DEL", ":limiter:"+bucket)
				q.do("ZADD", ":limiter:"+bucket, "1", "x")
				refuse(lua.CorruptError{Key: q.key("limiter:" + bucket), Value: "x 1"})
			}
			if algorithm == "concurrency" {
				continue
			}
			if keyed {
				q.limit("reset tpm", lua.NamedValue{Value: "a"})
			} else {
				q.limit("reset tpm")
			}
			require.Len(t, q.granted(9), 2, "a reset heals it")
		}
	}
}

// A settle ends its jobs whatever type the keys of a bucket have, and leaves these alone; so does an extend. The claim says what is wrong.
func TestASettleLeavesABucketOfAnotherTypeAlone(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	const n = 200
	for _, algorithm := range slices.Concat(byCost, []string{"concurrency"}) {
		for _, broken := range []string{"limiter:tpm:a", "line:tpm:a", "lined:tpm"} {
			q := shared.another(t)
			if algorithm == "concurrency" {
				q.limit("set tpm max=500 by=tenant algorithm=concurrency", lua.NamedValue{Value: "a", Max: "1"})
			} else {
				q.limit("set tpm max=500 by=tenant unit=tokens algorithm=" + algorithm)
			}
			q.enqueue(alike("tenant=b tokens:2", ids(n-1)...)...)
			q.enqueue(alike("tenant=a tokens:400", "odd", "waits")...)
			c := q.claim(n)
			require.Len(t, c.IDs, n)
			require.Empty(t, q.granted(9))
			require.Equal(t, "tpm:a", q.in("waits"))
			q.do("DEL", ":"+broken)
			q.do("HSET", ":"+broken, "f", "x")
			what := fmt.Sprint(algorithm, " ", broken)
			var settled []lua.Settlement
			for _, id := range c.IDs {
				cost := tokens(1)
				if id == "j0" {
					cost = nil
				}
				settled = append(settled, done(c, id, cost))
			}
			lost, err := lua.Extend(t.Context(), q.client, q.keys, lease, settled)
			require.NoError(t, err, what)
			require.NotContains(t, lost, true)
			q.settle(settled...)
			require.Equal(t, "x", q.text("HGET :"+broken+" f"), what)
			require.EqualValues(t, 0, q.number("ZCARD :active"), what)
			q.enqueue(carries("next", "tenant=a tokens:400"))
			_, err = q.tryClaim(9)
			require.ErrorContains(t, err, q.key(broken)+" is a hash", what)
			q.do("DEL", ":"+broken)
			used := map[bool]int64{true: 0, false: 2 + n - 2}[algorithm == "concurrency"]
			require.Equal(t, used, q.bucket("tpm", "b").Used, what)
		}
	}
}

// The keys of lines, of another type: each error names the key, nothing is popped.
func TestLinesOfAnotherType(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for key, kind := range map[string]string{
		"lines": "zset", "lines:open": "zset", "lines:stale": "zset", "tally": "hash", "line:chat:a": "zset", "lined:chat": "zset",
	} {
		q := shared.another(t)
		q.limit("set chat max=1 by=chat")
		q.enqueue(carries("x", "chat=x"), carries("a1", "chat=a"), carries("a2", "chat=a"))
		require.Equal(t, []string{"x", "a1"}, q.claim(9).IDs)
		q.enqueue(carries("a3", "chat=a"), carries("free", ""))
		q.do("DEL", ":"+key)
		q.do("SET", ":"+key, "x")
		q.claimNames(key, kind)
		require.Equal(t, []string{"a3", "free"}, q.list("LRANGE :wait2 0 -1"), key)
	}
}

// claimNames fails unless a claim changes nothing and says that a key, which holds a string, should be of another type.
func (q *queue) claimNames(key, kind string) {
	q.Helper()
	var corrupt *lua.CorruptError
	require.ErrorAs(q, q.unchanged(func() error { return second(q.tryClaim(9)) }, key), &corrupt, key)
	assert.Equal(q, lua.CorruptError{Key: q.key(key), Type: "string", Want: kind}, *corrupt)
}

// The same for the first line that there is.
func TestTheFirstLineIsOfAnotherType(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=1 by=chat")
	q.do("SET", ":line:chat:a", "x")
	q.enqueue(alike("chat=a", "a1", "a2")...)
	q.claimNames("line:chat:a", "zset")
	require.Equal(t, []string{"a1", "a2"}, q.list("LRANGE :wait2 0 -1"), "nothing was popped")
}

// A concurrency limit that is lifted for a key value counts its places all the same, so their key is looked at too.
func TestPlacesOfALiftedLimitAreOfAnotherType(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set flight max=1 by=tenant algorithm=concurrency", lua.NamedValue{Value: "x", Max: "0"})
	q.do("SET", ":limiter:flight:x", "foo")
	q.enqueue(carries("a", "tenant=x"))
	q.claimNames("limiter:flight:x", "zset")
	require.Equal(t, []string{"a"}, q.list("LRANGE :wait2 0 -1"), "nothing was popped")
}

// Words of a lease that make no sense stop neither its settle nor its end.
func TestGarbageWordsOfALease(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	const huge = "99999999999999999999"
	for i, words := range []string{
		"", " ", "|||", "a|b", "tpm|tokens|x|1", "tpm|tokens|5|", "tpm|tokens|5|x:y", "none", strings.Repeat("x ", 99), "tpm|tokens|5|" + huge + ":1800000000000",
		"tpm|tokens|5|1:200:" + huge,
	} {
		q := shared.another(t)
		q.limit("set tpm max=5 unit=tokens algorithm=" + []string{"sliding_log", "token_bucket"}[i/10])
		q.enqueue(carries("a", "tokens:1"), carries("b", "tokens:1"))
		c := q.claim(9)
		require.Len(t, c.IDs, 2)
		for _, id := range c.IDs {
			q.do("HSET", ":leases", id+"|"+c.Token, words)
		}
		lost, err := lua.Extend(t.Context(), q.client, q.keys, time.Second, []lua.Settlement{{ID: "b", Token: c.Token}})
		require.NoError(t, err, "%q", words)
		require.Equal(t, []bool{false}, lost)
		_, err = q.trySettle(done(c, "a", tokens(0)))
		require.NoError(t, err, "%q", words)
		q.clock.Advance(time.Second)
		require.Equal(t, 1, q.claim(0).Reclaimed)
		require.EqualValues(t, 0, q.number("EXISTS :leases"))
		q.clock.Set(start)
	}
}
