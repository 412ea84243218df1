package claim_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"pgregory.net/rapid"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/internal/model"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

const (
	lease       = 5000
	maxReclaims = 3
	start       = 1_800_000_000_000
)

// world is the model beside the real queue.
type world struct {
	*model.Queue
	t       *rapid.T
	rnd     draw
	clock   *valkeyd.Clock
	client  valkey.Client
	q       *queue.Queue
	claimer *claim.Claimer
	leases  map[string]*claim.Job
	ids     int
	mode    string
	audited bool // what the audit does not show does not happen
	many    bool // limits by name too
	log     []string
}

// draw makes numbers of single bits, each as likely as the others, where rapid's own integers are mostly small; what fails shrinks to few
// steps with small numbers.
type draw struct{ *rapid.T }

func (d draw) IntN(n int) int {
	v := 0
	for range bits.Len(uint(n)) + 5 {
		v <<= 1
		if rapid.Bool().Draw(d.T, "bit") {
			v++
		}
	}
	return v % n
}

// The modes of the test: the queue's own limit alone; any limits; and few buckets that many jobs want, so that jobs move between lines
// and hold their cost.
const (
	oneLimit   = "one limit"
	manyLimits = "many limits"
	contended  = "contended"
)

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%6d ", w.Now-start)+fmt.Sprintf(format, args...))
}

func (w *world) require(cond bool, format string, args ...any) {
	w.t.Helper()
	if !cond {
		w.t.Fatalf(format+"\n%s", append(args, strings.Join(w.log, "\n"))...)
	}
}

func (w *world) noError(err error) {
	w.t.Helper()
	w.require(err == nil, "%v", err)
}

func (w *world) key(name string) string { return "emq:{" + w.q.Name() + "}:" + name }

func (w *world) do(args ...string) {
	w.t.Helper()
	w.noError(w.client.Do(context.Background(), w.client.B().Arbitrary(args...).Build()).Error())
}

func (w *world) pick(state string) *model.Job {
	jobs := w.In(state)
	if len(jobs) == 0 {
		return nil
	}
	return jobs[w.rnd.IntN(len(jobs))]
}

// one of some values.
func one[T any](w *world, values ...T) T { return values[w.rnd.IntN(len(values))] }

func (w *world) step() {
	if w.mode == contended && w.rnd.IntN(20) > 0 {
		switch n := w.rnd.IntN(100); {
		case n < 25:
			w.enqueue()
		case n < 60:
			w.claim()
		case n < 85:
			w.Now += int64(w.rnd.IntN(200))
			w.clock.Set(w.Now)
			w.note("advance to %d", w.Now-start)
		default:
			w.settle()
		}
		return
	}
	for _, s := range steps {
		if w.many || !s.many {
			if w.rnd.IntN(100) < s.chance {
				s.do(w)
				return
			}
		}
	}
}

// steps are what may happen, tried in order until one does.
var steps = []struct {
	chance int // of 100
	many   bool
	do     func(*world)
}{
	{18, false, (*world).enqueue},
	{30, false, (*world).claim},
	{25, false, (*world).settle},
	{8, false, (*world).extend},
	{40, false, (*world).advance},
	{20, true, (*world).changeNamed},
	{25, true, (*world).shut},
	{30, false, (*world).changeOwn},
	{40, false, (*world).disturb},
	{100, false, (*world).manage},
}

func (w *world) enqueue() {
	var jobs []queue.Job
	var want []string
	for range 1 + w.rnd.IntN(4) {
		if w.mode == contended && len(w.In(model.Wait))+len(w.In(model.Delayed)) > 20 {
			break
		}
		job := queue.Job{ID: fmt.Sprintf("j%d", w.ids), Priority: queue.Priority(1 + w.rnd.IntN(4)), Payload: []byte{byte(w.ids)}}
		if w.rnd.IntN(8) > 0 {
			w.ids++
		}
		if w.rnd.IntN(3) == 0 && w.mode != contended {
			job.Delay = time.Duration(1+w.rnd.IntN(3000)) * time.Millisecond
		}
		if w.many {
			job.Keys, job.Cost = map[string]string{}, map[string]int64{}
			for _, key := range []string{"model", "tenant"} {
				switch {
				case w.mode == contended:
					job.Keys[key] = one(w, "x", "x", "x", "y")
				case w.rnd.IntN(4) > 0:
					job.Keys[key] = one(w, "x", "y", "z w:%")
				}
			}
			for _, unit := range []string{"tokens", "bytes"} {
				if w.rnd.IntN(3) > 0 {
					job.Cost[unit] = one(w, int64(0), 1, 2, 3, 5)
				}
			}
		}
		jobs = append(jobs, job)
		want = append(want, w.Enqueue(model.Job{ID: job.ID, Priority: int(job.Priority), Keys: job.Keys, Cost: job.Cost}, job.Delay.Milliseconds()))
		w.note("enqueue %s priority %d delay %v keys %v cost %v: %s", job.ID, job.Priority, job.Delay, job.Keys, job.Cost, want[len(want)-1])
	}
	answers, err := w.q.EnqueueMany(context.Background(), jobs)
	w.noError(err)
	for i, a := range answers {
		is := map[string]error{"new": nil, "duplicate": queue.ErrDuplicate, "heavy": queue.ErrTooHeavy}[want[i]]
		w.require(errors.Is(a.Err, is), "enqueue %s: %v, model %s", a.ID, a.Err, want[i])
	}
}

