package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/echomq/emq/queue"
)

// How often a worker that waits looks whether work came that nobody woke it for: a limit changed by another runtime, a worker
// that died after it was woken.
const (
	lookEvery  = time.Second
	lookWithin = 5 * time.Second // a client that retries reads would wait for a server that is away without a word
)

// fetchLoop claims as many jobs as there are free slots, again and again, and sleeps when there are none, until ctx ends.
func (w *Worker) fetchLoop(ctx, claiming, working context.Context) {
	ears := newListener(w)
	defer func() {
		ears.stop()
		select {
		case <-ears.woken: // a wake-up that this worker no longer follows goes to another
			if _, err := w.claimer.Claim(claiming, 0); err != nil {
				w.report("passing a wake-up on failed", err)
			}
		default:
		}
	}()
	pause := newPause()
	next := time.Duration(-1)
	for {
		free := w.takeSlots(ctx, ears, next)
		if ctx.Err() != nil {
			w.giveSlots(free)
			return
		}
		batch, err := w.claimer.Claim(claiming, free)
		if err != nil {
			w.giveSlots(free)
			w.report("claim failed", err)
			pause.wait(ctx)
			continue
		}
		pause.reset()
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
		next = batch.Next
		if len(batch.Jobs) == free || batch.More {
			if next == 0 && !batch.More {
				next = -1 // the claim has woken another worker for what it left
			}
			continue
		}
		if err := w.sleep(ctx, ears, next); err != nil {
			w.report("looking for work failed", err)
			pause.wait(ctx)
		}
		next = -1
	}
}

// takeSlots waits for a free slot and takes all that are free. While there is none, work that turns up is passed on to other
// workers: a claim of none brings it back and wakes one of them.
func (w *Worker) takeSlots(ctx context.Context, ears *listener, next time.Duration) (n int) {
	alarm := newAlarm(next)
	defer alarm.Stop()
	for n == 0 {
		select {
		case <-w.slots:
			n++
		case <-alarm.C:
			w.passOn(ctx, alarm)
		case <-ears.woken:
			w.passOn(ctx, alarm)
		case <-ctx.Done():
			return 0
		}
	}
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

func (w *Worker) passOn(ctx context.Context, alarm *time.Timer) {
	batch, err := w.claimer.Claim(ctx, 0)
	if err != nil {
		if ctx.Err() == nil {
			w.report("claim failed", err)
		}
		return
	}
	switch {
	case batch.More:
		alarm.Reset(time.Millisecond)
	case batch.Next > 0:
		alarm.Reset(batch.Next)
	}
}

// sleep returns when a claim is worth making: a wake-up came, the time that the last claim named is there, or a look finds work.
func (w *Worker) sleep(ctx context.Context, ears *listener, next time.Duration) error {
	alarm := newAlarm(next)
	defer alarm.Stop()
	look := time.NewTimer(jitter(lookEvery))
	defer look.Stop()
	ears.listen()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ears.woken:
			return nil
		case <-alarm.C:
			return nil
		case <-look.C:
			looking, cancel := context.WithTimeout(ctx, lookWithin)
			next, err := w.claimer.Look(looking)
			cancel()
			switch {
			case ctx.Err() != nil || next == 0:
				return nil
			case err != nil:
				return err
			case next > 0:
				alarm.Reset(next)
			}
			look.Reset(jitter(lookEvery))
			ears.listen()
		}
	}
}

// listener sits in a blocking pop for wake-ups while its worker sleeps.
type listener struct {
	woken  chan struct{}
	ask    chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

func newListener(w *Worker) *listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{make(chan struct{}, 1), make(chan struct{}, 1), cancel, make(chan struct{})}
	go func() {
		defer close(l.done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.ask:
			}
			woken, err := w.claimer.Await(ctx, awaitFor)
			if err != nil {
				// The look of the sleeping worker finds out what is wrong and says so.
				continue
			}
			if woken {
				select {
				case l.woken <- struct{}{}:
				default:
				}
			}
		}
	}()
	return l
}

// awaitFor bounds one blocking pop.
const awaitFor = 5 * time.Second

// listen makes sure that the listener listens.
func (l *listener) listen() {
	select {
	case l.ask <- struct{}{}:
	default:
	}
}

func (l *listener) stop() {
	l.cancel()
	<-l.done
}

func newAlarm(in time.Duration) *time.Timer {
	if in < 0 {
		in = 1 << 62
	}
	return time.NewTimer(in)
}

// jitter is d more or less a tenth.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)))
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
	return errors.Is(err, queue.ErrServerTooOld) || errors.Is(err, queue.ErrEvicts)
}
