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

func (q *queue) page(state string, from, count int) []string {
	q.Helper()
	page, err := lua.ReadPage(q.ctx(), q.client, q.keys, state, from, count)
	require.NoError(q, err)
	var ids []string
	for _, f := range page {
		ids = append(ids, f.ID)
	}
	return ids
}

// A page of waiting jobs is in the order of their claims, wherever they stand.
func TestPagesOfWaitingJobs(t *testing.T) {
	t.Parallel()
	r, shared := random(t), clocked(t)
	for range 10 {
		q := shared.another(t)
		var jobs []lua.NewJob
		for i := range 20 {
			jobs = append(jobs, lua.NewJob{ID: fmt.Sprint(i), Priority: 1 + r.IntN(4), Body: "."})
		}
		q.enqueue(jobs[:15]...)
		leases := q.claim(r.IntN(12))
		q.enqueue(jobs[15:]...)
		for _, id := range leases.IDs { // some come back to their place
			if r.IntN(2) == 0 {
				q.settle(lua.Settlement{Outcome: lua.HandBack, ID: id, Token: leases.Token})
			}
		}
		var pages []string
		all := q.page("wait", 0, 100)
		for from := 0; from < len(all); from += 3 {
			pages = append(pages, q.page("wait", from, 3)...)
		}
		require.Equal(t, all, pages)
		require.Equal(t, all[4:5], q.page("wait", 4, 1))
		require.Empty(t, q.page("wait", len(all), 3))
		require.Empty(t, q.page("wait", 100, 3))
		require.EqualValues(t, len(all), q.counts()[0])
		require.Equal(t, q.claim(100).IDs, all)
	}
}

func TestPagesOfOtherStates(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	everywhere(q)
	for state, want := range map[string][]string{
		"active":    {"ended", "lost.active", "poison", "active"},
		"delayed":   {"due.sent", "due1", "due2", "due3", "due4", "lost.due", "sent", "sent.lost", "later"},
		"dead":      {"dead1", "dead4"},
		"completed": {"kept1"},
	} {
		require.Equal(t, want, q.page(state, 0, 100), state)
		require.Equal(t, want[len(want)-1:], q.page(state, len(want)-1, 1), state)
		require.Empty(t, q.page(state, 100, 1), state)
	}
	page, err := lua.ReadPage(t.Context(), q.client, q.keys, "delayed", 6, 1)
	require.NoError(t, err)
	sent, _ := q.found("sent")
	require.Equal(t, []lua.Found{sent}, page)
	page, err = lua.ReadPage(t.Context(), q.client, q.keys, "dead", 0, 1)
	require.NoError(t, err)
	dead, _ := q.found("dead1")
	require.Equal(t, []lua.Found{dead}, page)
}

func TestPagesCutLongRecords(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.enqueue(lua.NewJob{ID: "a", Priority: 2, Body: lua.Body(lua.Header{Name: "n"}, make([]byte, 100_000))})
	page, err := lua.ReadPage(t.Context(), q.client, q.keys, "wait", 0, 1)
	require.NoError(t, err)
	require.Len(t, page[0].Record, 16384)
	record, err := lua.ParseRecord(page[0].Record)
	require.NoError(t, err)
	require.Equal(t, "n", record.Header.Name)
}

func TestJobs(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	everywhere(q)
	for id, want := range map[string]struct {
		state string
		at    time.Duration // -1: none
		by    string
	}{
		"wait1":    {"wait", -1, ""},
		"wait4":    {"wait", -1, ""},
		"back":     {"wait", -1, ""},
		"active":   {"active", lease, ""},
		"ended":    {"active", 0, ""},
		"later":    {"delayed", time.Hour, "delay"},
		"sent":     {"delayed", 500 * time.Millisecond, "limit"},
		"dead1":    {"dead", 0, ""},
		"kept1":    {"completed", time.Minute, ""},
		"due.sent": {"delayed", 0, "limit"},
	} {
		f, _ := q.found(id)
		assert.Equal(t, want.state, f.State, id)
		assert.Equal(t, want.by, f.By, id)
		assert.Equal(t, start, int(f.Now.UnixMilli()))
		if want.at < 0 {
			assert.Zero(t, f.At, id)
		} else {
			assert.Equal(t, time.UnixMilli(start).Add(want.at), f.At, id)
		}
	}
	for _, id := range []string{"lost", "none", "lost.due"} {
		assert.Equal(t, "unknown", q.state(id))
	}
	f, _ := q.found("kept1")
	assert.Equal(t, "result", f.Result)
	f, _ = q.found("dead1")
	assert.Equal(t, "dead_lettered\nno", f.Failure)

	q.settle(lua.Settlement{Outcome: lua.Defer, ID: "active", Token: q.token("active"), Wait: time.Minute})
	f, _ = q.found("active")
	assert.Equal(t, "defer", f.By)
}

