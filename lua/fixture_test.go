package lua_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one each time")

func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }

// random returns a source of random numbers; a failed test prints its seed.
func random(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to run this again: -seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

const (
	start    = 1_800_000_000_000 // where the clocks of tests stand at first, server ms
	lease    = 30 * time.Second
	reclaims = 3
	process  = "p"
)

// queue is a queue of one test, on some server.
type queue struct {
	testing.TB
	client valkey.Client
	keys   lua.Keys
	clock  *valkeyd.Clock // nil: the real one
	calls  int            // claims and settles made
}

// newQueue returns a new queue on the server that all tests share.
func newQueue(t testing.TB) *queue {
	t.Helper()
	return queueOn(t, emqtest.Client(t), nil)
}

func queueOn(t testing.TB, c valkey.Client, clock *valkeyd.Clock) *queue {
	t.Helper()
	keys, err := lua.ForQueue(emqtest.Queue(t))
	require.NoError(t, err)
	return &queue{TB: t, client: c, keys: keys, clock: clock}
}

// clocked returns a new queue on a server of its own, whose clock stands at start.
func clocked(t testing.TB) *queue {
	t.Helper()
	s, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	clock.Set(start)
	return queueOn(t, dial(t, s), clock)
}

// another returns a new queue on the same server.
func (q *queue) another(t testing.TB) *queue {
	t.Helper()
	return queueOn(t, q.client, q.clock)
}

func server(t testing.TB, opts valkeyd.Options) *valkeyd.Server {
	t.Helper()
	s, err := valkeyd.Start(opts)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

func dial(t testing.TB, s *valkeyd.Server) valkey.Client {
	t.Helper()
	c, err := valkey.NewClient(s.Options())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// key is one of the queue's keys by the name that scripts give it, or by what follows the prefix.
func (q *queue) key(name string) string {
	if key, ok := q.keys.All()[name]; ok {
		return key
	}
	return q.keys.Prefix() + name
}

// do runs a plain command; words that begin with ':' are names of keys.
func (q *queue) do(args ...string) valkey.ValkeyResult {
	q.Helper()
	named := make([]string, len(args))
	for i, arg := range args {
		if name, ok := strings.CutPrefix(arg, ":"); ok {
			arg = q.key(name)
		}
		named[i] = arg
	}
	r := q.client.Do(q.ctx(), q.client.B().Arbitrary(named...).Build())
	if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) {
		q.Fatalf("%q: %v", named, err)
	}
	return r
}

func (q *queue) ctx() context.Context { return q.Context() }

// run runs a plain command written in one line.
func (q *queue) run(command string) valkey.ValkeyResult {
	q.Helper()
	return q.do(strings.Fields(command)...)
}

// text is the answer of a plain command as one string; "" for none.
func (q *queue) text(command string) string {
	q.Helper()
	r := q.run(command)
	if valkey.IsValkeyNil(r.Error()) {
		return ""
	}
	s, err := r.ToString()
	if err != nil {
		n, err := r.AsInt64()
		require.NoError(q, err, command)
		return strconv.FormatInt(n, 10)
	}
	return s
}

func (q *queue) number(command string) int64 {
	q.Helper()
	n, err := q.run(command).AsInt64()
	require.NoError(q, err, command)
	return n
}

func (q *queue) list(command string) []string {
	q.Helper()
	s, err := q.run(command).AsStrSlice()
	require.NoError(q, err, command)
	return s
}

// digest is the server's own digest of everything it holds.
func (q *queue) digest() string {
	q.Helper()
	return q.text("DEBUG DIGEST")
}

// now is the server's clock in ms.
func (q *queue) now() int64 {
	q.Helper()
	parts, err := q.run("TIME").AsIntSlice()
	require.NoError(q, err)
	return parts[0]*1000 + parts[1]/1000
}

// job is a job that may be claimed at once.
func job(id string) lua.NewJob { return lua.NewJob{ID: id, Priority: 2, Body: "."} }

// delayed is a job that is due after d.
func delayed(id string, d time.Duration) lua.NewJob {
	return lua.NewJob{ID: id, Priority: 2, When: fmt.Sprintf("+%d", d.Milliseconds()), Body: "."}
}

func (q *queue) enqueue(jobs ...lua.NewJob) {
	q.Helper()
	answers, err := lua.Enqueue(q.ctx(), q.client, q.keys, jobs)
	require.NoError(q, err)
	for i, a := range answers {
		require.Equal(q, lua.Enqueued{}, a, jobs[i].ID)
	}
}

// wait enqueues jobs that may be claimed at once.
func (q *queue) wait(ids ...string) {
	q.Helper()
	jobs := make([]lua.NewJob, len(ids))
	for i, id := range ids {
		jobs[i] = job(id)
	}
	q.enqueue(jobs...)
}

// ids are n ids: j0, j1, …
func ids(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = "j" + strconv.Itoa(i)
	}
	return s
}

func (q *queue) tryClaim(k int) (lua.Claimed, error) {
	q.calls++
	return lua.Claim(q.ctx(), q.client, q.keys, "w1", "n"+strconv.Itoa(q.calls), k, lease, reclaims)
}

func (q *queue) claim(k int) lua.Claimed {
	q.Helper()
	c, err := q.tryClaim(k)
	require.NoError(q, err)
	return c
}

func (q *queue) trySettle(jobs ...lua.Settlement) ([]bool, error) {
	q.calls++
	return lua.Settle(q.ctx(), q.client, q.keys, process, int64(q.calls), lease, jobs)
}

// settle settles jobs whose leases are held.
func (q *queue) settle(jobs ...lua.Settlement) {
	q.Helper()
	lost, err := q.trySettle(jobs...)
	require.NoError(q, err)
	require.NotContains(q, lost, true)
}

// claimed claims the one job that is next and returns how it is settled.
func (q *queue) claimed(outcome string, wait time.Duration, text string) lua.Settlement {
	q.Helper()
	c := q.claim(1)
	require.Len(q, c.IDs, 1)
	return lua.Settlement{Outcome: outcome, ID: c.IDs[0], Token: c.Token, Wait: wait, Text: text}
}

// found looks at a job that exists.
func (q *queue) found(id string) (lua.Found, lua.Record) {
	q.Helper()
	f, ok, err := lua.ReadJob(q.ctx(), q.client, q.keys, id)
	require.NoError(q, err)
	require.True(q, ok, "job %s does not exist", id)
	r, err := lua.ParseRecord(f.Record)
	require.NoError(q, err)
	return f, r
}

// state is where a job is; unknown when it does not exist.
func (q *queue) state(id string) string {
	q.Helper()
	f, ok, err := lua.ReadJob(q.ctx(), q.client, q.keys, id)
	require.NoError(q, err)
	if !ok {
		return "unknown"
	}
	return f.State
}

// counts is how many jobs wait, are active, delayed, sent back, dead and completed.
func (q *queue) counts() [6]int64 {
	q.Helper()
	c, err := lua.ReadCounts(q.ctx(), q.client, q.keys)
	require.NoError(q, err)
	return [6]int64{c.Wait, c.Active, c.Delayed, c.Sent, c.Dead, c.Completed}
}

func values[K comparable, V any](m map[K]V) []V { return slices.Collect(maps.Values(m)) }

// setLimitTexts sets the queue's own fixed window; max 0 lifts it, an empty duration keeps the window.
func setLimitTexts(ctx context.Context, c valkey.Client, keys lua.Keys, max int64, duration, reason string) (oldMax, oldDuration string, err error) {
	change := lua.LimitChange{Op: "set", Max: max, Duration: duration, Reason: reason}
	if max == 0 {
		change.Op = "lift"
	}
	old, err := lua.SetLimit(ctx, c, keys, change)
	return old.Max, old.Duration, err
}

// sentBack is the first job that a claim sent back; "" for none.
func sentBack(c lua.Claimed) string {
	if len(c.SentBack) == 0 {
		return ""
	}
	return c.SentBack[0].ID
}

// duplicates says which jobs existed before.
func duplicates(answers []lua.Enqueued) []bool {
	found := make([]bool, len(answers))
	for i, a := range answers {
		found[i] = a.Duplicate
	}
	return found
}

// tryLimit changes a limit by name: "set tpm max=5 by=tenant", "unset tpm", "reset tpm". Values are rules of single key values.
func (q *queue) tryLimit(line string, values ...lua.NamedValue) (before string, known bool, err error) {
	words := strings.Fields(line)
	c := lua.NamedChange{Op: words[0], Name: words[1], Reason: "why", Values: values}
	for _, word := range words[2:] {
		field, value, _ := strings.Cut(word, "=")
		switch field {
		case "max":
			c.Max = value
		case "window":
			c.Window = value
		case "burst":
			c.Burst = value
		case "algorithm":
			c.Algorithm = value
		case "by":
			c.By = value
		case "unit":
			c.Unit = value
		case "mode":
			c.Mode = value
		default:
			q.Fatalf("a limit has no %s", field)
		}
	}
	return lua.SetNamed(q.ctx(), q.client, q.keys, c)
}

func (q *queue) limit(line string, values ...lua.NamedValue) {
	q.Helper()
	_, known, err := q.tryLimit(line, values...)
	require.NoError(q, err)
	require.True(q, known, line)
}

// carries is a job with keys and costs: "tenant=a tokens:5".
func carries(id, words string) lua.NewJob {
	h := lua.Header{Keys: map[string]string{}, Cost: map[string]int64{}}
	for _, word := range strings.Fields(words) {
		if key, value, ok := strings.Cut(word, "="); ok {
			h.Keys[key] = value
		} else {
			unit, n, _ := strings.Cut(word, ":")
			h.Cost[unit], _ = strconv.ParseInt(n, 10, 64)
		}
	}
	return lua.NewJob{ID: id, Priority: 2, Body: lua.Body(h, nil)}
}

// alike are jobs that carry the same.
func alike(words string, ids ...string) []lua.NewJob {
	jobs := make([]lua.NewJob, len(ids))
	for i, id := range ids {
		jobs[i] = carries(id, words)
	}
	return jobs
}

// close shuts the queue (key "") or a key value: when is "+ms" or "@ms".
func (q *queue) close(key, value, when string) {
	q.Helper()
	_, _, err := lua.Close(q.ctx(), q.client, q.keys, "close", key, value, when, "why")
	require.NoError(q, err)
}

func (q *queue) reopen(key, value string) {
	q.Helper()
	_, _, err := lua.Close(q.ctx(), q.client, q.keys, "reopen", key, value, "", "")
	require.NoError(q, err)
}

// granted claims up to k jobs, as often as the claims say more, and returns their ids.
func (q *queue) granted(k int) []string {
	q.Helper()
	got := []string{}
	for range 1000 {
		c := q.claim(k - len(got))
		got = append(got, c.IDs...)
		if !c.More || len(got) == k {
			return got
		}
	}
	q.Fatal("the claims never end")
	return nil
}

// in is the bucket in whose line a job stands; "" for none.
func (q *queue) in(id string) string {
	q.Helper()
	for _, key := range q.list("KEYS " + q.keys.Prefix() + "line:*") {
		if q.text("ZSCORE "+key+" "+id) != "" {
			return strings.TrimPrefix(key, q.keys.Prefix()+"line:")
		}
	}
	return ""
}

// done is the settlement of a claimed job with what it really cost.
func done(c lua.Claimed, id string, costs map[string]int64) lua.Settlement {
	return lua.Settlement{Outcome: lua.Complete, ID: id, Token: c.Token, Costs: costs}
}

// bucket is how a bucket of a limit stands.
func (q *queue) bucket(limit, value string) lua.BucketState {
	q.Helper()
	b, err := lua.ReadBudgets(q.ctx(), q.client, q.keys, 0, []lua.ValueOf{{Limit: limit, Value: value}})
	require.NoError(q, err)
	for _, l := range b.Limits {
		if l.Name == limit {
			require.Len(q, l.Buckets, 1)
			return l.Buckets[0]
		}
	}
	q.Fatalf("there is no limit %s", limit)
	return lua.BucketState{}
}
