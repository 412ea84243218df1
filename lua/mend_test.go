package lua_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

func (q *queue) mend(fix bool, suspects ...lua.Suspect) []string {
	q.Helper()
	answers, err := lua.Mend(q.ctx(), q.client, q.keys, fix, suspects)
	require.NoError(q, err)
	return answers
}

// mending puts right what break has broken.
func mending(breaks func(q *queue) []lua.Suspect) scene {
	return func(q *queue) func() error {
		suspects := breaks(q)
		q.do("HSET", ":meta", "audit", "1000")
		q.do("DEL", ":wake", ":audit")
		return func() error { return second(lua.Mend(q.ctx(), q.client, q.keys, true, suspects)) }
	}
}

func suspects(kind string, names ...string) (list []lua.Suspect) {
	for _, name := range names {
		list = append(list, lua.Suspect{Kind: kind, Name: name})
	}
	return list
}

// astray takes jobs out of where they stand; the last of the suspects are in their places.
func astray(q *queue) []lua.Suspect {
	everywhere(q)
	q.do("LREM", ":wait:1", "0", "wait1")
	q.do("ZREM", ":delayed", "sent", "later")
	q.do("ZREM", ":back", "back")
	q.do("LPUSH", ":wait:2", "wait4") // before the head's place, and not in its own list's
	for _, member := range q.list("ZRANGE :active 0 -1") {
		if member[:6] == "active" {
			q.do("ZREM", ":active", member)
		}
	}
	return suspects("job", "wait1", "sent", "later", "back", "active", "active", "none", "lost", "ended", "wait2", "wait3", "due1", "dead1", "kept1")
}

func TestMendJobs(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	all := astray(q)
	want := []string{"restored", "restored", "restored", "restored", "restored", "restored", "unknown", "unknown", "fine", "fine", "fine", "fine", "fine", "fine"}
	before := q.digest()
	require.Equal(t, want, q.mend(false, all...))
	require.Equal(t, before, q.digest())
	q.do("DEL", ":wake")
	require.Equal(t, want, q.mend(true, all...))
	require.EqualValues(t, 1, q.number("LLEN :wake"))
	for _, id := range []string{"wait1", "sent", "later", "back", "active"} {
		_, record := q.found(id)
		require.Equal(t, fmt.Sprint(record.Place()), q.text("ZSCORE :back "+id), id)
	}
	require.Empty(t, q.text("ZSCORE :sent sent"), "it is sent back no more")
	entries := q.entries()
	require.Equal(t, "wait1 sent later back active", entries[len(entries)-1]["ids"])
	require.Equal(t, []string{"fine", "fine", "fine", "fine", "fine", "fine"}, q.mend(true, all[:6]...))
	require.Len(t, q.entries(), len(entries), "nothing was done, and nothing is said of it")
	require.Subset(t, q.claim(30).IDs, []string{"wait1", "sent", "later", "back", "active"})
}

// A list that is in no order hides no job; and what is out of its list is found whatever the order.
func TestMendLooksThroughTheLists(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.wait("a", "b", "c", "d", "e")
	q.do("LREM", ":wait:2", "0", "a")
	q.do("RPUSH", ":wait:2", "a")
	q.do("LREM", ":wait:2", "0", "c")
	q.enqueue(lua.NewJob{ID: "alone", Priority: 3, Body: "."})
	q.do("DEL", ":wait:3")
	q.do("ZADD", ":completed", "1", "e") // whose time is over
	q.do("LREM", ":wait:2", "0", "e")
	require.Equal(t, []string{"fine", "fine", "restored", "fine", "restored", "fine"}, q.mend(false, suspects("job", "a", "b", "c", "d", "alone", "e")...))
}

// brokenLines breaks lines in each way.
func brokenLines(q *queue) []lua.Suspect {
	lined(q)
	q.do("ZREM", ":lines", "chat:b")
	q.do("ZADD", ":lined:model", "7", "model:m")
	q.do("ZADD", ":lines", fmt.Sprint(start), "chat:gone")
	q.do("ZADD", ":lined:chat", "3", "chat:gone")
	q.do("HSET", ":tally", "line flight", "5", "line ghost", "2")
	q.do("ZREM", ":lined:drip", "drip:d")
	return suspects("line", "chat:b", "chat:b", "model:m", "chat:gone", "flight:t", "ghost", "drip:d", "model:o", "model:s", "none")
}

