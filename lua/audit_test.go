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

// entries are the audit's entries, without their ids.
func (q *queue) entries() []map[string]string {
	q.Helper()
	stream, err := q.run("XRANGE :audit - +").AsXRange()
	require.NoError(q, err)
	entries := make([]map[string]string, len(stream))
	for i, e := range stream {
		entries[i] = e.FieldValues
	}
	return entries
}

// Each script that changes the queue says so once when it is asked to, and never else. A bucket is not the queue's, and a look moves no job.
func TestAuditHasEachChange(t *testing.T) {
	t.Parallel()
	eachScene(t, func(t *testing.T, q *queue, p play) {
		require.NoError(t, p.call())
		if strings.HasPrefix(p.script, "take") || p.script == "look" {
			require.Empty(t, q.entries())
			return
		}
		entries := q.entries()
		require.Len(t, entries, 1)
		require.Equal(t, p.script, entries[0]["op"])
		require.Equal(t, fmt.Sprint(start), entries[0]["at"])

		p.again()
		q.do("HDEL", ":meta", "audit")
		q.do("DEL", ":audit")
		require.NoError(t, p.call())
		require.EqualValues(t, 0, q.number("EXISTS :audit"))
	})
}

func TestAuditOfNothing(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a")
	q.do("HSET", ":meta", "audit", "1000")
	for _, call := range []func(*queue, ...string) ([]string, error){runNow, redrive, remove} {
		_, err := call(q, "b")
		require.NoError(t, err)
	}
	_, err := lua.Enqueue(t.Context(), q.client, q.keys, []lua.NewJob{job("a")})
	require.NoError(t, err)
	require.Empty(t, q.entries())
}

func TestAuditIsKeptShort(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.wait("a")
	q.do("HSET", ":meta", "audit", "100")
	for range 500 {
		q.claim(0)
	}
	n := q.number("XLEN :audit")
	assert.GreaterOrEqual(t, n, int64(100))
	assert.LessOrEqual(t, n, int64(300))
}

// What the entries say, so that a checker can replay them.
func TestAuditSaysWhatWasDone(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.do("HSET", ":meta", "audit", "1000")
	require.NoError(t, setLimit(3, "1000")(q))
	q.enqueue(job("a"), job("b"), delayed("c", time.Second), lua.NewJob{ID: "urgent", Priority: 1, Body: "."}, job("d"))
	first := q.claim(9)
	require.Equal(t, "d", sentBack(first))
	_, err := q.trySettle(
		lua.Settlement{Outcome: lua.Retry, ID: "a", Token: first.Token, Wait: time.Minute},
		lua.Settlement{Outcome: lua.Complete, ID: "b", Token: "stale"})
	require.NoError(t, err)
	q.clock.Advance(lease)
	second := q.claim(1)
	q.do("HSET", ":meta", "max", "9")
	q.claim(1)
	q.do("HSET", ":meta", "max", "1")
	q.claim(0)
	q.do("HSET", ":meta", "max", "0")
	q.claim(1)
	at := fmt.Sprint(start)
	got := q.entries()
	require.Len(t, got, 8)
	for i, want := range [][3]string{{"3", "1", "claimed"}, {"", "", ""}, {"1", "1", "claimed"}, {"2", "0", "claimed"}, {"2", "0", "limited"}, {"0", "0", "claimed"}} {
		require.Equal(t, want, [3]string{got[2+i]["count"], got[2+i]["opened"], got[2+i]["answer"]}, "claim %d", i)
	}
	says := func(i int, want map[string]string) {
		t.Helper()
		for field := range got[i] {
			if _, ok := want[field]; !ok {
				delete(got[i], field)
			}
		}
		assert.Equal(t, want, got[i])
	}
	says(0, map[string]string{"op": "limit", "at": at, "max": "3", "duration": "1000", "reason": "why"})
	says(1, map[string]string{"op": "enqueue", "at": at, "ids": "a b c urgent d",
		"places": fmt.Sprintf("2:1 2:2 2:3@%d 1:4 2:5", start+1000)})
	says(2, map[string]string{"op": "claim", "at": at, "k": "9", "token": first.Token, "granted": "urgent a b",
		"sent_back": "d * 1000", "retry_after": "1000", "returned": "", "reclaimed": "", "dead": "", "missing": "",
		"max": "3", "duration": "1000", "lease": "30000", "more": "0"})
	says(3, map[string]string{"op": "settle", "at": at, "process": process, "lost": "1",
		"jobs": "retry a|" + first.Token + " 60000"})
	says(4, map[string]string{"op": "claim", "at": fmt.Sprint(start + 30_000), "k": "1", "token": second.Token,
		"granted": "urgent", "sent_back": "", "retry_after": "0", "returned": "c d", "reclaimed": "b urgent", "dead": "", "missing": "",
		"max": "3", "duration": "1000", "lease": "30000", "more": "0"})
}
