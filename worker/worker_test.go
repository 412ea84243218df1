package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// fast lets failed jobs come back at once.
func fast(int) time.Duration { return time.Millisecond }

// start runs a worker until the test ends or stop is called; stop returns what Run did.
func start(t *testing.T, name string, h worker.Handler, opts worker.Options) (w *worker.Worker, stop func() error) {
	t.Helper()
	if opts.Backoff == nil {
		opts.Backoff = fast
	}
	opts.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	w, err := worker.New(emqtest.Client(t), name, h, opts)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- w.Run(context.Background()) }()
	stop = sync.OnceValue(func() error {
		w.Stop()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return w, stop
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func newQueue(t *testing.T) *queue.Queue {
	t.Helper()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	return q
}

func enqueue(t *testing.T, q *queue.Queue, job queue.Job) string {
	t.Helper()
	id, err := q.Enqueue(context.Background(), job)
	require.NoError(t, err)
	return id
}

// eventually polls until a condition on the job or the queue holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, 2*time.Millisecond, what)
}

func empty(t *testing.T, q *queue.Queue) func() bool {
	return func() bool {
		c, err := q.Counts(context.Background())
		require.NoError(t, err)
		return c.Wait+c.Active+c.Delayed == 0
	}
}

func TestRunsEachJobOnceAndRemovesIt(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var runs sync.Map
	var count atomic.Int64
	jobs := make([]queue.Job, 500)
	_, stop := start(t, q.Name(), func(_ context.Context, job *worker.Job) error {
		if _, again := runs.LoadOrStore(job.ID, true); again {
			t.Errorf("job %s ran twice", job.ID)
		}
		count.Add(1)
		return nil
	}, worker.Options{Concurrency: 50})
	_, err := q.EnqueueMany(context.Background(), jobs)
	require.NoError(t, err)
	eventually(t, "all jobs settled", empty(t, q))
	require.NoError(t, stop())
	require.EqualValues(t, 500, count.Load())
	c, err := q.Counts(context.Background())
	require.NoError(t, err)
	require.Zero(t, c.Dead+c.Completed)
}

func TestF09OutcomesThatAHandlerReturns(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	ctx := context.Background()
	_, _ = start(t, q.Name(), func(_ context.Context, job *worker.Job) error {
		switch job.Name {
		case "result":
			return job.SetResult([]byte("42"))
		case "fails":
			return fmt.Errorf("attempt %d failed", job.Attempt)
		case "second":
			if job.Attempt == 1 {
				return errors.New("once")
			}
			return nil
		case "defers":
			if job.Deferrals < 3 {
				return worker.Defer(time.Millisecond)
			}
			return errors.New("after three deferrals")
		case "dead":
			return worker.DeadLetter(errors.New("no such customer"))
		case "panics":
			panic("boom \xff")
		case "panics-nil":
			panic(nil)
		case "panics-error":
			panic(errors.New("an error"))
		case "nil-map":
			var m map[string]int
			m["x"] = 1
		case "goexit":
			runtime.Goexit()
		}
		return nil
	}, worker.Options{Concurrency: 4})

	id := enqueue(t, q, queue.Job{Name: "result", Retain: time.Minute})
	eventually(t, "result kept", func() bool { s, err := q.Get(ctx, id); return err == nil && s.State == queue.Completed })
	s, err := q.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, "42", string(s.Result))

	dead := func(name string, max int) queue.Status {
		t.Helper()
		id := enqueue(t, q, queue.Job{Name: name, MaxAttempts: max})
		eventually(t, name+" is dead", func() bool { s, err := q.Get(ctx, id); return err == nil && s.State == queue.Dead })
		s, err := q.Get(ctx, id)
		require.NoError(t, err)
		return s
	}
	s = dead("fails", 3)
	require.Equal(t, 3, s.Attempts)
	require.Equal(t, queue.ReasonAttempts, s.Reason)
	require.Equal(t, "attempt 3 failed", s.LastError)

	s = dead("defers", 1)
	require.Equal(t, 1, s.Attempts)
	require.Equal(t, 3, s.Deferrals)

	s = dead("dead", 5)
	require.Equal(t, queue.ReasonDeadLettered, s.Reason)
	require.Equal(t, "no such customer", s.LastError)

	for name, text := range map[string]string{
		"panics": "handler panicked: boom", "panics-nil": "handler panicked", "panics-error": "an error",
		"nil-map": "nil map", "goexit": "runtime.Goexit",
	} {
		s = dead(name, 1)
		require.Contains(t, s.LastError, text)
		require.Equal(t, queue.ReasonAttempts, s.Reason)
	}

	id = enqueue(t, q, queue.Job{Name: "second"})
	eventually(t, "second attempt", func() bool { _, err := q.Get(ctx, id); return errors.Is(err, queue.ErrNotFound) })
}