func (w *world) claim() {
	k := w.rnd.IntN(7)
	if w.mode == contended {
		k = w.rnd.IntN(3)
	}
	want := w.Claim(k)
	w.note("claim %d: %+v", k, want)
	b, err := w.claimer.Claim(context.Background(), k)
	w.noError(err)
	var got []string
	for _, job := range b.Jobs {
		j := w.Jobs[job.ID]
		got = append(got, job.ID)
		w.require(job.Attempt == j.Attempts+1, "attempt of %s is %d, model %d", job.ID, job.Attempt, j.Attempts+1)
		w.require(job.Reclaims == j.Reclaims && job.Deferrals == j.Deferrals, "%s has reclaims %d deferrals %d, model %+v", job.ID, job.Reclaims, job.Deferrals, *j)
		w.leases[job.ID] = job
	}
	w.require(slices.Equal(got, want.Granted), "granted %v", got)
	var back []model.SentBack
	for _, s := range b.SentBack {
		back = append(back, model.SentBack{ID: s.ID, Bucket: blockerName(s.By), Retry: s.RetryAfter.Milliseconds()})
	}
	for i, s := range want.SentBack {
		limit, value := model.SplitBucket(s.Bucket)
		want.SentBack[i].Bucket = limit + ":" + value
	}
	w.require(slices.Equal(back, want.SentBack), "sent back %+v", back)
	w.require(b.RetryAfter.Milliseconds() == want.Retry, "retry after %v", b.RetryAfter)
	w.require(b.More == want.More, "more %v", b.More)
}

func blockerName(b queue.Blocker) string {
	switch {
	case b.Closed && b.Key == "":
		return "=queue:"
	case b.Closed:
		return "=" + b.Key + ":" + b.Value
	}
	return b.Limit + ":" + b.Value
}

func (w *world) settle() {
	j := w.pick(model.Active)
	if j == nil {
		return
	}
	job, alive := w.leases[j.ID], j.End > w.Now
	var o claim.Outcome
	wait := int64(w.rnd.IntN(2000))
	key := ""
	switch w.rnd.IntN(6) {
	case 0:
		o = claim.Complete(job)
	case 1:
		o = claim.Retry(job, time.Duration(wait)*time.Millisecond, errors.New("failed"))
	case 2:
		o = claim.Defer(job, time.Duration(wait)*time.Millisecond)
	case 3:
		o = claim.HandBack(job)
	case 4:
		o = claim.DeadLetter(job, queue.ReasonDeadLettered, errors.New("given up"))
	case 5:
		if w.many {
			key = one(w, "", "model")
			o = claim.RateLimited(job, time.Duration(wait)*time.Millisecond, key, errors.New("429"))
			if o.Closes() { // a job without the key is deferred
				wait = max(1, wait) // shorter ones close for 1 ms
			}
		} else {
			o = claim.HandBack(job)
		}
	}
	costs := map[string]int64{}
	if w.many {
		for _, unit := range []string{"tokens", "bytes"} {
			if w.rnd.IntN(2) == 0 {
				costs[unit] = int64(w.rnd.IntN(9))
				w.noError(job.SetCost(unit, costs[unit]))
			}
		}
	}
	w.note("settle %s %s wait %d key %q costs %v alive %v", j.ID, o.Kind(), wait, key, costs, alive)
	// The costs were set after the outcome was made; they count all the same.
	answers, err := w.claimer.Settle(context.Background(), []claim.Outcome{o})
	w.noError(err)
	w.require(errors.Is(answers[0], claim.ErrLeaseLost) == !alive, "settle answered %v", answers[0])
	if alive {
		w.Settle(j, o.Kind(), wait, key, costs)
	}
}

