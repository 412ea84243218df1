package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/meter"
)

// Defaults of [Options].
const (
	DefaultConcurrency = 20
	DefaultGrace       = 25 * time.Second
)

// Options of a [Worker]. The zero value means the defaults.
type Options struct {
	// Concurrency is how many handlers run at once; [DefaultConcurrency] when 0.
	Concurrency int
	// Claim sets the lease and the other options of claiming.
	Claim claim.Options
	// Grace is how long running handlers may go on after the stop; [DefaultGrace] when 0. Then their contexts end and what is
	// unfinished is handed back.
	Grace time.Duration
	// StuckAfter is how long after its time-out a handler that ignores its context keeps its lease; 5 minutes when 0. After
	// that its job is reclaimed, and what it returns is not applied.
	StuckAfter time.Duration
	// Backoff is how long failed jobs wait; [DefaultBackoff] when nil.
	Backoff Backoff
	// Middleware wraps the handler, the first outermost.
	Middleware []Middleware
	// Logger gets what nobody can be told by a returned error; none when nil.
	Logger *slog.Logger
}

// Worker claims jobs of one queue and runs them. Make one with [New], run it once with [Worker.Run].
type Worker struct {
	claimer *claim.Claimer
	handler Handler
	opts    Options
	log     *slog.Logger
	meter   *meter.Queue

	ran      atomic.Bool
	stop     chan struct{} // closed: no more claims
	stopOnce sync.Once
	abort    chan struct{} // closed: hand back at once
	abrtOnce sync.Once

	slots    chan struct{} // one token per free handler slot
	outcomes chan claim.Outcome
	shun     atomic.Pointer[time.Time] // when a job falls due that is for other workers, since its handler still runs here
	next     chan *run                 // to a goroutine that waits for its next run; closed when no more is started

	mu      sync.Mutex
	running map[*Job]*run   // claimed and not yet settled; owned by mu
	ids     map[string]*run // the latest of them by job id; owned by mu
	idle    *sync.Cond      // running became smaller
}

// New returns a worker for the queue of that name. Nothing is sent yet. It fails with queue.ErrBadName and refuses nonsense in
// the options. The caller makes and closes the client.
func New(client valkey.Client, name string, handler Handler, opts Options) (*Worker, error) {
	if handler == nil {
		return nil, errors.New("worker: handler is nil")
	}
	switch {
	case opts.Concurrency < 0 || opts.Concurrency > claim.MaxBatch:
		return nil, fmt.Errorf("worker: Concurrency is %d; want 1 to %d, or 0 for %d", opts.Concurrency, claim.MaxBatch, DefaultConcurrency)
	case opts.Grace < 0:
		return nil, fmt.Errorf("worker: Grace is %v; want more than 0, or 0 for %v", opts.Grace, DefaultGrace)
	case opts.StuckAfter < 0:
		return nil, fmt.Errorf("worker: StuckAfter is %v; want more than 0, or 0 for 5m", opts.StuckAfter)
	}
	claimer, err := claim.New(client, name, opts.Claim)
	if err != nil {
		return nil, err
	}
	if opts.Concurrency == 0 {
		opts.Concurrency = DefaultConcurrency
	}
	if opts.Grace == 0 {
		opts.Grace = DefaultGrace
	}
	if opts.StuckAfter == 0 {
		opts.StuckAfter = 5 * time.Minute
	}
	if opts.Backoff == nil {
		opts.Backoff = DefaultBackoff
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w := &Worker{
		claimer: claimer, handler: Chain(handler, opts.Middleware...), opts: opts, log: log.With("queue", name),
		meter: opts.Claim.Meter.Queue(name), stop: make(chan struct{}), abort: make(chan struct{}),
		slots: make(chan struct{}, opts.Concurrency), outcomes: make(chan claim.Outcome, opts.Concurrency), next: make(chan *run),
		running: map[*Job]*run{}, ids: map[string]*run{},
	}
	w.idle = sync.NewCond(&w.mu)
	for range opts.Concurrency {
		w.slots <- struct{}{}
	}
	return w, nil
}

// Run claims and runs jobs until ctx ends or [Worker.Stop] is called, then stops as [Options].Grace says and returns nil when
// all it had claimed is settled. A server that goes away is waited for, with jitter; running handlers go on as long as their
// leases do. It fails at once on a server that a queue cannot be kept on, and when it was run before.
//
// An error at the end says how many handlers did not stop; their jobs were handed back all the same.
func (w *Worker) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return errors.New("worker: Run was called before; make a new worker")
	}
	fetching, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.stop:
		case <-w.abort:
		case <-fetching.Done():
		}
		cancel()
	}()
	if err := w.checkServer(fetching); err != nil {
		return err
	}

	base := context.WithoutCancel(ctx)
	working, stopHandlers := context.WithCancelCause(base)
	defer stopHandlers(ErrStopping)
	var loops sync.WaitGroup
	extending, stopExtending := context.WithCancel(base)
	loops.Go(func() { w.extendLoop(extending) })
	loops.Go(func() { w.beatLoop(extending, fetching) })
	settling, stopSettling := context.WithCancel(base)
	defer stopSettling()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		w.settleLoop(settling)
	}()

	// A claim under way at the stop is given a moment: its jobs are run or handed back. After that they come back by lease.
	claiming, stopClaiming := context.WithCancel(base)
	defer stopClaiming()
	defer context.AfterFunc(fetching, func() {
		moment := time.NewTimer(lastClaim)
		defer moment.Stop()
		select {
		case <-w.abort:
			moment.Reset(handBackClaim)
			select {
			case <-moment.C:
			case <-claiming.Done():
			}
		case <-moment.C:
		case <-claiming.Done():
		}
		stopClaiming()
	})()
	w.fetchLoop(fetching, claiming, working)
	close(w.next)

	left := w.drain(stopHandlers, stopSettling)
	close(w.outcomes)
	<-settled
	stopExtending()
	loops.Wait()
	if left > 0 {
		return fmt.Errorf("worker: %d handlers did not stop within %v of the end of their context; their jobs were handed back", left, afterCancel)
	}
	return nil
}

// Stop makes [Worker.Run] stop claiming and return when the running jobs are settled, at the latest after the grace. It does
// not wait and may be called at any time, by anyone, more than once.
func (w *Worker) Stop() { w.stopOnce.Do(func() { close(w.stop) }) }

// HandBack makes [Worker.Run] end the contexts of all handlers and hand their jobs back at once, without waiting for the grace.
// It does not wait and may be called at any time, by anyone, more than once.
func (w *Worker) HandBack() { w.abrtOnce.Do(func() { close(w.abort) }) }

// checkServer looks at the server once it can be reached.
func (w *Worker) checkServer(ctx context.Context) error {
	for pause := newPause(); ; {
		err := w.claimer.Check(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if refused(err) {
			return err
		}
		w.log.Warn("server not reached", "error", err)
		pause.wait(ctx)
	}
}
