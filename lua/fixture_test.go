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
	duplicate, err := lua.Enqueue(q.ctx(), q.client, q.keys, jobs)
	require.NoError(q, err)
	require.NotContains(q, duplicate, true)
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
	return lua.Claim(q.ctx(), q.client, q.keys, "n"+strconv.Itoa(q.calls), k, lease, reclaims)
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