func (w *world) extend() {
	j := w.pick(model.Active)
	if j == nil {
		return
	}
	alive := j.End > w.Now
	w.note("extend %s alive %v", j.ID, alive)
	lost, err := w.claimer.Extend(context.Background(), []*claim.Job{w.leases[j.ID]})
	w.noError(err)
	w.require((len(lost) == 1) == !alive, "extend lost %v", lost)
	if alive {
		j.End = w.Now + lease
	}
}

func (w *world) advance() {
	var by int64
	_, _, end := w.OwnBucket.State(w.Now)
	switch w.rnd.IntN(4) {
	case 0:
		by = int64(w.rnd.IntN(50))
	case 1:
		by = max(0, end-w.Now) + int64(w.rnd.IntN(3)) - 1
	case 2:
		by = int64(w.rnd.IntN(3000))
	case 3:
		by = int64(w.rnd.IntN(lease * 3 / 2))
	}
	w.Now += max(0, by)
	w.clock.Set(w.Now)
	w.note("advance %d", by)
}

var windows = []int64{1, 10, 300, 1000, 2500}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (w *world) changeOwn() {
	max, window := one(w, int64(1), 2, 3, 5, 8, 1000), one(w, windows...)
	_, _, end := w.OwnBucket.State(w.Now)
	switch w.rnd.IntN(10) {
	case 0:
		w.note("lift limit")
		_, err := w.q.LiftLimit(context.Background(), "test")
		w.noError(err)
		w.Own = limiter.Limit{}
		return
	case 1, 2, 3, 4:
		w.note("HSET max %d duration %d", max, window)
		w.do("HSET", w.key("meta"), "max", fmt.Sprint(max), "duration", fmt.Sprint(window))
	default:
		w.note("set limit %d/%dms", max, window)
		_, err := w.q.SetLimit(context.Background(), limiter.Limit{Max: max, Window: ms(window)}, "test")
		w.noError(err)
		if end > w.Now+window { // a window that runs ends no later than a new one
			value, _, _ := w.OwnBucket.State(w.Now)
			w.OwnBucket.Put(value, w.Now+window)
		}
	}
	w.Own = limiter.Limit{Max: max, Window: ms(window)}
}

func (w *world) disturb() {
	value, _, end := w.OwnBucket.State(w.Now)
	n := w.rnd.IntN(4)
	if w.audited {
		n = 3
	}
	switch n {
	case 0:
		if end > w.Now {
			w.note("persist limiter")
			w.do("PERSIST", w.key("limiter"))
			w.OwnBucket.Put(value, limiter.NoEnd)
		}
	case 1:
		w.note("del limiter")
		w.do("DEL", w.key("limiter"))
		w.OwnBucket.Reset()
	default:
		w.Paused = !w.Paused
		w.note("paused %v", w.Paused)
		do := w.q.Resume
		if w.Paused {
			do = w.q.Pause
		}
		_, err := do(context.Background(), "test")
		w.noError(err)
	}
}

func (w *world) manage() {
	ctx := context.Background()
	switch w.rnd.IntN(3) {
	case 0:
		if j := w.pick(model.Delayed); j != nil {
			w.note("run %s", j.ID)
			w.noError(w.q.RunNow(ctx, j.ID))
			w.RunNow(j)
		}
	case 1:
		if j := w.pick(one(w, model.Wait, model.Delayed, model.Dead, model.Active)); j != nil {
			w.note("delete %s", j.ID)
			err := w.q.Delete(ctx, j.ID)
			w.require(errors.Is(err, queue.ErrWrongState) == (j.State == model.Active), "delete: %v", err)
			if j.State != model.Active {
				w.Delete(j)
			}
		}
	default:
		if j := w.pick(model.Dead); j != nil {
			w.note("redrive %s", j.ID)
			w.noError(w.q.Redrive(ctx, j.ID))
			w.Redrive(j)
		}
	}
}