func TestF91MuxDefersNamesThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var ran atomic.Int64
	mux := worker.Mux{Handlers: map[string]worker.Handler{
		"a": func(context.Context, *worker.Job) error { ran.Add(1); return nil },
		"b": func(context.Context, *worker.Job) error { ran.Add(1); return nil },
	}, UnknownDelay: time.Minute}
	_, _ = start(t, q.Name(), mux.Handle, worker.Options{})
	enqueue(t, q, queue.Job{Name: "a"})
	enqueue(t, q, queue.Job{Name: "b"})
	id := enqueue(t, q, queue.Job{Name: "c"})
	eventually(t, "c deferred", func() bool {
		s, err := q.Get(context.Background(), id)
		return err == nil && s.State == queue.Delayed && s.DelayedBy == queue.ByDefer && s.Attempts == 0
	})
	eventually(t, "a and b ran", func() bool { return ran.Load() == 2 })
}

func TestTypedPayloads(t *testing.T) {
	t.Parallel()
	type mail struct{ To string }
	q := newQueue(t)
	got := make(chan mail, 1)
	_, _ = start(t, q.Name(), worker.Typed(func(_ context.Context, m mail, _ *worker.Job) error { got <- m; return nil }), worker.Options{})
	_, err := queue.TypedOf[mail](q).Enqueue(context.Background(), mail{"ana"}, queue.Job{})
	require.NoError(t, err)
	require.Equal(t, mail{"ana"}, <-got)
	id := enqueue(t, q, queue.Job{Payload: []byte("{")})
	eventually(t, "bad payload is dead", func() bool {
		s, err := q.Get(context.Background(), id)
		return err == nil && s.State == queue.Dead && s.Reason == queue.ReasonDeadLettered
	})
}

// A job that comes back at once is claimed again before this process has heard that its settle was done.
func TestJobThatComesBackAtOnceRunsAtOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	runs := make(chan int, 100)
	_, _ = start(t, q.Name(), func(_ context.Context, job *worker.Job) error {
		runs <- job.Deferrals
		if job.Deferrals < 40 {
			return worker.Defer(0)
		}
		return nil
	}, worker.Options{Concurrency: 4})
	enqueue(t, q, queue.Job{})
	for want := range 41 {
		require.Equal(t, want, <-runs, "each deferral is one that the handler asked for")
	}
	eventually(t, "settled", empty(t, q))
}

func TestMiddlewareWrapsInOrder(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	order := make(chan string, 3)
	mark := func(name string) worker.Middleware {
		return func(next worker.Handler) worker.Handler {
			return func(ctx context.Context, job *worker.Job) error { order <- name; return next(ctx, job) }
		}
	}
	_, _ = start(t, q.Name(), func(context.Context, *worker.Job) error { order <- "handler"; return nil },
		worker.Options{Middleware: []worker.Middleware{mark("outer"), mark("inner")}})
	enqueue(t, q, queue.Job{})
	require.Equal(t, []string{"outer", "inner", "handler"}, []string{<-order, <-order, <-order})
}

