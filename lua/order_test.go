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

// stepLimited does something at random to both, where limits by name are set.
func (w twins) stepLimited(r *rand.Rand, leases map[string]string) {
	both := func(do func(q *queue)) { do(w[0]); do(w[1]) }
	held := slices.Sorted(maps.Keys(leases))
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	switch r.IntN(12) {
	case 0, 1, 2, 3:
		jobs := make([]lua.NewJob, 1+r.IntN(5))
		for i := range jobs {
			words := []string{}
			for _, word := range []string{"chat=" + one("a", "b"), "model=" + one("m", "n"), "tenant=" + one("t", "u"), "tokens:" + one("1", "2", "4")} {
				if r.IntN(2) == 0 {
					words = append(words, word)
				}
			}
			jobs[i] = carries(fmt.Sprintf("%x", r.Uint32()), strings.Join(words, " "))
			jobs[i].Priority = 1 + r.IntN(2)
		}
		both(func(q *queue) { _, err := lua.Enqueue(q.ctx(), q.client, q.keys, jobs); require.NoError(q, err) })
	case 4, 5:
		k := 1 + r.IntN(3)
		a, b := w[0].claim(k), w[1].claim(k)
		require.Equal(w[0], a, b)
		for _, id := range a.IDs {
			leases[id] = a.Token
		}
	case 6, 7:
		if len(held) == 0 {
			return
		}
		id := held[r.IntN(len(held))]
		s := lua.Settlement{Outcome: one(lua.Complete, lua.Complete, lua.Defer, lua.HandBack, lua.Limited), ID: id, Token: leases[id],
			Wait: time.Duration(r.IntN(2000)) * time.Millisecond, Text: one("chat\n429", "\n429"), Costs: tokens(int64(r.IntN(6)))}
		both(func(q *queue) { require.NoError(q, second(q.trySettle(s))) })
		delete(leases, id)
	case 8:
		line := one("set chat max=1", "set chat max=2", "set model window=700", "set model window=1500", "reset chat", "reset model", "unset flight",
			"set flight by=tenant algorithm=concurrency max=1", "set flight by=tenant algorithm=concurrency max=2", "set tpm max=5", "set tpm max=3",
			"reset tpm")
		both(func(q *queue) { _, _, err := q.tryLimit(line); require.NoError(q, err) })
	case 9:
		value := one("a", "b")
		if r.IntN(2) == 0 {
			both(func(q *queue) { q.close("chat", value, "+800") })
		} else {
			both(func(q *queue) { q.reopen("chat", value) })
		}
	case 10:
		w[0].clock.Advance(time.Duration(r.IntN(1200)) * time.Millisecond)
		if r.IntN(10) == 0 {
			w[0].clock.Advance(lease)
		}
	case 11:
		lines := w[0].list("KEYS " + w[0].keys.Prefix() + "line:*")
		slices.Sort(lines)
		if len(lines) == 0 {
			return
		}
		id := w[0].list("ZRANGE " + lines[r.IntN(len(lines))] + " 0 0")[0]
		call := []func(*queue, ...string) ([]string, error){runNow, remove}[r.IntN(2)]
		both(func(q *queue) { require.NoError(q, second(call(q, id))) })
	}
}

// waiting is all that the queue knows of jobs that wait for limits by name, and of these; without the ids of windows.
func (q *queue) waiting() map[string]string {
	q.Helper()
	seen := q.jobs()
	for name := range seen {
		if name == "limiter" || strings.HasPrefix(name, "uncounted") {
			delete(seen, name)
		}
	}
	for _, part := range []string{"limiter:", "line:", "lined:", "hold:"} {
		for _, key := range q.list("KEYS " + q.keys.Prefix() + part + "*") {
			name := strings.TrimPrefix(key, q.keys.Prefix())
			if q.text("TYPE "+key) == "string" {
				seen[name] = q.text("GET " + key)
				if words := strings.Fields(seen[name]); part == "limiter:" && len(words) == 2 {
					seen[name] = words[0]
				}
				continue
			}
			members, err := q.run("ZRANGE " + key + " 0 -1 WITHSCORES").AsZScores()
			require.NoError(q, err)
			for _, m := range members {
				id, _, _ := strings.Cut(m.Member, "|")
				seen[name+" "+id] = strconv.FormatFloat(m.Score, 'f', -1, 64)
			}
		}
	}
	return seen
}

// requireNothingGrantable fails if a job waits that nothing blocks.
func (q *queue) requireNothingGrantable() {
	q.Helper()
	for _, key := range q.list("KEYS " + q.keys.Job("*")) {
		id := strings.TrimPrefix(key, q.keys.Job(""))
		e, ok, err := lua.Explain(q.ctx(), q.client, q.keys, id, lease)
		require.NoError(q, err)
		if ok && (e.State == "wait" || e.Line != nil) {
			require.NotEqual(q, "granted", e.Verdict, "%s %+v", id, e)
		}
	}
}

// Under limits by name, too, a batch grants what single claims would; and a claim that grants less than it may leaves nobody who
// could be granted.
func TestBatchUnderLimitsIsManySingleClaims(t *testing.T) {
	t.Parallel()
	r, shared := random(t), clocked(t)
	for range 80 {
		shared.do("FLUSHALL")
		w, leases := twins{shared.another(t), shared.another(t)}, map[string]string{}
		algorithms := []string{"fixed_window", "sliding_log", "sliding_window_counter", "token_bucket", "leaky_bucket"}
		for _, q := range w {
			q.limit("set model max=1 window=1000 by=model")
			q.limit("set flight max=2 by=tenant algorithm=concurrency")
		}
		chat, tpm := algorithms[r.IntN(5)], algorithms[r.IntN(4)]
		for _, q := range w {
			q.limit("set chat max=2 window=900 by=chat algorithm=" + chat)
			q.limit("set tpm max=5 window=1300 unit=tokens by=chat algorithm=" + tpm)
		}
		for range 10 + r.IntN(60) {
			w.stepLimited(r, leases)
		}
		before := w[0].waiting()
		require.Equal(t, before, w[1].waiting())

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
		for len(singly) < 2*k {
			single = w[1].claim(1)
			for i, id := range single.IDs {
				singly = append(singly, id, single.Records[i])
			}
			if len(single.IDs) == 0 && !single.More {
				break
			}
		}
		require.Equal(t, singly, batched, "k %d of %v", k, before)
		require.Equal(t, w[1].waiting(), w[0].waiting(), "k %d of %v", k, before)
		if len(batched) < 2*k {
			w[0].requireNothingGrantable()
		}
	}
}