// kinds are the limits by name that may be set: what stays as it was first set.
var kinds = []model.Limit{
	{Name: "all", Limit: limiter.Limit{Algorithm: limiter.SlidingLog}},
	{Name: "bytes", Unit: "bytes", Limit: limiter.Limit{Algorithm: limiter.SlidingLog}},
	{Name: "flight", Limit: limiter.Limit{Algorithm: model.Concurrency}},
	{Name: "rpm", By: "model", Limit: limiter.Limit{Algorithm: limiter.FixedWindow}},
	{Name: "tenant", By: "tenant", Limit: limiter.Limit{Algorithm: limiter.SlidingWindowCounter}},
	{Name: "tflight", By: "tenant", Limit: limiter.Limit{Algorithm: model.Concurrency}},
	{Name: "tpm", By: "model", Unit: "tokens", Limit: limiter.Limit{Algorithm: limiter.TokenBucket}},
	{Name: "tpw", By: "tenant", Unit: "tokens", Limit: limiter.Limit{Algorithm: limiter.FixedWindow}},
	{Name: "tps", Unit: "tokens", Limit: limiter.Limit{Algorithm: limiter.SlidingWindowCounter}},
	{Name: "spaced", By: "model", Limit: limiter.Limit{Algorithm: limiter.LeakyBucket}},
}

func (w *world) changeNamed() {
	ctx := context.Background()
	l := one(w, kinds...)
	old := w.Limits[l.Name]
	switch n := w.rnd.IntN(10); {
	case old != nil && n < 2:
		w.note("remove limit %s", l.Name)
		_, err := w.q.RemoveNamedLimit(ctx, l.Name, "test")
		w.noError(err)
		w.RemoveLimit(l.Name)
	case old != nil && n < 3 && l.Algorithm != model.Concurrency:
		var values []string
		var value *string
		if l.By != "" && w.rnd.IntN(2) == 0 {
			v := one(w, "x", "y")
			values, value = []string{v}, &v
		}
		w.note("reset limit %s %v", l.Name, values)
		w.noError(w.q.ResetNamedLimit(ctx, l.Name, "test", values...))
		w.ResetLimit(l.Name, value)
	default:
		if old != nil {
			l.Overrides = old.Overrides
		} else if l.Name != "all" && w.rnd.IntN(6) == 0 { // another rule of the same name, once the first was removed
			l.Unit = map[string]string{"": "bytes", "tokens": "bytes", "bytes": "tokens"}[l.Unit]
			if l.Algorithm == model.Concurrency {
				l.Unit = ""
			}
		}
		if old != nil {
			l.Algorithm, l.By, l.Unit = old.Algorithm, old.By, old.Unit
		}
		l.Max = one(w, int64(1), 2, 3, 5, 8)
		if l.Algorithm != model.Concurrency {
			l.Window = ms(one(w, windows...))
		}
		if l.Algorithm == limiter.TokenBucket {
			l.Burst = one(w, int64(1), 3, 6)
		}
		l.Shadow = w.rnd.IntN(5) == 0
		named := queue.NamedLimit{Name: l.Name, Limit: l.Limit, By: l.By, Unit: l.Unit, Shadow: &l.Shadow}
		if l.By != "" && w.rnd.IntN(3) == 0 {
			value := one(w, "x", "y", "z w:%")
			o := limiter.Limit{Max: one(w, int64(0), 1, 4), Window: l.Window}
			if o.Max == 0 {
				o.Window = 0
			}
			named.Overrides = map[string]limiter.Limit{value: o}
			o.Algorithm = l.Algorithm
			next := map[string]limiter.Limit{value: o}
			for v, had := range l.Overrides {
				if v != value {
					next[v] = had
				}
			}
			l.Overrides = next
		}
		w.note("set limit %s %v max %d by %q unit %q shadow %v overrides %v", l.Name, l.Limit, l.Max, l.By, l.Unit, l.Shadow, named.Overrides)
		_, err := w.q.SetNamedLimit(ctx, named, "test")
		w.noError(err)
		w.SetLimit(l)
	}
}

func (w *world) shut() {
	ctx := context.Background()
	key, value := one(w, "", "model"), ""
	if key != "" {
		value = one(w, "x", "y", "z w:%")
	}
	wait := int64(1 + w.rnd.IntN(2000))
	reopen := w.rnd.IntN(3) == 0
	w.note("close %q %q for %d, reopen %v", key, value, wait, reopen)
	var err error
	switch {
	case reopen && key == "":
		err = w.q.Reopen(ctx, "test")
	case reopen:
		err = w.q.ReopenKey(ctx, key, value, "test")
	case key == "":
		_, err = w.q.Close(ctx, ms(wait), "test")
	default:
		_, err = w.q.CloseKey(ctx, key, value, ms(wait), "test")
	}
	w.noError(err)
	if reopen {
		wait = 0
	}
	w.Close(key, value, wait)
}

