// Package emq_test is the proof, end to end: each test is a sentence of the README, made true by real Valkey servers, real
// worker processes and the public packages alone.
package emq_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/fleet"
	"github.com/echomq/emq/internal/model"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

var ctx = context.Background()

func TestMain(m *testing.M) {
	fleet.Main()
	os.Exit(emqtest.Run(m))
}

// ---- The budget ----

func TestFleetHoldsTheLimit(t *testing.T) {
	t.Parallel()
	const processes, max, windows, window = 8, 20, 25, time.Second // no stall of a busy machine is as long
	q := newQueue(t, emqtest.Client(t))
	audit(t, q)
	limit(t, q, max, window)
	enqueue(t, q, max*windows+max/2)
	workers := fleet.New(t, emqtest.URL(t), q.Name(), processes)
	eventually(t, time.Minute, "all jobs done", func() bool { return left(t, q) == 0 })
	workers.Stop()

	seen := replay(t, q, max, window)
	report, _, err := model.Replay(entries(t, q), claim.DefaultMaxReclaims)
	require.NoError(t, err)
	require.Equal(t, []int{0, 0}, []int{report.Over, report.Under}, report.First)
	require.Len(t, seen, windows+1)
	for i, w := range seen[:windows] {
		require.Equal(t, max, w.admitted, "window %d admits max exactly: neither over nor under", i)
	}
	require.Equal(t, max/2, seen[windows].admitted, "what was left")
	t.Logf("%d processes: %d windows of exactly %d; the latest opened %v after the one before ended", processes, windows, max, slowest(seen, window))
	lines := workers.Starts()
	require.Len(t, lines, max*windows+max/2)
	ids := map[string]bool{}
	for _, l := range lines {
		require.False(t, ids[l.ID], "job %s ran twice", l.ID)
		require.Equal(t, 1, l.Attempt, "a send-back spends no attempt")
		ids[l.ID] = true
	}
}

// Eight processes' claims race for the one token of each of a thousand windows: one wins each time.
func TestF79RaceForTheLastToken(t *testing.T) {
	t.Parallel()
	const racers, windows = 8, 1000
	client, clock := virtual(t)
	q := newQueue(t, client)
	limit(t, q, 1, time.Second)
	enqueue(t, q, windows)
	claimers := make([]*claim.Claimer, racers)
	for i := range claimers {
		claimers[i] = newClaimer(t, client, q)
	}
	for range windows {
		var won atomic.Int64
		var race sync.WaitGroup
		for _, c := range claimers {
			race.Go(func() {
				b, err := c.Claim(ctx, 1)
				if err == nil {
					won.Add(int64(len(b.Jobs)))
				}
			})
		}
		race.Wait()
		require.EqualValues(t, 1, won.Load())
		clock.Advance(time.Second)
	}
	t.Attr("figure", "1,000 windows, 8 racers, 1 winner each")
}

func TestPrivateCountersAdmitTheLimitTimesTheFleet(t *testing.T) {
	t.Parallel()
	const processes, max = 4, 10
	q := newQueue(t, emqtest.Client(t))
	enqueue(t, q, 200)
	workers := fleet.New(t, emqtest.URL(t), q.Name(), processes, "FLEET_MAX="+strconv.Itoa(max))
	eventually(t, time.Minute, "each process has spent its own budget", func() bool { return len(workers.Starts()) >= processes*max })
	workers.Stop()
	require.Len(t, workers.Starts(), processes*max, "one window of %d in each of %d processes lets their product through", max, processes)
}

