package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

func (q *queue) meta() map[string]string { q.Helper(); return q.hash(":meta") }

func TestSetLimit(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	at := fmt.Sprint(start)
	set := func(max int64, duration, reason string) [2]string {
		t.Helper()
		q.do("DEL", ":wake")
		oldMax, oldDuration, err := setLimitTexts(t.Context(), q.client, q.keys, max, duration, reason)
		require.NoError(t, err)
		require.EqualValues(t, 1, q.number("LLEN :wake"))
		return [2]string{oldMax, oldDuration}
	}
	require.Equal(t, [2]string{"", ""}, set(5, "2000", "why"))
	want := map[string]string{"layout": "1", "max": "5", "duration": "2000", "limit_reason": "why", "limit_at": at}
	require.Equal(t, want, q.meta())

	require.Equal(t, [2]string{"5", "2000"}, set(7, "", "again"))
	want["max"], want["limit_reason"] = "7", "again"
	require.Equal(t, want, q.meta(), "the window stays")

	q.do("SET", ":limiter", "3", "PX", "1000")
	q.do("HSET", ":meta", "algorithm", "fixed_window", "burst", "9", "paused", "1")
	require.Equal(t, [2]string{"7", "2000"}, set(0, "", "off"))
	require.Equal(t, map[string]string{"layout": "1", "limit_reason": "off", "limit_at": at, "paused": "1"}, q.meta())
	require.Equal(t, "3", q.text("GET :limiter"), "what was used stays used")

	q.do("HSET", ":meta", "max", "garbage", "algorithm", "garbage")
	require.Equal(t, [2]string{"garbage", ""}, set(4, "1000", "mended"))
	require.Equal(t, "empty", q.unpaused().claim(1).Word)
}

// What a change leaves out stays; another algorithm starts whole and forgets the burst of the one before.
func TestSetLimitByParts(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	set := func(c lua.LimitChange, want map[string]string) {
		t.Helper()
		c.Op = "set"
		require.NoError(t, second(lua.SetLimit(t.Context(), q.client, q.keys, c)))
		got := q.meta()
		for _, field := range []string{"layout", "limit_reason", "limit_at"} {
			delete(got, field)
		}
		require.Equal(t, want, got)
	}
	whole := func(want int64) {
		t.Helper()
		require.Equal(t, want, 1-q.number("EXISTS :limiter"))
		q.do("SET", ":limiter", "1")
	}
	whole(1)
	set(lua.LimitChange{Max: 5, Duration: "2000"}, map[string]string{"max": "5", "duration": "2000"})
	whole(0)
	set(lua.LimitChange{Max: 6, Algorithm: "fixed_window"}, map[string]string{"max": "6", "duration": "2000", "algorithm": "fixed_window"})
	whole(0)
	bucket := map[string]string{"max": "6", "duration": "2000", "algorithm": "token_bucket", "burst": "9"}
	set(lua.LimitChange{Max: 6, Algorithm: "token_bucket", Burst: "9"}, bucket)
	whole(1)
	bucket["max"] = "7"
	set(lua.LimitChange{Max: 7}, bucket)
	set(lua.LimitChange{Max: 7, Algorithm: "token_bucket"}, bucket)
	whole(0)
	bucket["burst"] = "8"
	set(lua.LimitChange{Max: 7, Burst: "8"}, bucket)
	before, err := lua.SetLimit(t.Context(), q.client, q.keys, lua.LimitChange{Op: "set", Max: 7, Algorithm: "sliding_log"})
	require.NoError(t, err)
	require.Equal(t, lua.LimitTexts{Max: "7", Duration: "2000", Algorithm: "token_bucket", Burst: "8"}, before)
	set(lua.LimitChange{Max: 7}, map[string]string{"max": "7", "duration": "2000", "algorithm": "sliding_log"})
	whole(1)

	q.do("HSET", ":meta", "duration", "0", "burst", "x", "algorithm", "")
	set(lua.LimitChange{Max: 7}, map[string]string{"max": "7", "duration": "1000"})
	_, err = lua.SetLimit(t.Context(), q.client, q.keys, lua.LimitChange{Op: "reset"})
	require.NoError(t, err)
	require.Equal(t, "7", q.meta()["max"])
	whole(1)
}