// token is the token of the job's lease.
func (q *queue) token(id string) string {
	q.Helper()
	for _, member := range q.list("ZRANGE :active 0 -1") {
		if token, ok := strings.CutPrefix(member, id+"|"); ok {
			return token
		}
	}
	q.Fatalf("job %s has no lease", id)
	return ""
}

// Jobs are told apart by the places before and behind the head of their list; also when the head's own record is gone.
func TestJobsBehindAHeadWithoutRecord(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("active", "lost", "waiting")
	q.claim(1)
	q.do("DEL", ":job:lost")
	assert.Equal(t, "active", q.state("active"))
	assert.Equal(t, "waiting", q.page("wait", 1, 1)[0])
	assert.Equal(t, "wait", q.state("waiting"))
	states, err := remove(q, "active", "waiting")
	require.NoError(t, err)
	assert.Equal(t, []string{"active", "wait"}, states)
	assert.Equal(t, []string{"lost"}, q.list("LRANGE :wait2 0 -1"))
}

// Where a job is agrees with the lists and sets, whatever happened to the queue.
func TestWhereJobsAre(t *testing.T) {
	t.Parallel()
	r, shared := random(t), clocked(t)
	for range 15 {
		w, leases := twins{shared.another(t), shared.another(t)}, map[string]string{}
		for range 40 {
			w.step(r, leases)
		}
		q := w[0]
		found := map[string]string{}
		for _, state := range []string{"wait", "active", "delayed", "dead", "completed"} {
			for _, id := range q.page(state, 0, 1000) {
				require.Empty(t, found[id], "%s is %s and %s", id, found[id], state)
				found[id] = state
			}
		}
		for id, state := range found {
			if q.number("EXISTS "+q.keys.Job(id)) == 1 {
				require.Equal(t, state, q.state(id), id)
			}
		}
		records := q.list("KEYS " + q.keys.Job("*"))
		for _, key := range records {
			id := strings.TrimPrefix(key, q.keys.Job(""))
			require.NotEmpty(t, found[id], "%s is nowhere", id)
		}
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	require.Equal(t, [6]int64{}, q.counts())
	everywhere(q)
	c, err := lua.ReadCounts(t.Context(), q.client, q.keys)
	require.NoError(t, err)
	require.Equal(t, lua.Counts{Now: time.UnixMilli(start), Wait: 6, Active: 4, Delayed: 9, Sent: 3, Dead: 2, Completed: 1}, c)
}

func TestBudget(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	budget := func(limit string) lua.Budget {
		t.Helper()
		b, err := lua.ReadBudget(t.Context(), q.client, q.keys, limit)
		require.NoError(t, err)
		require.Equal(t, time.UnixMilli(start), b.Now)
		b.Now = time.Time{}
		return b
	}
	fixed := func(b lua.Budget) lua.Budget {
		b.Algorithm = "fixed_window"
		return b
	}
	require.Equal(t, fixed(lua.Budget{Window: time.Second, Free: -1}), budget(""))
	q.do("HSET", ":meta", "max", "5", "duration", "2000")
	require.Equal(t, fixed(lua.Budget{Max: 5, Window: 2 * time.Second, Free: 5}), budget("0"))
	q.do("SET", ":limiter", "3", "PX", "400")
	left := 400 * time.Millisecond
	require.Equal(t, fixed(lua.Budget{Max: 5, Window: 2 * time.Second, Used: 3, Free: 2, Reset: left}), budget(""))
	require.Equal(t, fixed(lua.Budget{Max: 7, Window: 2 * time.Second, Used: 3, Free: 4, Reset: left}), budget("7"))
	q.do("HSET", ":meta", "max", "0")
	require.Equal(t, fixed(lua.Budget{Window: 2 * time.Second, Free: -1}), budget(""))
	require.Equal(t, fixed(lua.Budget{Max: 2, Window: 2 * time.Second, Used: 3, Retry: left, Reset: left}), budget("2"))
	q.do("DEL", ":limiter")
	q.do("HSET", ":meta", "max", "5", "algorithm", "token_bucket", "burst", "8")
	require.Equal(t, lua.Budget{Algorithm: "token_bucket", Max: 5, Burst: 8, Window: 2 * time.Second, Free: 8}, budget(""))
}

func TestLook(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for name, c := range map[string]struct {
		set  func(q *queue)
		want time.Duration
	}{
		"empty":            {func(q *queue) {}, -1},
		"waiting":          {func(q *queue) { q.wait("a") }, 0},
		"came back":        {func(q *queue) { q.wait("a"); q.settle(q.claimed(lua.HandBack, 0, "")) }, 0},
		"delayed":          {func(q *queue) { q.enqueue(delayed("a", time.Minute)) }, time.Minute},
		"due":              {func(q *queue) { q.enqueue(delayed("a", time.Minute)); q.do("ZADD", ":delayed", "1", "a") }, 0},
		"active":           {func(q *queue) { q.wait("a"); q.claim(1) }, lease},
		"ended":            {func(q *queue) { q.wait("a"); q.claim(1); q.do("ZADD", ":active", "1", "a|x") }, 0},
		"first of several": {func(q *queue) { q.wait("a"); q.claim(1); q.enqueue(delayed("b", time.Second)) }, time.Second},
		"refused":          {func(q *queue) { q.limited("1"); q.claim(1) }, time.Second},
		"refused, sent":    {func(q *queue) { q.limited("1"); q.claim(2); q.claim(2) }, time.Second},
		"raised":           {func(q *queue) { q.limited("1"); q.claim(2); q.claim(2); q.do("HSET", ":meta", "max", "2") }, 0},
		"paused":           {func(q *queue) { q.wait("a"); q.do("HSET", ":meta", "paused", "1") }, -1},
		"paused, with due": {func(q *queue) { q.enqueue(delayed("a", time.Minute)); q.do("HSET", ":meta", "paused", "1") }, time.Minute},
		"priority 1":       {func(q *queue) { q.enqueue(lua.NewJob{ID: "a", Priority: 1, Body: "."}) }, 0},
		"priority 3":       {func(q *queue) { q.enqueue(lua.NewJob{ID: "a", Priority: 3, Body: "."}) }, 0},
		"priority 4":       {func(q *queue) { q.enqueue(lua.NewJob{ID: "a", Priority: 4, Body: "."}) }, 0},
		"due, with active": {func(q *queue) {
			q.wait("a")
			q.claim(1)
			q.enqueue(delayed("b", 1))
			q.do("ZADD", ":delayed", "1", "b")
		}, 0},
		"dead and complete": {func(q *queue) {
			q.wait("a", "b")
			q.settle(q.claimed(lua.DeadLetter, 0, "x\n"))
			q.settle(q.claimed(lua.Complete, time.Minute, ""))
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := shared.another(t)
			c.set(q)
			got, err := lua.Look(t.Context(), q.client, q.keys, "", lua.Busy, false, 0)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Next)
		})
	}
}