func TestF85SeamAdmitsTwiceTheLimitLessOneAndNoMore(t *testing.T) {
	t.Parallel()
	const max, window = 5, 1000
	client, clock := virtual(t)
	q := newQueue(t, client)
	limit(t, q, max, window*time.Millisecond)
	enqueue(t, q, 100)
	c := newClaimer(t, client, q)
	opened := clock.Ms()
	require.Len(t, claimed(t, c, 1), 1) // the window opens …
	clock.Set(opened + window - 1)
	require.Len(t, claimed(t, c, 10), max-1) // … spends the rest in its last millisecond …
	require.Empty(t, claimed(t, c, 10))
	clock.Set(opened + window)
	require.Len(t, claimed(t, c, 10), max) // … and the next one follows at once: 2·max-1 within two milliseconds
	clock.Set(opened + 2*window - 1)
	require.Empty(t, claimed(t, c, 10))
	clock.Set(opened + 2*window)
	require.Len(t, claimed(t, c, 10), max)
}

func TestRetryAfterIsWhenTheNextClaimSucceeds(t *testing.T) {
	t.Parallel()
	client, clock := virtual(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		q := newQueue(t, client)
		max, window := 1+rnd.IntN(5), 1+rnd.IntN(5000)
		limit(t, q, max, time.Duration(window)*time.Millisecond)
		enqueue(t, q, 4*max+5)
		c := newClaimer(t, client, q)
		require.Len(t, claimed(t, c, max), max)
		clock.Advance(time.Duration(rnd.IntN(window)) * time.Millisecond)
		b, err := c.Claim(ctx, 1+rnd.IntN(4))
		require.NoError(t, err)
		require.True(t, b.Limited)
		require.Empty(t, b.Jobs)
		require.Positive(t, b.RetryAfter)
		clock.Advance(b.RetryAfter - time.Millisecond)
		require.Empty(t, claimed(t, c, 1), "round %d: a millisecond too early", round)
		clock.Advance(time.Millisecond)
		require.Len(t, claimed(t, c, 1), 1, "round %d: on time", round)
	}
}

func TestLastMillisecondOfAWindow(t *testing.T) {
	t.Parallel()
	client, clock := virtual(t)
	q := newQueue(t, client)
	limit(t, q, 3, time.Second)
	enqueue(t, q, 20)
	c := newClaimer(t, client, q)
	for window := range 5 {
		require.Len(t, claimed(t, c, 3), 3)
		clock.Advance(999 * time.Millisecond)
		b, err := c.Claim(ctx, 3)
		require.NoError(t, err)
		require.Empty(t, b.Jobs)
		require.Equal(t, time.Millisecond, b.RetryAfter)
		clock.Advance(time.Millisecond) // the counter can still be read, its TTL reads 0: the window is over
		left, err := client.Do(ctx, client.B().Pttl().Key(key(q, "limiter")).Build()).AsInt64()
		require.NoError(t, err)
		require.LessOrEqual(t, left, int64(0), "window %d", window)
	}
}

// ---- Many limits ----

// Three limits at once, one of them by key, over eight processes of which one is killed: each claim is held to what the model of the
// queue would have handed out, neither more nor less.
func TestFleetHoldsManyLimits(t *testing.T) {
	t.Parallel()
	const length = 30 * time.Second
	q := newQueue(t, emqtest.Client(t))
	audit(t, q)
	for _, l := range []queue.NamedLimit{
		{Name: "second", Limit: limiter.PerSecond(3)},
		{Name: "long", Limit: limiter.Limit{Algorithm: limiter.SlidingLog, Max: 25, Window: 10 * time.Second}},
		{Name: "tenant", By: "tenant", Limit: limiter.Limit{Algorithm: limiter.TokenBucket, Max: 1, Window: time.Second, Burst: 2}},
	} {
		_, err := q.SetNamedLimit(ctx, l, "test")
		require.NoError(t, err)
	}
	var jobs []queue.Job
	for i := range 400 {
		tenant := []string{"a", "a", "a", "b", "c"}[i%5]
		jobs = append(jobs, queue.Job{ID: fmt.Sprintf("j%d", i), Keys: map[string]string{"tenant": tenant}})
	}
	_, err := q.EnqueueMany(ctx, jobs)
	require.NoError(t, err)
	workers := fleet.New(t, emqtest.URL(t), q.Name(), 8, "FLEET_SLEEP=300ms", "FLEET_LEASE=2s")
	eventually(t, length, "jobs run", func() bool { return len(workers.Starts()) >= 20 })
	workers.Kill(0)
	begun := time.Now()
	eventually(t, 2*length, "30 s have passed", func() bool { return time.Since(begun) > length-5*time.Second })
	workers.Stop()

	r, left, err := model.Replay(entries(t, q), claim.DefaultMaxReclaims)
	require.NoError(t, err)
	require.Zero(t, r.Over, r.First)
	require.Zero(t, r.Under, r.First)
	require.LessOrEqual(t, r.Most(10*time.Second, func(model.Grant) bool { return true }), 25, "in any ten seconds")
	for _, tenant := range []string{"a", "b", "c"} {
		most := r.Most(time.Second, func(g model.Grant) bool { return g.Keys["tenant"] == tenant })
		require.LessOrEqual(t, most, 2, "tenant %s in any second", tenant)
	}
	require.Greater(t, r.Granted, 60, "the longest of them lets 25 through each ten seconds")
	done := 0
	for _, j := range left.Jobs {
		require.NotEqual(t, model.Dead, j.State)
		done++
	}
	t.Logf("%d claims granted %d jobs and sent %d back; %d jobs are left", r.Claims, r.Granted, r.SentBack, done)
}