func (q *queue) unpaused() *queue {
	q.do("HDEL", ":meta", "paused")
	return q
}

func TestSettersRejectWhatClaimsWouldRefuse(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	for _, c := range []struct {
		max             int64
		duration, field string
		value           string
	}{
		{-5, "", "max", "-5"}, {1 << 53, "", "max", "9007199254740992"},
		{5, "0", "duration", "0"}, {5, "-1", "duration", "-1"}, {5, "1.5", "duration", "1.5"}, {5, "abc", "duration", "abc"},
	} {
		err := q.unchanged(func() error { return setLimit(c.max, c.duration)(q) })
		var config *lua.ConfigError
		require.ErrorAs(t, err, &config)
		assert.Equal(t, lua.ConfigError{Key: q.keys.Meta(), Field: c.field, Value: c.value}, *config)
	}
}

func TestF92AnotherLayoutIsLeftAlone(t *testing.T) {
	t.Parallel()
	eachScene(t, func(t *testing.T, q *queue, p play) {
		if strings.HasPrefix(p.script, "take") || p.script == "extend" {
			return // they touch no more than a bucket, or leases
		}
		q.do("HSET", ":meta", "layout", "2")
		var config *lua.ConfigError
		require.ErrorAs(t, q.unchanged(p.call), &config)
		assert.Equal(t, lua.ConfigError{Key: q.keys.Meta(), Field: "layout", Value: "2"}, *config)
	})
}

func TestPause(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a")
	pause := func(paused bool, wakes int64) bool {
		t.Helper()
		q.do("DEL", ":wake")
		was, err := lua.Pause(t.Context(), q.client, q.keys, paused, "why")
		require.NoError(t, err)
		require.Equal(t, wakes, q.number("LLEN :wake"))
		return was
	}
	require.False(t, pause(false, 1))
	require.False(t, pause(true, 0))
	require.True(t, pause(true, 0))
	require.Equal(t, map[string]string{"layout": "1", "paused": "1", "paused_reason": "why", "paused_at": fmt.Sprint(start)}, q.meta())
	require.Equal(t, "paused", q.claim(1).Word)
	c, err := lua.ReadCounts(t.Context(), q.client, q.keys)
	require.NoError(t, err)
	require.True(t, c.Paused)
	b, err := lua.ReadBudget(t.Context(), q.client, q.keys, "")
	require.NoError(t, err)
	require.True(t, b.Paused)
	require.True(t, pause(false, 1))
	require.Equal(t, map[string]string{"layout": "1"}, q.meta())
	require.Equal(t, []string{"a"}, q.claim(1).IDs)
	for _, value := range []string{"", "0"} {
		q.do("HSET", ":meta", "paused", value)
		require.False(t, pause(false, 1), "%q", value)
	}
	q.do("HSET", ":meta", "max", "garbage")
	require.False(t, pause(true, 0), "a misconfigured queue can be paused")
}

func TestRunNow(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	everywhere(q)
	all := []string{"later", "sent", "later", "wait1", "active", "dead1", "kept1", "lost", "none"}
	states, err := runNow(q, all...)
	require.NoError(t, err)
	require.Equal(t, []string{"delayed", "delayed", "delayed", "wait", "active", "dead", "completed", "unknown", "unknown"}, states)
	require.EqualValues(t, 1, q.number("LLEN :wake"))
	require.Equal(t, "wait", q.state("later"))
	require.Equal(t, "wait", q.state("sent"))
	wait2 := q.list("LRANGE :wait2 0 -1")
	require.Equal(t, []string{"lost", "wait2", "later"}, wait2, "at the end of its priority, once")
	require.Contains(t, q.list("ZRANGE :back 0 -1"), "sent", "at its own place")
	require.NotContains(t, q.list("ZRANGE :sent 0 -1"), "sent")
	require.Equal(t, "later sent", q.entries()[0]["ids"])
	q.requireLast("later")
	before := q.digest()
	_, err = runNow(q, "later", "none")
	require.NoError(t, err)
	require.Equal(t, before, q.digest())
}