func TestTimeoutEndsTheContext(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	cause := make(chan error, 1)
	_, _ = start(t, q.Name(), func(ctx context.Context, _ *worker.Job) error {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	}, worker.Options{})
	id := enqueue(t, q, queue.Job{Timeout: 20 * time.Millisecond, MaxAttempts: 1})
	require.ErrorIs(t, <-cause, context.DeadlineExceeded)
	eventually(t, "dead", func() bool { s, err := q.Get(context.Background(), id); return err == nil && s.State == queue.Dead })
}

func TestLeaseIsExtendedWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var runs atomic.Int64
	release := make(chan struct{})
	for range 2 { // a second worker would take the job if its lease ended
		_, _ = start(t, q.Name(), func(ctx context.Context, _ *worker.Job) error {
			runs.Add(1)
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, worker.Options{Concurrency: 1, Claim: claim.Options{Lease: 2 * time.Second}})
	}
	id := enqueue(t, q, queue.Job{})
	eventually(t, "running", func() bool { return runs.Load() == 1 })
	first, err := q.Get(context.Background(), id)
	require.NoError(t, err)
	eventually(t, "extended well past its first end", func() bool {
		s, err := q.Get(context.Background(), id)
		return err == nil && s.LeaseEnd.Sub(first.LeaseEnd) > 2500*time.Millisecond
	})
	close(release)
	eventually(t, "settled", empty(t, q))
	require.EqualValues(t, 1, runs.Load())
}

func TestLostLeaseCancelsTheHandler(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	client := emqtest.Client(t)
	cause := make(chan error, 1)
	var runs atomic.Int64
	_, _ = start(t, q.Name(), func(ctx context.Context, _ *worker.Job) error {
		if runs.Add(1) > 1 {
			return nil
		}
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return errors.New("too late")
	}, worker.Options{Claim: claim.Options{Lease: 300 * time.Millisecond}})
	id := enqueue(t, q, queue.Job{MaxAttempts: 1})
	eventually(t, "active", func() bool {
		s, err := q.Get(context.Background(), id)
		return err == nil && s.State == queue.Active && runs.Load() == 1
	})
	// Another worker takes the job over, as if this one had been stopped: its lease is gone and the job waits again.
	other, err := claim.New(client, q.Name(), claim.Options{Lease: 300 * time.Millisecond})
	require.NoError(t, err)
	members, err := client.Do(context.Background(), client.B().Zrange().Key("emq:{"+q.Name()+"}:active").Min("0").Max("-1").Build()).AsStrSlice()
	require.NoError(t, err)
	require.NoError(t, client.Do(context.Background(), client.B().Zadd().Key("emq:{"+q.Name()+"}:active").ScoreMember().ScoreMember(1, members[0]).Build()).Error())
	_, err = other.Claim(context.Background(), 0)
	require.NoError(t, err)
	require.ErrorIs(t, <-cause, claim.ErrLeaseLost)
	eventually(t, "ran again and completed: the late error changed nothing", empty(t, q))
	require.EqualValues(t, 2, runs.Load())
}

func TestF14StopDrainsWithinTheGrace(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	started := make(chan string, 10)
	finish := make(chan struct{})
	_, stop := start(t, q.Name(), func(ctx context.Context, job *worker.Job) error {
		started <- job.ID
		if job.Name == "slow" {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), worker.ErrStopping) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return ctx.Err()
		}
		<-finish
		return nil
	}, worker.Options{Concurrency: 10, Grace: 200 * time.Millisecond})
	for i := range 10 {
		name := ""
		if i%3 == 0 && i < 9 {
			name = "slow"
		}
		enqueue(t, q, queue.Job{ID: fmt.Sprint(i), Name: name})
	}
	for range 10 {
		<-started
	}
	ended := make(chan error)
	go func() { ended <- stop() }()
	close(finish)
	require.NoError(t, <-ended)
	page, err := q.List(context.Background(), queue.Wait, 0, 10)
	require.NoError(t, err)
	var ids []string
	for _, s := range page {
		require.Zero(t, s.Attempts)
		ids = append(ids, s.ID)
	}
	require.Equal(t, []string{"0", "3", "6"}, ids, "the unfinished are handed back at their places, the others completed")
}