// ---- Order ----

func TestF83SentBackJobsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	client, clock := virtual(t)
	for _, early := range []bool{false, true} {
		q := newQueue(t, client)
		limit(t, q, 2, time.Second)
		ids := enqueue(t, q, 12)
		c := newClaimer(t, client, q)
		got := claimed(t, c, 2)
		for range 5 { // five refused claims send five jobs back
			require.Empty(t, claimed(t, c, 1))
		}
		counts, err := q.Counts(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 5, counts.SentBack)
		s, err := q.Get(ctx, ids[2])
		require.NoError(t, err)
		require.Equal(t, queue.Delayed, s.State)
		require.Equal(t, queue.ByLimit, s.DelayedBy)
		require.Equal(t, 1, s.Deferrals)
		require.Zero(t, s.Attempts)
		if early {
			_, err := q.LiftLimit(ctx, "the budget returns before their time")
			require.NoError(t, err)
			got = append(got, claimed(t, c, 20)...)
		} else {
			for range 5 {
				clock.Advance(time.Second)
				got = append(got, claimed(t, c, 20)...)
			}
		}
		require.Equal(t, ids, jobIDs(got), "early %v", early)
	}
}

// ---- Nothing is lost ----

func TestF02KillingWorkersLosesNothing(t *testing.T) {
	t.Parallel()
	const jobs = 400
	q := newQueue(t, emqtest.Client(t))
	ids := enqueue(t, q, jobs)
	workers := fleet.New(t, emqtest.URL(t), q.Name(), 3, "FLEET_SLEEP=10ms", "FLEET_LEASE=500ms")
	for range 5 {
		n := len(workers.Starts())
		eventually(t, time.Minute, "work goes on", func() bool { return len(workers.Starts()) >= min(n+40, jobs) })
		workers.Kill(0)
		workers.Add(t)
	}
	eventually(t, time.Minute, "all jobs done", func() bool { return left(t, q) == 0 })
	workers.Stop()
	ran := map[string]bool{}
	for _, l := range workers.Starts() {
		require.Equal(t, 1, l.Attempt, "a lost worker costs no attempt")
		ran[l.ID] = true
	}
	for _, id := range ids {
		require.True(t, ran[id], "job %s never ran", id)
	}
	t.Logf("%d starts for %d jobs over 5 kills", len(workers.Starts()), jobs)
}

