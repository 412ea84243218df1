package jobtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// Defaults of [Options].
const (
	DefaultWithin  = time.Second
	DefaultTimeout = 10 * time.Second
)

// Options of [Work]. The zero value is right for most.
type Options struct {
	// Worker are the options of the worker. Where they say nothing, failed
	// jobs come back after 10 ms and the log goes to the test's.
	Worker worker.Options
	// Within is how long a job that may not run yet, since it is delayed or a
	// limit refuses it, is waited for; [DefaultWithin] when 0. A job that
	// has longer to wait stays where it is.
	Within time.Duration
	// Timeout is how long Work may take before it fails the test;
	// [DefaultTimeout] when 0.
	Timeout time.Duration
}

// Run is one run of a job by the handler.
type Run struct {
	Job *worker.Job // as it was claimed
	Err error       // what the handler returned; an error too if it did not return
}

// errNoReturn is the Err of a handler that panicked or ended its goroutine.
var errNoReturn = errors.New("handler did not return: it panicked or ended its goroutine; the job's last error tells more")

// Work runs the jobs of a queue, and those that the handler enqueues there,
// until none is active and none can run within [Options].Within. It returns
// every run, in the order in which they started; [Jobs] tells what is left. Set
// Worker.Concurrency to 1 for jobs that must run in the order of their places.
//
// It fails the test if the options are nonsense, if the server refuses, if
// handlers do not stop, or if the queue is not at rest within
// [Options].Timeout, as with a job that defers itself again and again.
func Work(t testing.TB, queueName string, handler worker.Handler, opts Options) []Run {
	t.Helper()
	if opts.Within < 0 || opts.Timeout < 0 {
		t.Fatalf("jobtest: Within is %v and Timeout is %v; want 0 for the default, or more", opts.Within, opts.Timeout)
	}
	if opts.Within == 0 {
		opts.Within = DefaultWithin
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.Worker.Backoff == nil {
		opts.Worker.Backoff = func(int) time.Duration { return 10 * time.Millisecond }
	}
	if opts.Worker.Logger == nil {
		opts.Worker.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	looker, err := claim.New(emqtest.Client(t), queueName, claim.Options{})
	if err != nil {
		t.Fatalf("jobtest: %v", err)
	}
	w := &watch{queue: open(t, queueName), looker: looker, opts: opts, until: time.Now().Add(opts.Timeout)}
	for {
		var rested bool
		one, err := worker.New(emqtest.Client(t), queueName, w.note(handler), opts.Worker)
		if err == nil {
			err = w.run(one)
		}
		if err == nil {
			// Only now, with no worker on it, does the queue stand still to be looked at.
			rested, err = w.rested()
		}
		if err != nil {
			t.Fatalf("jobtest: queue %s: %v", queueName, err)
		}
		if rested {
			return w.runs
		}
	}
}

// watch looks at a queue and its handler for one call of Work.
type watch struct {
	queue  *queue.Queue
	looker *claim.Claimer
	opts   Options
	until  time.Time

	mu   sync.Mutex
	runs []Run // owned by mu while a worker runs
}

// note wraps a handler so that each of its runs is noted.
func (w *watch) note(next worker.Handler) worker.Handler {
	if next == nil {
		return nil
	}
	return func(ctx context.Context, job *worker.Job) error {
		w.mu.Lock()
		n := len(w.runs)
		w.runs = append(w.runs, Run{job, errNoReturn})
		w.mu.Unlock()
		err := next(ctx, job)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.runs[n].Err = err
		return err
	}
}

// run runs a worker until the queue seems to be at rest, and stops it.
func (w *watch) run(one *worker.Worker) error {
	ended := make(chan error, 1)
	go func() { ended <- one.Run(context.Background()) }()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case err := <-ended: // the server was refused
			return err
		case <-poll.C:
		}
		rested, err := w.rested()
		if err != nil {
			one.HandBack()
			return errors.Join(err, <-ended)
		}
		if rested {
			one.Stop()
			return <-ended
		}
	}
}

// rested: nothing is active and nothing can run soon.
func (w *watch) rested() (bool, error) {
	ctx := context.Background()
	counts, err := w.queue.Counts(ctx)
	if err != nil {
		return false, err
	}
	next, err := w.looker.Look(ctx)
	if err != nil {
		return false, err
	}
	if counts.Active == 0 && (next < 0 || next > w.opts.Within) {
		return true, nil
	}
	if time.Now().After(w.until) {
		return false, fmt.Errorf("not at rest after %v: %d jobs wait, %d are active, %d delayed",
			w.opts.Timeout, counts.Wait, counts.Active, counts.Delayed)
	}
	return false, nil
}