// Scripts that read change nothing, and fail on keys of other types as those that write do.
func TestReadsChangeNothing(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	everywhere(q)
	limit("5", "1")(q)
	q.limit("set tpm max=5 by=tenant unit=tokens", lua.NamedValue{Value: "a", Max: "6"})
	q.close("model", "m", "+1000")
	reads := map[string]func() error{
		"look":   func() error { return second(lua.Look(t.Context(), q.client, q.keys, "", lua.Busy, false, 0)) },
		"budget": func() error { return second(lua.ReadBudget(t.Context(), q.client, q.keys, "")) },
		"counts": func() error { return second(lua.ReadCounts(t.Context(), q.client, q.keys)) },
		"job":    func() error { _, _, err := lua.ReadJob(t.Context(), q.client, q.keys, "wait1"); return err },
		"list":   func() error { return second(lua.ReadPage(t.Context(), q.client, q.keys, "wait", 0, 100)) },
		"budgets": func() error {
			return second(lua.ReadBudgets(t.Context(), q.client, q.keys, 9, []lua.ValueOf{{Limit: "tpm", Value: "a"}}))
		},
		"workers":   func() error { _, _, _, err := lua.ReadWorkers(t.Context(), q.client, q.keys, 9); return err },
		"preflight": func() error { return lua.CheckAccess(t.Context(), q.client, q.keys, []string{"claim"}) },
		"explain":   func() error { _, _, err := lua.Explain(t.Context(), q.client, q.keys, "wait1", lease); return err },
	}
	unread := map[string]string{
		"job":       "meta active sent dead completed delayed limits removed",
		"list":      "meta active sent dead completed delayed lines open stale",
		"look":      "overrides wait1 wait2 wait3 wait4 back sent open stale uncounted", // the claim that it calls for reads them
		"explain":   "overrides removed sent tally",
		"preflight": "meta",
	}
	for _, name := range lua.Names() {
		read := reads[name]
		if read == nil {
			require.NotContains(t, flags[name], "no-writes")
			continue
		}
		before := q.digest()
		require.NoError(t, read())
		require.Equal(t, before, q.digest(), name)
		for _, key := range lua.Declared(name) {
			if slices.Contains(strings.Fields(unread[name]), key) {
				continue // not every one is looked at
			}
			there := q.number("EXISTS :"+key) == 1
			if there {
				q.do("RENAME", ":"+key, ":aside")
			}
			q.do("SADD", ":"+key, "x")
			var corrupt *lua.CorruptError
			require.ErrorAs(t, q.unchanged(read), &corrupt, "%s %s", name, key)
			require.Equal(t, q.key(key), corrupt.Key)
			if there {
				q.do("RENAME", ":aside", ":"+key)
			} else {
				q.do("DEL", ":"+key)
			}
		}
	}
}
