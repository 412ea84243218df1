package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/echomq/emq/queue"
)

// fetchLoop claims as many jobs as there are free slots, again and again, and sleeps when there are none, until ctx ends.
func (w *Worker) fetchLoop(ctx, claiming, working context.Context) {
	duty := newDuty(w)
	defer duty.leave(claiming)
	pause := newPause()
	again := true
	for {
		free := w.takeSlots(ctx, duty)
		if !again && ctx.Err() == nil {
			// What frees up meanwhile stays for the claim.
			if err := duty.sleep(ctx); err != nil {
				w.report("looking for work failed", err)
				pause.wait(ctx)
			}
			free += w.freeSlots()
		}
		w.standBack(ctx, duty)
		if ctx.Err() != nil {
			w.giveSlots(free)
			return
		}
		batch, err := duty.watcher.Claim(claiming, free)
		if err != nil {
			w.giveSlots(free)
			w.report("claim failed", err)
			pause.wait(ctx)
			again = true
			continue
		}
		pause.reset()
		duty.set(batch.Timers)
		again = batch.Again
		w.giveSlots(free - len(batch.Jobs))
		for _, job := range batch.Jobs {
			w.start(working, job)
		}
		if n := len(batch.Jobs); n > 0 && batch.Jobs[n-1].Suspect {
			// Workers were lost with this job. If this one is too, no further job shall be lost with it.
			w.waitFor(ctx, batch.Jobs[n-1])
		}
		if batch.Died > 0 {
			w.log.Error("jobs went to dead", "count", batch.Died)
		}
	}
}

// takeSlots waits for a free slot and takes all that are free. While there is none the worker does its duty as a busy one.
func (w *Worker) takeSlots(ctx context.Context, duty *duty) int {
	for {
		select {
		case <-w.slots:
			return 1 + w.freeSlots()
		case <-duty.claim.C:
			duty.pass(ctx, false, 0)
		case <-duty.look.C:
			duty.pass(ctx, true, 0)
		case <-duty.ears.woken:
			duty.pass(ctx, false, 1)
		case <-ctx.Done():
			return 0
		}
	}
}

// How long before and after a job that is for others falls due a worker leaves claiming to them: longer than they take to notice.
const (
	shunBefore = 100 * time.Millisecond
	shunAfter  = 1500 * time.Millisecond
)

// standBack does the worker's duty as a busy one while a job is due whose handler still runs here: else the worker that is the first to know
// would claim it again and again, and no other would get it.
func (w *Worker) standBack(ctx context.Context, duty *duty) {
	due := w.shun.Load()
	if due == nil || time.Until(*due) > shunBefore {
		return
	}
	w.shun.CompareAndSwap(due, nil)
	over := time.NewTimer(time.Until(due.Add(shunAfter)))
	defer over.Stop()
	duty.pass(ctx, false, 1)
	for {
		select {
		case <-over.C:
			return
		case <-duty.claim.C:
			duty.pass(ctx, false, 0)
		case <-duty.look.C:
			duty.pass(ctx, true, 0)
		case <-duty.ears.woken:
			duty.pass(ctx, false, 1)
		case <-ctx.Done():
			return
		}
	}
}

// freeSlots takes the slots that are free now.
func (w *Worker) freeSlots() (n int) {
	for {
		select {
		case <-w.slots:
			n++
		default:
			return n
		}
	}
}

func (w *Worker) giveSlots(n int) {
	for range n {
		w.slots <- struct{}{}
	}
}

// pause waits longer after each failure, with jitter.
type pause struct{ next time.Duration }

const (
	firstPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
)

func newPause() *pause { return &pause{firstPause} }

func (p *pause) reset() { p.next = firstPause }

func (p *pause) wait(ctx context.Context) {
	t := time.NewTimer(p.next/2 + rand.N(p.next))
	defer t.Stop()
	p.next = min(2*p.next, mostPause)
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// report logs a failure that is retried: loudly when the queue itself is set up wrongly.
func (w *Worker) report(what string, err error) {
	var config *queue.ConfigError
	var corrupt *queue.CorruptError
	if errors.As(err, &config) || errors.As(err, &corrupt) {
		w.log.Error("the queue hands out nothing until this is mended", "error", err)
		return
	}
	w.log.Warn(what, "error", err)
}

// refused: the server is one that a queue cannot be kept on; waiting does not help.
func refused(err error) bool {
	return errors.Is(err, queue.ErrServerTooOld) || errors.Is(err, queue.ErrEvicts) || errors.Is(err, queue.ErrNoAccess)
}