// compare holds the whole queue against the whole model: no job is lost, each is in one state, waiting jobs are in order.
func (w *world) compare() {
	ctx := context.Background()
	seen := 0
	for _, state := range []queue.State{queue.Wait, queue.Delayed, queue.Active, queue.Dead} {
		page, err := w.q.List(ctx, state, 0, 1000)
		w.noError(err)
		want := w.In(string(state))
		w.require(len(page) == len(want), "%s: %d jobs, model %d", state, len(page), len(want))
		seen += len(page)
		for i, s := range page {
			j := w.Jobs[s.ID]
			w.require(j != nil && j.State == string(state), "%s holds %s", state, s.ID)
			if state == queue.Wait {
				w.require(want[i].ID == s.ID, "wait[%d] is %s, model %s", i, s.ID, want[i].ID)
			}
			w.require(s.Attempts == j.Attempts && s.Deferrals == j.Deferrals && s.Reclaims == j.Reclaims,
				"%s has attempts %d deferrals %d reclaims %d, model %+v", s.ID, s.Attempts, s.Deferrals, s.Reclaims, *j)
			switch state {
			case queue.Delayed:
				w.require(s.DueAt.UnixMilli() == w.DueAt(j), "%s due %d, model %d", s.ID, s.DueAt.UnixMilli()-start, w.DueAt(j)-start)
				w.require((s.DelayedBy == queue.ByLimit) == (j.Sent || j.Line != ""), "%s delayed by %s, model %+v", s.ID, s.DelayedBy, j)
			case queue.Active:
				w.require(s.LeaseEnd.UnixMilli() == j.End, "%s lease ends %d, model %d", s.ID, s.LeaseEnd.UnixMilli(), j.End)
			case queue.Dead:
				w.require(string(s.Reason) == j.Reason, "%s is dead by %s, model %s", s.ID, s.Reason, j.Reason)
			}
		}
	}
	w.require(seen == len(w.Jobs), "%d jobs, model %d", seen, len(w.Jobs))
	counts, err := w.q.Counts(ctx)
	w.noError(err)
	w.require(int(counts.Delayed) == len(w.In(model.Delayed)), "%d delayed jobs, model %d", counts.Delayed, len(w.In(model.Delayed)))
	if j := w.Jobs[fmt.Sprintf("j%d", w.rnd.IntN(w.ids+1))]; j != nil {
		s, err := w.q.Get(ctx, j.ID)
		w.noError(err)
		w.require(string(s.State) == j.State, "%s is %s, model %s", j.ID, s.State, j.State)
	}
	w.budgets()
	waiting := append(w.In(model.Wait), w.In(model.Delayed, func(j *model.Job) bool { return j.Line != "" || j.Sent })...)
	if len(waiting) > 0 {
		w.explain(waiting[w.rnd.IntN(len(waiting))])
	}
	// What no claim changed back stays as the tests of the limits see it: a window's TTL is never above its length.
	left, err := w.client.Do(ctx, w.client.B().Pttl().Key(w.key("limiter")).Build()).AsInt64()
	w.noError(err)
	if _, _, end := w.OwnBucket.State(w.Now); end > w.Now {
		w.require(left == end-w.Now, "limiter has a TTL of %d, model %d", left, end-w.Now)
	}
}

// budgets holds what is read of the limits against what the model's next claim would find.
func (w *world) budgets() {
	var also []metrics.KeyValue
	for name, l := range w.Limits {
		if l.By != "" {
			for _, value := range []string{"x", "y", "z w:%"} {
				also = append(also, metrics.KeyValue{Limit: name, Value: value})
			}
		}
	}
	all, err := metrics.Budgets(context.Background(), w.client, w.q.Name(), 0, also...)
	w.noError(err)
	limits := 0
	for _, l := range all.Limits {
		if l.Name == "" {
			continue
		}
		limits++
		waiting := int64(0)
		for _, b := range l.Buckets {
			want := w.Budget(l.Name, b.Value)
			got := model.Budget{Remaining: b.Remaining, Retry: b.RetryAfter.Milliseconds(), Waiting: b.Waiting}
			w.require(got == want, "budget of %s %q is %+v, model %+v", l.Name, b.Value, got, want)
			waiting += b.Waiting
		}
		w.require(l.Waiting == waiting, "%d jobs wait for %s, in its lines %d", l.Waiting, l.Name, waiting)
		w.require(l.Refused == w.Shadowed(l.Name), "shadow limit %s refused %d, model %d", l.Name, l.Refused, w.Shadowed(l.Name))
	}
	w.require(limits == len(w.Limits), "%d limits, model %d", limits, len(w.Limits))
}