func TestF07StaleWorkerCannotSettle(t *testing.T) {
	t.Parallel()
	client, clock := virtual(t)
	q := newQueue(t, client)
	enqueue(t, q, 1)
	c := newClaimer(t, client, q)
	stale := claimed(t, c, 1)[0]
	clock.Advance(c.Lease())
	fresh := claimed(t, c, 1)[0]
	require.Equal(t, stale.ID, fresh.ID)
	require.NotEqual(t, stale.Token(), fresh.Token())
	before := digest(t, client)
	for _, o := range []claim.Outcome{
		claim.Complete(stale), claim.Retry(stale, 0, errors.New("x")), claim.Defer(stale, 0), claim.HandBack(stale),
		claim.DeadLetter(stale, queue.ReasonAttempts, errors.New("x")),
	} {
		answers, err := newClaimer(t, client, q).Settle(ctx, []claim.Outcome{o})
		require.NoError(t, err)
		require.ErrorIs(t, answers[0], claim.ErrLeaseLost)
	}
	lost, err := c.Extend(ctx, []*claim.Job{stale})
	require.NoError(t, err)
	require.Len(t, lost, 1)
	forgetAnswers(t, client, q)
	require.Equal(t, before, digest(t, client), "a refused settle changes nothing")
	answers, err := c.Settle(ctx, []claim.Outcome{claim.Complete(fresh)})
	require.NoError(t, err)
	require.NoError(t, answers[0])
}

func TestF05StoppedWorkerCannotSettle(t *testing.T) {
	t.Parallel()
	q := newQueue(t, emqtest.Client(t))
	audit(t, q)
	enqueue(t, q, 1)
	workers := fleet.New(t, emqtest.URL(t), q.Name(), 1, "FLEET_SLEEP=1s", "FLEET_LEASE=600ms")
	eventually(t, time.Minute, "started", func() bool { return len(workers.Starts()) == 1 })
	workers.Signal(t, 0, syscall.SIGSTOP)
	workers.Add(t)
	eventually(t, time.Minute, "another worker took it over and finished", func() bool { return left(t, q) == 0 })
	workers.Signal(t, 0, syscall.SIGCONT)
	eventually(t, time.Minute, "the first noticed", func() bool { return strings.Contains(workers.Log(), "lease lost") })
	workers.Stop()
	require.Len(t, workers.Starts(), 2)
	completed := 0
	for _, e := range entries(t, q) {
		if e["op"] == "settle" && strings.HasPrefix(e["jobs"], "complete") {
			completed++
		}
	}
	require.Equal(t, 1, completed)
}

func TestF11PoisonJobIsDeadAndTheOthersFinish(t *testing.T) {
	t.Parallel()
	q := newQueue(t, emqtest.Client(t))
	poison, err := q.Enqueue(ctx, queue.Job{Payload: []byte("kill")})
	require.NoError(t, err)
	enqueue(t, q, 99)
	workers := fleet.New(t, emqtest.URL(t), q.Name(), 1, "FLEET_LEASE=1s")
	stop := workers.Supervise(t) // a process that dies is started again
	eventually(t, time.Minute, "the others finish", func() bool {
		c, err := q.Counts(ctx)
		require.NoError(t, err)
		return c.Wait+c.Active+c.Delayed == 0 && c.Dead == 1
	})
	stop()
	workers.Stop()
	s, err := q.Get(ctx, poison)
	require.NoError(t, err)
	require.Equal(t, queue.Dead, s.State)
	require.Equal(t, queue.ReasonLost, s.Reason)
	require.Equal(t, "worker lost 3 times", s.LastError)
	require.Zero(t, s.Attempts)
}

func TestF14ShutdownHandsBackWithoutSpendingTheAttempt(t *testing.T) {
	t.Parallel()
	q := newQueue(t, emqtest.Client(t))
	ids := enqueue(t, q, 4)
	for round := range 3 {
		workers := fleet.New(t, emqtest.URL(t), q.Name(), 1, "FLEET_SLEEP=1h", "FLEET_GRACE=50ms")
		eventually(t, time.Minute, "all four run", func() bool { return len(workers.Starts()) == 4 })
		begin := time.Now()
		workers.Stop()
		require.Less(t, time.Since(begin), 20*time.Second, "the grace that is set, not the 25s of one that is not")
		page, err := q.List(ctx, queue.Wait, 0, 10)
		require.NoError(t, err)
		var back []string
		for _, s := range page {
			back = append(back, s.ID)
			require.Zero(t, s.Attempts, "round %d", round)
		}
		require.Equal(t, ids, back, "at their places")
	}
}