func TestF15HandBackDoesNotWait(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	started := make(chan struct{})
	w, stop := start(t, q.Name(), func(ctx context.Context, _ *worker.Job) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	}, worker.Options{Grace: time.Hour})
	id := enqueue(t, q, queue.Job{})
	<-started
	w.Stop()
	w.HandBack()
	w.HandBack()
	require.NoError(t, stop())
	s, err := q.Get(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, queue.Wait, s.State)
	require.Zero(t, s.Attempts)
}

// Jobs of a claim that is under way are handed back too.
func TestF16HandBackLeavesNoLease(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for range 40 {
		_, err := q.EnqueueMany(context.Background(), make([]queue.Job, 20))
		require.NoError(t, err)
		ran := make(chan struct{}, 1000)
		w, stop := start(t, q.Name(), func(context.Context, *worker.Job) error {
			ran <- struct{}{}
			return nil
		}, worker.Options{Concurrency: 3})
		<-ran
		w.HandBack()
		require.NoError(t, stop())
		c, err := q.Counts(context.Background())
		require.NoError(t, err)
		require.Zero(t, c.Active)
	}
}

func TestHandlerThatIgnoresTheStopIsHandedBackWithoutIt(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	started, release := make(chan struct{}), make(chan struct{})
	w, stop := start(t, q.Name(), func(context.Context, *worker.Job) error {
		close(started)
		<-release
		return nil
	}, worker.Options{})
	id := enqueue(t, q, queue.Job{})
	<-started
	w.HandBack()
	require.ErrorContains(t, stop(), "1 handlers did not stop")
	s, err := q.Get(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, queue.Wait, s.State)
	close(release)
}

func TestStopEndsAlthoughTheServerIsAway(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	q, err := queue.New(client, "q", queue.Options{})
	require.NoError(t, err)
	enqueue(t, q, queue.Job{})
	started := make(chan struct{})
	w, err := worker.New(client, "q", func(ctx context.Context, _ *worker.Job) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	}, worker.Options{Grace: 10 * time.Millisecond})
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- w.Run(context.Background()) }()
	<-started
	server.Kill()
	w.Stop()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the worker waits for a server that is away; its leases end without it")
	}
}

func TestF17StopAndRunInAnyOrder(t *testing.T) {
	t.Parallel()
	client := emqtest.Client(t)
	nothing := func(context.Context, *worker.Job) error { return nil }
	w, err := worker.New(client, emqtest.Queue(t), nothing, worker.Options{})
	require.NoError(t, err)
	w.Stop()
	w.Stop()
	require.NoError(t, w.Run(context.Background()), "stopped before it began")
	require.ErrorContains(t, w.Run(context.Background()), "Run was called before")

	q := newQueue(t)
	var w2 *worker.Worker
	inside := make(chan struct{})
	w2, err = worker.New(client, q.Name(), func(context.Context, *worker.Job) error { w2.Stop(); close(inside); return nil }, worker.Options{})
	require.NoError(t, err)
	enqueue(t, q, queue.Job{})
	require.NoError(t, w2.Run(context.Background()), "stopped from a handler")
	<-inside
	require.True(t, empty(t, q)())

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w3, err := worker.New(client, q.Name(), nothing, worker.Options{})
	require.NoError(t, err)
	require.NoError(t, w3.Run(ctx))
}

