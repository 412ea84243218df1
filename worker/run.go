package worker

import (
	"context"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/meter"
)

// run is one claimed job on its way through its handler to its settlement.
type run struct {
	job     *Job
	ctx     context.Context
	cancel  context.CancelCauseFunc
	started time.Time
	over    atomic.Bool // its outcome was decided: it returned, or was handed back without it
	lost    atomic.Bool // its lease is lost: its context was cancelled, its outcome will be refused
	stuck   bool        // past its hard cap; owned by the extender
}

// start runs a claimed job in a goroutine that holds one slot: one that ran others before, whose stack has grown as far as handlers need,
// or a new one.
func (w *Worker) start(working context.Context, job *Job) {
	ctx, cancel := context.WithCancelCause(working)
	r := &run{job: job, ctx: ctx, cancel: cancel, started: time.Now()}
	if !w.enter(r) {
		// An earlier lease of this job still runs in this process: not beside it.
		cancel(nil)
		due := time.Now().Add(w.claimer.Lease())
		w.shun.Store(&due)
		w.outcomes <- claim.Defer(job, w.claimer.Lease())
		w.giveSlots(1)
		return
	}
	if job.StartBy > 0 && job.SinceClaim() > job.StartBy {
		r.over.Store(true)
		cancel(nil)
		w.outcomes <- claim.HandBack(job)
		w.giveSlots(1)
		return
	}
	select {
	case w.next <- r:
	default:
		go func() {
			for ; r != nil; r = <-w.next {
				w.handle(r)
			}
		}()
	}
}

func (w *Worker) handle(r *run) {
	ctx, job := r.ctx, r.job
	w.meter.Busy(1)
	var traceParent, traceState string
	if w.meter != nil {
		traceParent, traceState = job.TraceContext()
	}
	ctx, end := w.meter.StartProcess(ctx, traceParent, traceState, job.ID, job.Attempt)
	if job.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, job.Timeout)
		defer cancel()
	}
	err := errGoexit
	// Deferred, so that a handler that ends its goroutine without returning is noticed.
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
		outcome, word := decide(job, err, ended(ctx), w.opts.Backoff)
		end(word, err)
		w.meter.Processed(ctx, time.Since(r.started), word, err)
		w.meter.Busy(-1)
		r.cancel(nil)
		if !r.over.Swap(true) {
			if word == meter.Dead {
				w.log.Error("job is dead", "job", job.ID, "attempt", job.Attempt)
			}
			if outcome.Closes() {
				// What closed the queue is told before this slot claims again.
				w.settle(context.WithoutCancel(ctx), []claim.Outcome{outcome})
			} else {
				w.outcomes <- outcome
			}
		}
		w.giveSlots(1)
	}()
	err = w.handler(ctx, job)
}

// enter notes a run; it refuses a job whose handler runs in this process already.
func (w *Worker) enter(r *run) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if earlier := w.ids[r.job.ID]; earlier != nil && !earlier.over.Load() {
		return false
	}
	w.running[r.job] = r
	w.ids[r.job.ID] = r
	return true
}

// waitFor returns when the job's handler has ended and its outcome is settled, when its lease is lost, when it has taken longer
// than a lease (what kills workers does so sooner), or when ctx ends.
func (w *Worker) waitFor(ctx context.Context, job *Job) {
	ctx, cancel := context.WithTimeout(ctx, w.claimer.Lease())
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.idle.Broadcast()
	})()
	w.mu.Lock()
	defer w.mu.Unlock()
	for ctx.Err() == nil && w.running[job] != nil && !w.running[job].lost.Load() {
		w.idle.Wait()
	}
}

// leave forgets the run of a job that is settled; it says whether its lease was known to be lost.
func (w *Worker) leave(job *Job) (lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.running[job]
	if r == nil {
		return false
	}
	delete(w.running, job)
	if w.ids[job.ID] == r { // else the job was claimed again meanwhile
		delete(w.ids, job.ID)
	}
	w.idle.Broadcast()
	return r.lost.Load()
}

// runs are the jobs claimed and not yet settled.
func (w *Worker) runs() []*run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.running))
}