func TestMendLines(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	all := brokenLines(q)
	want := []string{"listed", "listed", "counted", "unlisted", "counted", "counted", "counted", "fine", "fine", "fine"}
	before := q.digest()
	require.Equal(t, want, q.mend(false, all...))
	require.Equal(t, before, q.digest())
	require.Equal(t, want, q.mend(true, all...))
	require.Equal(t, "0", q.text("ZSCORE :stale chat:b"))
	require.Equal(t, "1", q.text("ZSCORE :lined:model model:m"))
	require.Empty(t, q.text("ZSCORE :lines chat:gone"))
	require.Empty(t, q.text("ZSCORE :lined:chat chat:gone"))
	require.Equal(t, "1", q.text("ZSCORE :lined:drip drip:d"))
	require.EqualValues(t, 0, q.tallied("ghost"))
	for _, limit := range []string{"chat", "model", "flight", "drip", "tpm", "ghost"} {
		sum := 0
		for _, bucket := range q.list("ZRANGE :lined:" + limit + " 0 -1") {
			sum += int(q.number("ZCARD :line:" + bucket))
		}
		require.EqualValues(t, sum, q.tallied(limit), limit)
	}
	for i := range all {
		require.Equal(t, "fine", q.mend(true, all[i])[0], all[i].Name)
	}
	require.Contains(t, q.claim(100).IDs, "b2")
}

// tallied is how many jobs the lines of a limit are said to hold.
func (q *queue) tallied(limit string) int64 {
	n, _ := q.do("HGET", ":tally", "line "+limit).AsInt64()
	return n
}

// ownless leaves what leases held behind, without the leases.
func ownless(q *queue) []lua.Suspect {
	lined(q)
	var all []lua.Suspect
	for _, member := range q.list("ZRANGE :active 0 -1") {
		if id := member[:2]; id == "t1" || id == "t2" || id == "u1" {
			all = append(all, lua.Suspect{Kind: "lease", Name: member}, lua.Suspect{Kind: "lease", Name: member, Bucket: "flight:" + id[:1]})
			if id != "t2" {
				q.do("ZREM", ":active", member)
			}
		}
	}
	return append(all, lua.Suspect{Kind: "lease", Name: "x|1-y"}, lua.Suspect{Kind: "lease", Name: "x|1-y", Bucket: "flight:t"})
}

func TestMendLeases(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	all := ownless(q)
	before := q.digest()
	wants := map[string]string{"t1": "dropped", "u1": "dropped", "t2": "fine", "x|": "fine"}
	var want []string
	for _, s := range all {
		want = append(want, wants[s.Name[:2]])
	}
	require.Len(t, all, 8)
	require.Equal(t, want, q.mend(false, all...))
	require.Equal(t, before, q.digest())
	require.Equal(t, want, q.mend(true, all...))
	require.Len(t, q.list("ZRANGE :limiter:flight:t 0 -1"), 1)
	require.Len(t, q.list("ZRANGE :limiter:flight:u 0 -1"), 1, "that of u2")
	for _, s := range all {
		if wants[s.Name[:2]] == "dropped" {
			require.Empty(t, q.text("HGET :leases "+s.Name))
		}
	}
}

func TestMendRefuses(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a")
	q.do("DEL", ":wait:2")
	q.do("HSET", ":state", "seq", "x")
	before := q.digest()
	_, err := lua.Mend(t.Context(), q.client, q.keys, true, suspects("job", "a"))
	require.ErrorContains(t, err, "seq=x")
	q.do("HSET", ":meta", "layout", "2")
	_, err = lua.Mend(t.Context(), q.client, q.keys, true, suspects("job", "a"))
	require.ErrorContains(t, err, "layout")
	q.do("HSET", ":meta", "layout", "1")
	require.Equal(t, before, q.digest())
}