// requireLast fails unless the job was the last to get a place, and the next job will get a later one.
func (q *queue) requireLast(id string) {
	q.Helper()
	_, record := q.found(id)
	require.Equal(q, q.hash(":state")["seq"], fmt.Sprint(record.Place()%(1<<50)))
	for _, key := range q.list("KEYS " + q.keys.Job("*")) {
		if other, err := lua.ParseRecord(q.text("GET " + key)); err == nil && key != q.keys.Job(id) {
			require.Less(q, other.Place()%(1<<50), record.Place()%(1<<50), key)
		}
	}
}

func TestRedrive(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	everywhere(q)
	q.do("SETRANGE", ":job:dead1", "24", "003000450")
	states, err := redrive(q, "dead1", "dead4", "dead1", "sent", "wait1", "active", "kept1", "none")
	require.NoError(t, err)
	require.Equal(t, []string{"dead", "dead", "dead", "delayed", "wait", "active", "completed", "unknown"}, states)
	require.EqualValues(t, 1, q.number("LLEN :wake"))
	require.Equal(t, []string{"wait1", "dead1"}, q.list("LRANGE :wait1 0 -1"))
	require.Equal(t, []string{"wait4", "dead4"}, q.list("LRANGE :wait4 0 -1"))
	require.Equal(t, "dead1 dead4", q.entries()[0]["ids"])
	q.requireLast("dead4")
	f, record := q.found("dead1")
	require.Empty(t, f.Failure)
	require.Equal(t, [3]int{0, 4, 0}, [3]int{record.Attempts, record.Deferrals, record.Reclaims})
	before := q.digest()
	_, err = redrive(q, "dead1", "none")
	require.NoError(t, err)
	require.Equal(t, before, q.digest())
}

func TestRemove(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	everywhere(q)
	q.do("DEL", ":job:dead4")
	q.do("DEL", ":job:due.sent")
	all := []string{"wait1", "back", "due1", "sent", "due.sent", "dead1", "dead4", "kept1", "active", "lost", "none", "wait1"}
	states, err := remove(q, all...)
	require.NoError(t, err)
	require.Equal(t, []string{"wait", "wait", "delayed", "delayed", "delayed", "dead", "dead", "completed", "active", "unknown", "unknown", "wait"}, states)
	require.Equal(t, "wait1 back due1 sent due.sent dead1 dead4 kept1", q.entries()[0]["ids"])
	for _, id := range all {
		want := "unknown"
		if id == "active" {
			want = id
		}
		require.Equal(t, want, q.state(id), id)
		for name := range q.keys.All() {
			switch lua.Kind(name) {
			case "list":
				if id != "lost" {
					require.NotContains(t, q.list("LRANGE :"+name+" 0 -1"), id, name)
				}
			case "zset":
				require.NotContains(t, q.list("ZRANGE :"+name+" 0 -1"), id, name)
			}
		}
		require.EqualValues(t, 0, q.number("HEXISTS :errors "+id))
		require.EqualValues(t, 0, q.number("EXISTS :result:"+id))
	}
	require.Equal(t, "wait", q.state("wait2"), "others stay")
	answers, err := lua.Enqueue(t.Context(), q.client, q.keys, []lua.NewJob{job("wait1"), job("active")})
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, duplicates(answers))
}

func TestF42ManyIDsInOneCall(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	many := ids(9000) // more than a script can unpack at once
	jobs := make([]lua.NewJob, len(many))
	for i, id := range many {
		jobs[i] = job(id)
	}
	q.enqueue(jobs...)
	for _, call := range []func(*queue, ...string) ([]string, error){runNow, redrive, remove} {
		states, err := call(q, many...)
		require.NoError(t, err)
		require.Equal(t, slices.Repeat([]string{"wait"}, len(many)), states)
	}
	require.Equal(t, [6]int64{}, q.counts())
}

