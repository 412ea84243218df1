package lua_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

// twins are two queues of one server that are always told the same.
type twins [2]*queue

// step does something at random to both.
func (w twins) step(r *rand.Rand, leases map[string]string) {
	both := func(do func(q *queue)) { do(w[0]); do(w[1]) }
	held := slices.Sorted(maps.Keys(leases))
	switch r.IntN(10) {
	case 0, 1, 2:
		jobs := make([]lua.NewJob, 1+r.IntN(4))
		for i := range jobs {
			jobs[i] = lua.NewJob{ID: fmt.Sprintf("%x", r.Uint32()), Priority: 1 + r.IntN(4), Body: "."}
			if r.IntN(3) == 0 {
				jobs[i].When = fmt.Sprintf("+%d", r.IntN(4000))
			}
		}
		both(func(q *queue) { q.enqueue(jobs...) })
	case 3, 4:
		k := 1 + r.IntN(4)
		a, b := w[0].claim(k), w[1].claim(k)
		require.Equal(w[0], a, b)
		for _, id := range a.IDs {
			leases[id] = a.Token
		}
	case 5, 6:
		if len(held) == 0 {
			return
		}
		id := held[r.IntN(len(held))]
		outcome := []string{lua.Complete, lua.Retry, lua.Defer, lua.HandBack, lua.HandBack, lua.DeadLetter}[r.IntN(6)]
		s := lua.Settlement{Outcome: outcome, ID: id, Token: leases[id], Wait: time.Duration(r.IntN(3000)) * time.Millisecond}
		both(func(q *queue) { require.NoError(q, second(q.trySettle(s))) })
		delete(leases, id)
	case 7:
		max, window := int64(r.IntN(6)), fmt.Sprint(500+r.IntN(2000))
		both(func(q *queue) { require.NoError(q, setLimit(max, window)(q)) })
	case 8:
		w[0].clock.Advance(time.Duration(r.IntN(2000)) * time.Millisecond)
		if r.IntN(6) == 0 {
			w[0].clock.Advance(lease)
		}
	case 9:
		list := fmt.Sprintf("LINDEX :wait%d -1", 1+r.IntN(4))
		if id := w[0].text(list); id != "" && r.IntN(2) == 0 {
			both(func(q *queue) { q.do("DEL", q.keys.Job(id)) })
		}
	}
}

// jobs is all that the queue knows of its jobs and its budget, without tokens.
func (q *queue) jobs() map[string]string {
	q.Helper()
	seen := map[string]string{"limiter": q.text("GET :limiter") + " " + q.text("PTTL :limiter")}
	for name := range q.keys.All() {
		switch lua.Kind(name) {
		case "list":
			seen[name] = strings.Join(q.list("LRANGE :"+name+" 0 -1"), " ")
		case "zset":
			members, err := q.run("ZRANGE :" + name + " 0 -1 WITHSCORES").AsZScores()
			require.NoError(q, err)
			for _, m := range members {
				id, _, _ := strings.Cut(m.Member, "|")
				seen[name+" "+id] = strconv.FormatFloat(m.Score, 'f', -1, 64)
			}
		}
	}
	delete(seen, "wake")
	for _, key := range q.list("KEYS " + q.keys.Job("*")) {
		seen[strings.TrimPrefix(key, q.keys.Prefix())] = q.text("GET " + key)
	}
	return seen
}

// A claim of k grants, and sends back, what k claims of one in the same millisecond would, stopped at the first that grants
// nothing. A claim that says more is followed by another.
func TestBatchIsManySingleClaims(t *testing.T) {
	t.Parallel()
	r, shared := random(t), clocked(t)
	for range 80 {
		shared.do("FLUSHALL")
		w, leases := twins{shared.another(t), shared.another(t)}, map[string]string{}
		for range 5 + r.IntN(40) {
			w.step(r, leases)
		}
		before := w[0].jobs()
		require.Equal(t, before, w[1].jobs())

		k := 1 + r.IntN(10)
		var batch, single lua.Claimed
		var batched, singly []string // ids and records
		for left := k; left > 0; left -= len(batch.IDs) {
			batch = w[0].claim(left)
			for i, id := range batch.IDs {
				batched = append(batched, id, batch.Records[i])
			}
			if !batch.More {
				break
			}
		}
		for range k {
			single = w[1].claim(1)
			for i, id := range single.IDs {
				singly = append(singly, id, single.Records[i])
			}
			if len(single.IDs) == 0 {
				break
			}
		}
		require.Equal(t, singly, batched, "k %d of %v", k, before)
		require.Equal(t, sentBack(single), sentBack(batch))
		require.Equal(t, single.Retry, batch.Retry)
		require.Equal(t, w[1].jobs(), w[0].jobs())
	}
}