// replay holds the audit stream of the whole sequence to a new model: what a checker sees afterwards.
func (w *world) replay() {
	stream, err := w.client.Do(context.Background(), w.client.B().Xrange().Key(w.key("audit")).Start("-").End("+").Build()).AsXRange()
	w.noError(err)
	var entries []map[string]string
	for _, e := range stream {
		entries = append(entries, e.FieldValues)
	}
	r, q, err := model.Replay(entries, maxReclaims)
	w.noError(err)
	w.require(r.Over == 0 && r.Under == 0, "replay: %d over, %d under; %s", r.Over, r.Under, r.First)
	w.require(q == nil || len(q.Jobs) == len(w.Jobs), "replay: other jobs are left")
}

// clocked returns a queue on a server of its own, whose clock stands at start.
func clocked(t *testing.T) (*queue.Queue, *claim.Claimer, *valkeyd.Clock, valkey.Client) {
	t.Helper()
	server, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	clock.Set(start)
	q, err := queue.New(client, "q", queue.Options{})
	require.NoError(t, err)
	claimer, err := claim.New(client, "q", claim.Options{Lease: lease * time.Millisecond, MaxReclaims: maxReclaims})
	require.NoError(t, err)
	return q, claimer, clock, client
}

// explain holds what is said of a job against what the model's next claim would find.
func (w *world) explain(j *model.Job) {
	e, err := metrics.Explain(context.Background(), w.client, w.q.Name(), j.ID)
	w.noError(err)
	by, retry := w.Explain(j)
	limit, value := model.SplitBucket(by)
	w.require(e.State == j.State && e.Never == (retry < 0) && e.Blocked == (retry > 0), "%s is explained as %+v, model %q %d", j.ID, e, by, retry)
	if retry > 0 {
		is := blockerName(queue.Blocker{Limit: e.By.Limit, Key: e.By.Key, Value: e.By.Value, Closed: e.By.Closed})
		w.require(is == limit+":"+value, "%s is blocked by %s, model %s", j.ID, is, by)
		w.require(e.RetryAfter.Milliseconds() == retry, "%s is blocked for %v, model %d", j.ID, e.RetryAfter, retry)
	}
}

func TestClaimAgreesWithItsModel(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{oneLimit, manyLimits, contended} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
			require.NoError(t, err)
			t.Cleanup(server.Stop)
			client, err := valkey.NewClient(server.Options())
			require.NoError(t, err)
			t.Cleanup(client.Close)
			n := 0
			rapid.Check(t, func(t *rapid.T) {
				n++
				clock.Set(start)
				w := newWorld(t, mode, "model-"+strconv.Itoa(n), clock, client)
				for range 80 / stride {
					for range stride {
						w.step()
					}
					w.compare()
				}
				if w.audited {
					w.replay()
				}
			})
		})
	}
}

// stride is after how many steps all of the queue's state is held against the model's.
const stride = 4

func newWorld(t *rapid.T, mode, name string, clock *valkeyd.Clock, client valkey.Client) *world {
	q, err := queue.New(client, name, queue.Options{})
	require.NoError(t, err)
	claimer, err := claim.New(client, name, claim.Options{Lease: lease * time.Millisecond, MaxReclaims: maxReclaims})
	require.NoError(t, err)
	w := &world{
		Queue: model.New(start, lease, maxReclaims), t: t, rnd: draw{t}, clock: clock, client: client,
		q: q, claimer: claimer, leases: map[string]*claim.Job{}, mode: mode, many: mode != oneLimit,
	}
	if w.audited = w.rnd.IntN(3) == 0; w.audited {
		w.do("HSET", w.key("meta"), "audit", "10000")
	}
	if mode == contended {
		for i, l := range []model.Limit{kinds[3], kinds[4], kinds[6], kinds[9], kinds[7]} {
			l.Max, l.Window = 1+int64(w.rnd.IntN(3)), ms(int64(60+50*i+w.rnd.IntN(100)))
			if l.Unit != "" {
				l.Max = 5
			}
			_, err := q.SetNamedLimit(context.Background(), queue.NamedLimit{Name: l.Name, Limit: l.Limit, By: l.By, Unit: l.Unit}, "")
			w.noError(err)
			w.SetLimit(l)
		}
	}
	return w
}