func TestF35ServerGoneAndBack(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{Args: []string{"--appendonly", "yes"}})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	q := newQueue(t, client)
	ids := enqueue(t, q, 300)
	var mu sync.Mutex
	attempts := map[string]int{}
	w, err := worker.New(client, q.Name(), func(_ context.Context, job *worker.Job) error {
		mu.Lock()
		defer mu.Unlock()
		attempts[job.ID] = max(attempts[job.ID], job.Attempt)
		return pause(5 * time.Millisecond)
	}, worker.Options{Concurrency: 4, Claim: claim.Options{Lease: 2 * time.Second}})
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	for n := range 2 {
		eventually(t, time.Minute, "work goes on", func() bool { mu.Lock(); defer mu.Unlock(); return len(attempts) > 50*(n+1) })
		server.Kill()
		require.NoError(t, pause(300*time.Millisecond))
		require.NoError(t, server.Restart())
	}
	eventually(t, time.Minute, "all jobs done", func() bool {
		c, err := q.Counts(ctx)
		return err == nil && c.Wait+c.Active+c.Delayed+c.Dead == 0
	})
	w.Stop()
	require.NoError(t, <-done)
	require.Len(t, attempts, len(ids))
	for id, n := range attempts {
		require.Equal(t, 1, n, "job %s: a server that is away costs no attempt", id)
	}
}

func TestF36ScriptFlushUnderLoad(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	q := newQueue(t, client)
	const jobs = 3000
	var ran sync.Map
	var count atomic.Int64
	w, err := worker.New(client, q.Name(), func(_ context.Context, job *worker.Job) error {
		if _, again := ran.LoadOrStore(job.ID, true); again {
			t.Errorf("job %s ran twice", job.ID)
		}
		count.Add(1)
		return nil
	}, worker.Options{Concurrency: 16})
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	flushes := 0
	for sent := 0; sent < jobs; sent += 10 {
		enqueue(t, q, 10)
		require.NoError(t, client.Do(ctx, client.B().ScriptFlush().Build()).Error())
		flushes++
	}
	eventually(t, time.Minute, "all jobs done", func() bool { return left(t, q) == 0 })
	w.Stop()
	require.NoError(t, <-done)
	require.EqualValues(t, jobs, count.Load())
	t.Logf("%d flushes", flushes)
}

func TestF88PayloadsOfAnyBytes(t *testing.T) {
	t.Parallel()
	q := newQueue(t, emqtest.Client(t))
	random := make([]byte, 1<<20)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	payloads := [][]byte{{}, []byte("\x00\r\n"), {0xff, 0xfe}, []byte("🦉🦉🦉🦉"), random, []byte(`{"n":98765432109876543210}`)}
	digests := make(chan [32]byte, len(payloads))
	var runs atomic.Int64
	w, err := worker.New(emqtest.Client(t), q.Name(), func(_ context.Context, job *worker.Job) error {
		if job.Name == "bad" {
			runs.Add(1)
			panic(fmt.Sprintf("cannot read %s", job.Payload))
		}
		digests <- sha256.Sum256(job.Payload)
		return nil
	}, worker.Options{Concurrency: 1, Backoff: func(int) time.Duration { return 0 }})
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	for _, p := range payloads {
		_, err := q.Enqueue(ctx, queue.Job{Payload: p})
		require.NoError(t, err)
		require.Equal(t, sha256.Sum256(p), <-digests)
	}
	bad, err := q.Enqueue(ctx, queue.Job{Name: "bad", Payload: random[:100_000], MaxAttempts: 3})
	require.NoError(t, err)
	eventually(t, time.Minute, "dead", func() bool { s, err := q.Get(ctx, bad); return err == nil && s.State == queue.Dead })
	w.Stop()
	require.NoError(t, <-done)
	require.EqualValues(t, 3, runs.Load())
	s, err := q.Get(ctx, bad)
	require.NoError(t, err)
	require.LessOrEqual(t, len(s.LastError), 8<<10)
	require.Equal(t, strings.ToValidUTF8(s.LastError, ""), s.LastError)
}

func TestIdleFleetPicksUpAtOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t, emqtest.Client(t))
	started := make(chan time.Time)
	for range 3 {
		w, err := worker.New(emqtest.Client(t), q.Name(), func(context.Context, *worker.Job) error { started <- time.Now(); return nil }, worker.Options{})
		require.NoError(t, err)
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		defer func() { w.Stop(); require.NoError(t, <-done) }()
	}
	enqueue(t, q, 1)
	<-started // the fleet is up
	var waits []time.Duration
	for range 200 {
		require.NoError(t, pause(5*time.Millisecond))
		sent := time.Now()
		enqueue(t, q, 1)
		waits = append(waits, (<-started).Sub(sent))
	}
	slices.Sort(waits)
	t.Logf("pick-up by an idle fleet: median %v, 99 in 100 within %v, worst %v of %d", waits[100], waits[197], waits[199], len(waits))
}

// Whichever processes are frozen in their sleep, the others take what falls due, and what comes: a wake-up that a frozen one swallowed is
// noticed, and so is a timer that only it had set.
func TestFrozenWorkersAreMissed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		processes, frozen, jobs int
		delay                   time.Duration
	}{{6, 3, 8, 0}, {3, 2, 1, 300 * time.Millisecond}} {
		q := newQueue(t, emqtest.Client(t))
		workers := fleet.New(t, emqtest.URL(t), q.Name(), c.processes, "FLEET_SLOTS=1", "FLEET_LEASE=3s")
		pids := map[int]bool{}
		eventually(t, time.Minute, "all processes work", func() bool {
			enqueue(t, q, 2*c.processes)
			for _, s := range workers.Starts() {
				pids[s.Pid] = true
			}
			return len(pids) == c.processes
		})
		var latest time.Duration
		for first := range c.processes { // each part in watching is left to others
			eventually(t, time.Minute, "all ran", func() bool { return left(t, q) == 0 })
			due := time.Now().Add(c.delay)
			if c.delay > 0 {
				_, err := q.Enqueue(ctx, queue.Job{Delay: c.delay})
				require.NoError(t, err)
			}
			for i := range c.frozen {
				workers.Signal(t, (first+i)%c.processes, syscall.SIGSTOP)
			}
			for range c.jobs {
				if c.delay == 0 {
					due = time.Now()
					enqueue(t, q, 1)
				}
				eventually(t, time.Minute, "somebody else took the job", func() bool { return left(t, q) == 0 })
				latest = max(latest, time.Since(due))
			}
			for i := range c.frozen {
				workers.Signal(t, (first+i)%c.processes, syscall.SIGCONT)
			}
		}
		t.Logf("%d of %d processes frozen, %d times: %v late at most; a lease that a frozen one got is 3s", c.frozen, c.processes, c.processes, latest)
	}
}

// ---- The audit stream ----

// window is one window of the queue's limit as the audit stream tells it.
type window struct {
	opened   int64 // server ms
	admitted int
}

// replay reads the windows from the audit stream: stream order is execution order, so no clocks are compared. It fails on a
// grant beyond max and on a window that opens before the last one ended.
func replay(t *testing.T, q *queue.Queue, max int, length time.Duration) (windows []window) {
	t.Helper()
	for _, e := range entries(t, q) {
		if e["op"] != "claim" || e["granted"] == "" {
			continue
		}
		at, err := strconv.ParseInt(e["at"], 10, 64)
		require.NoError(t, err)
		if e["opened"] == "1" {
			if n := len(windows); n > 0 {
				require.GreaterOrEqual(t, at, windows[n-1].opened+length.Milliseconds(), "window %d opened early", n)
			}
			windows = append(windows, window{opened: at})
		}
		w := &windows[len(windows)-1]
		w.admitted += len(strings.Fields(e["granted"]))
		require.LessOrEqual(t, w.admitted, max, "window %d is over", len(windows)-1)
		require.Equal(t, strconv.Itoa(w.admitted), e["count"])
		require.Less(t, at, w.opened+length.Milliseconds())
	}
	return windows
}