func TestDrain(t *testing.T) {
	t.Parallel()
	for _, delayed := range []bool{false, true} {
		for _, count := range []int{1, 2, 5, 1000} {
			t.Run(fmt.Sprint(delayed, count), func(t *testing.T) {
				t.Parallel()
				q := clocked(t)
				everywhere(q)
				q.wait(ids(8)...)
				for _, id := range ids(4) {
					_, record := q.found(id)
					q.do("LREM", ":wait2", "1", id)
					q.do("ZADD", ":back", fmt.Sprint(record.Place()), id)
				}
				q.do("HSET", ":errors", "wait1", "retry\nfailed", "active", "retry\nfailed")
				before := q.counts()
				want := before[0] + before[3]
				if delayed {
					want = before[0] + before[2]
				}
				deleted := int64(0)
				for more := true; more; {
					var n int64
					var err error
					n, more, err = lua.Drain(t.Context(), q.client, q.keys, delayed, count)
					require.NoError(t, err)
					require.LessOrEqual(t, n, int64(count))
					require.Equal(t, n == int64(count), more)
					deleted += n
				}
				require.Equal(t, want, deleted)
				after := q.counts()
				require.Zero(t, after[0])
				require.Zero(t, after[3])
				require.Equal(t, [3]int64{before[1], before[4], before[5]}, [3]int64{after[1], after[4], after[5]})
				if !delayed {
					require.Equal(t, before[2]-before[3], after[2])
					require.Equal(t, "delayed", q.state("later"))
				}
				require.EqualValues(t, 0, q.number("HEXISTS :errors wait1"))
				require.EqualValues(t, 1, q.number("HEXISTS :errors active"))
				left := q.list("KEYS " + q.keys.Job("*"))
				require.Len(t, left, int(after[1]-1+after[2]+after[4]+after[5])-map[bool]int{false: 1}[delayed], "no record is left over")
			})
		}
	}
}

func TestDrainTakesTheFirstJobs(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	everywhere(q)
	n, more, err := lua.Drain(t.Context(), q.client, q.keys, true, 2)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.True(t, more)
	require.Equal(t, "unknown", q.state("back"))
	require.Equal(t, "unknown", q.state("wait1"))
	require.Equal(t, "wait", q.state("wait2"))
	n, _, err = lua.Drain(t.Context(), q.client, q.keys, true, -1)
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "a count out of range is the nearest that is right")
}

// A line that stands in two sets is taken once.
func TestDrainTakesALineOnce(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=1 by=chat")
	q.enqueue(alike("chat=a", "a1", "a2", "a3")...)
	q.enqueue(alike("chat=b", "b1", "b2")...)
	require.Equal(t, []string{"a1", "b1"}, q.claim(9).IDs)
	q.do("ZADD", ":open", q.text("ZSCORE :line:chat:a a2"), "chat:a")
	q.do("ZADD", ":stale", "0", "chat:a")
	drained, more, err := lua.Drain(t.Context(), q.client, q.keys, false, 3)
	require.NoError(t, err)
	require.EqualValues(t, 3, drained)
	require.True(t, more)
	require.Empty(t, q.list("KEYS "+q.keys.Prefix()+"line:*"))
	require.Empty(t, q.list("KEYS "+q.keys.Prefix()+"lined:*"))
	require.EqualValues(t, 0, q.number("EXISTS :tally"))
	drained, more, err = lua.Drain(t.Context(), q.client, q.keys, false, 3)
	require.NoError(t, err)
	require.Zero(t, drained)
	require.False(t, more)
	require.Equal(t, [6]int64{0, 2, 0, 0, 0, 0}, q.counts())
}

func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.wait(ids(3000)...)
	n, more, err := lua.Drain(t.Context(), q.client, q.keys, false, 100_000)
	require.NoError(t, err)
	require.EqualValues(t, 1000, n)
	require.True(t, more)
}
