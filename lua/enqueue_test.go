package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

func TestF90Duplicates(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	everywhere(q)
	// A job whose record is lost, but which some list still has, does not count as one that exists.
	jobs := []lua.NewJob{job("new"), job("new"), job("wait1"), job("active"), delayed("later", time.Second), job("sent"), job("back"),
		job("dead1"), job("kept1"), job("other")}
	before := q.counts()
	answers, err := lua.Enqueue(t.Context(), q.client, q.keys, jobs)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true, true, true, true, true, true, true, true, false}, duplicates(answers))
	before[0] += 2
	require.Equal(t, before, q.counts())
	digest := q.digest()
	answers, err = lua.Enqueue(t.Context(), q.client, q.keys, jobs[:2])
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, duplicates(answers))
	require.Equal(t, digest, q.digest())
	answers, err = lua.Enqueue(t.Context(), q.client, q.keys, nil)
	require.NoError(t, err)
	require.Empty(t, answers)
	require.Equal(t, digest, q.digest())
}

func TestEnqueuedRecords(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	require.EqualValues(t, 0, q.number("EXISTS :meta"))
	q.enqueue(
		lua.NewJob{ID: "a", Priority: 1, Body: ".payload"},
		lua.NewJob{ID: "now", Priority: 4, When: "+0", Body: "."},
		lua.NewJob{ID: "past", Priority: 4, When: fmt.Sprintf("@%d", start), Body: "."},
		lua.NewJob{ID: "soon", Priority: 4, When: fmt.Sprintf("@%d", start+1), Body: "."},
		lua.NewJob{ID: "delayed", Priority: 4, When: "+1", Body: "."})
	require.Equal(t, map[string]string{"layout": "1"}, q.meta())
	require.Equal(t, map[string]string{"seq": "5", "want": fmt.Sprint(start), "largest": fmt.Sprint(len(head) + len(".payload"))}, q.hash(":state"))
	require.Equal(t, fmt.Sprintf("1%012x%011x000000000.payload", 1, start), q.text("GET :job:a"))
	for id, due := range map[string]int64{"a": 0, "now": 0, "past": 0, "soon": start + 1, "delayed": start + 1} {
		f, record := q.found(id)
		require.Equal(t, time.UnixMilli(start), record.Enqueued, id)
		if due == 0 {
			require.Equal(t, "wait", f.State, id)
		} else {
			require.Equal(t, "delayed", f.State, id)
			require.Equal(t, due, f.At.UnixMilli(), id)
		}
	}
	require.Equal(t, []string{"a"}, q.list("LRANGE :wait1 0 -1"))
	require.Equal(t, []string{"now", "past"}, q.list("LRANGE :wait4 0 -1"))
	q.do("HSET", ":meta", "layout", "1", "max", "3")
	q.wait("b")
	require.Equal(t, map[string]string{"layout": "1", "max": "3"}, q.meta())
	require.Equal(t, "6", q.hash(":state")["seq"])
	require.Equal(t, fmt.Sprint(len(head)+len(".payload")), q.hash(":state")["largest"], "the largest ever")
}

func (q *queue) hash(key string) map[string]string {
	q.Helper()
	m, err := q.do("HGETALL", key).AsStrMap()
	require.NoError(q, err)
	return m
}

func TestManyJobsInOneEnqueue(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var jobs []lua.NewJob
	for i, id := range ids(9000) {
		if i%3 == 0 {
			jobs = append(jobs, delayed(id, time.Hour))
		} else {
			jobs = append(jobs, job(id))
		}
	}
	q.enqueue(jobs...)
	require.Equal(t, [6]int64{6000, 0, 3000, 0, 0, 0}, q.counts())
	require.Equal(t, "j8999", q.text("LINDEX :wait2 -1"))
	require.EqualValues(t, 9000, len(q.list("KEYS "+q.keys.Job("*"))))
}

// A counter of a record stops at the largest number that it has room for.
func TestCountersStopAtTheirWidth(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limited("1")
	q.do("SET", ":limiter", "1", "PX", "500")
	q.do("SETRANGE", ":job:a", "24", "fffffffe0")
	size := q.number("STRLEN :job:a")
	require.Equal(t, "a", sentBack(q.claim(1)))
	q.do("HSET", ":meta", "max", "0")
	c, err := lua.Claim(t.Context(), q.client, q.keys, "", "n", 1, lease, 1000)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, c.IDs)
	q.clock.Advance(lease)
	for range 2 {
		c, err = lua.Claim(t.Context(), q.client, q.keys, "", "n", 1, lease, 1000)
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, c.IDs)
		q.clock.Advance(lease)
	}
	_, err = lua.Claim(t.Context(), q.client, q.keys, "", "n", 0, lease, 1000)
	require.NoError(t, err)
	held := q.claimed(lua.Retry, 0, "e")
	_, record := q.found("a")
	require.Equal(t, [3]int{4095, 65535, 15}, [3]int{record.Attempts, record.Deferrals, record.Reclaims})
	q.settle(held)
	_, record = q.found("a")
	require.Equal(t, [3]int{4095, 65535, 0}, [3]int{record.Attempts, record.Deferrals, record.Reclaims}, "its handler returned")
	require.Equal(t, size, q.number("STRLEN :job:a"))
}