func slowest(windows []window, length time.Duration) (late time.Duration) {
	for i := 1; i < len(windows); i++ {
		late = max(late, time.Duration(windows[i].opened-windows[i-1].opened)*time.Millisecond-length)
	}
	return late
}

func audit(t *testing.T, q *queue.Queue) {
	t.Helper()
	client := emqtest.Client(t)
	require.NoError(t, client.Do(ctx, client.B().Hset().Key(key(q, "meta")).FieldValue().FieldValue("audit", "100000").Build()).Error())
}

func entries(t *testing.T, q *queue.Queue) (all []map[string]string) {
	t.Helper()
	client := emqtest.Client(t)
	stream, err := client.Do(ctx, client.B().Xrange().Key(key(q, "audit")).Start("-").End("+").Build()).AsXRange()
	require.NoError(t, err)
	for _, e := range stream {
		all = append(all, e.FieldValues)
	}
	return all
}

// ---- Small helpers ----

func newQueue(t *testing.T, client valkey.Client) *queue.Queue {
	t.Helper()
	q, err := queue.New(client, emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	return q
}

func newClaimer(t *testing.T, client valkey.Client, q *queue.Queue) *claim.Claimer {
	t.Helper()
	c, err := claim.New(client, q.Name(), claim.Options{})
	require.NoError(t, err)
	return c
}

// virtual is a server of its own whose clock stands still until the test moves it.
func virtual(t *testing.T) (valkey.Client, *valkeyd.Clock) {
	t.Helper()
	server, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	clock.Set(1_800_000_000_000)
	return client, clock
}

func limit(t *testing.T, q *queue.Queue, max int, window time.Duration) {
	t.Helper()
	_, err := q.SetLimit(ctx, limiter.Limit{Max: int64(max), Window: window}, "test")
	require.NoError(t, err)
}

func enqueue(t *testing.T, q *queue.Queue, n int) (ids []string) {
	t.Helper()
	answers, err := q.EnqueueMany(ctx, make([]queue.Job, n))
	require.NoError(t, err)
	for _, a := range answers {
		require.NoError(t, a.Err)
		ids = append(ids, a.ID)
	}
	return ids
}

func claimed(t *testing.T, c *claim.Claimer, k int) []*claim.Job {
	t.Helper()
	b, err := c.Claim(ctx, k)
	require.NoError(t, err)
	return b.Jobs
}

func jobIDs(jobs []*claim.Job) (ids []string) {
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// left counts the jobs that are not done.
func left(t *testing.T, q *queue.Queue) int64 {
	t.Helper()
	c, err := q.Counts(ctx)
	require.NoError(t, err)
	return c.Wait + c.Active + c.Delayed
}

func key(q *queue.Queue, name string) string { return "emq:{" + q.Name() + "}:" + name }

func digest(t *testing.T, c valkey.Client) string {
	t.Helper()
	d, err := c.Do(ctx, c.B().Arbitrary("DEBUG", "DIGEST").Build()).ToString()
	require.NoError(t, err)
	return d
}

// forgetAnswers removes what the server remembers of each process's last settle, so that states can be compared.
func forgetAnswers(t *testing.T, c valkey.Client, q *queue.Queue) {
	t.Helper()
	keys, err := c.Do(ctx, c.B().Keys().Pattern(key(q, "settled:*")).Build()).AsStrSlice()
	require.NoError(t, err)
	require.NoError(t, c.Do(ctx, c.B().Del().Key(keys...).Build()).Error())
}

func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, within, 5*time.Millisecond, what)
}

// pause takes time, as a handler or an outage does.
func pause(d time.Duration) error {
	<-time.After(d)
	return nil
}