func TestLimitedWorkersStartMaxInEachWindow(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	_, err := q.SetLimit(context.Background(), limiter.Limit{Max: 5, Window: 400 * time.Millisecond}, "test") // far longer than a wake-up takes
	require.NoError(t, err)
	var mu sync.Mutex
	var claimed []int64
	for range 3 {
		_, _ = start(t, q.Name(), func(_ context.Context, job *worker.Job) error {
			mu.Lock()
			claimed = append(claimed, job.ClaimedAt.UnixMilli())
			mu.Unlock()
			return nil
		}, worker.Options{Concurrency: 4})
	}
	_, err = q.EnqueueMany(context.Background(), make([]queue.Job, 25))
	require.NoError(t, err)
	eventually(t, "all ran", empty(t, q))
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, claimed, 25)
	window := map[int64]int{}
	first := claimed[0]
	for _, at := range claimed {
		first = min(first, at)
	}
	// Windows open with their first grant: group what lies within a window of the last opening.
	opened := int64(-1)
	for _, at := range sorted(claimed) {
		if opened < 0 || at >= opened+400 {
			opened = at
		}
		window[opened]++
	}
	for at, n := range window {
		require.Equal(t, 5, n, "window at %d", at-first)
	}
	require.Len(t, window, 5)
}

func sorted(times []int64) []int64 {
	out := slices.Clone(times)
	slices.Sort(out)
	return out
}

func TestRefusesNonsense(t *testing.T) {
	t.Parallel()
	client := emqtest.Client(t)
	nothing := func(context.Context, *worker.Job) error { return nil }
	for want, opts := range map[string]worker.Options{
		"Concurrency": {Concurrency: -1}, "Grace": {Grace: -1}, "StuckAfter": {StuckAfter: -1},
		"Lease": {Claim: claim.Options{Lease: time.Millisecond}}, "MaxReclaims": {Claim: claim.Options{MaxReclaims: -1}},
	} {
		_, err := worker.New(client, "q", nothing, opts)
		require.ErrorContains(t, err, want)
	}
	_, err := worker.New(client, "q}:meta", nothing, worker.Options{})
	require.ErrorIs(t, err, queue.ErrBadName)
	_, err = worker.New(client, "q", nil, worker.Options{})
	require.ErrorContains(t, err, "handler")
	_, err = worker.New(nil, "q", nothing, worker.Options{})
	require.ErrorContains(t, err, "client")
}

// F32: the worker of a user who may not run a command of the scripts claims nothing.
func TestF32WorkerWithoutACommandDoesNotStart(t *testing.T) {
	t.Parallel()
	client, name := emqtest.Client(t), emqtest.Queue(t)
	q, err := queue.New(client, name, queue.Options{})
	require.NoError(t, err)
	_, err = q.Enqueue(context.Background(), queue.Job{ID: "a"})
	require.NoError(t, err)
	do := func(words ...string) {
		require.NoError(t, client.Do(context.Background(), client.B().Arbitrary(words...).Build()).Error())
	}
	do("ACL", "SETUSER", name, "on", ">secret", "+@all", "~*", "&*", "-zadd")
	t.Cleanup(func() { do("ACL", "DELUSER", name) })
	options, err := valkey.ParseURL(emqtest.URL(t))
	require.NoError(t, err)
	options.Username, options.Password = name, "secret"
	restricted, err := valkey.NewClient(options)
	require.NoError(t, err)
	defer restricted.Close()
	w, err := worker.New(restricted, name, func(context.Context, *worker.Job) error { t.Error("the handler ran"); return nil }, worker.Options{})
	require.NoError(t, err)
	require.ErrorIs(t, w.Run(context.Background()), queue.ErrNoAccess)
	s, err := q.Get(context.Background(), "a")
	require.NoError(t, err)
	require.Equal(t, queue.Wait, s.State)
	p, err := queue.New(restricted, name, queue.Options{})
	require.NoError(t, err)
	_, err = p.Enqueue(context.Background(), queue.Job{})
	require.ErrorIs(t, err, queue.ErrNoAccess)
}
