package worker

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/echomq/emq/claim"
)

const (
	lookWithin = 5 * time.Second // a client that retries would wait for a server that is away without a word
	lookAgain  = time.Second     // after a look that failed
	firstLook  = 2 * time.Second // at most; the answer says when the next is
	awaitFor   = 10 * time.Second
	mostPushed = 64
)

// duty is a worker's part in watching over its queue: it listens for wake-ups, and has the timers that the server's answers set.
type duty struct {
	w       *Worker
	watcher claim.Watcher
	ears    *listener
	claim   *time.Timer // claim then
	look    *time.Timer // look then
	push    int         // how many to wake at least when the next look finds work, too, that nobody answers for
}

func newDuty(w *Worker) *duty {
	return &duty{w: w, watcher: w.claimer.Watch(), ears: newListener(w.claimer), claim: time.NewTimer(never), look: time.NewTimer(rand.N(firstLook))}
}

const never = 1 << 62

func (d *duty) set(t claim.Timers) {
	in := t.Claim
	if in < 0 {
		in = never
	}
	d.claim.Reset(in)
	if t.Look >= 0 {
		d.look.Reset(t.Look)
	}
}

// sleep returns when a claim is worth making: a wake-up came, the time that an answer named is there, or a look finds work.
func (d *duty) sleep(ctx context.Context) error {
	d.ears.listen()
	defer d.ears.wanted.Store(false)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.ears.woken:
			return nil
		case <-d.claim.C:
			return nil
		case <-d.look.C:
			found, err := d.do(ctx, claim.Idle, true, 0)
			if found.Claim || err != nil {
				return err
			}
		}
	}
}

// pass is what a busy worker does when a timer rings, that to look or the other, or a wake-up came to it: others are to claim.
func (d *duty) pass(ctx context.Context, turn bool, push int) {
	if _, err := d.do(ctx, claim.Busy, turn, push); err != nil && ctx.Err() == nil {
		d.w.report("looking for work failed", err)
	}
}

// leave gives up the worker's part, and a wake-up that it no longer follows.
func (d *duty) leave(ctx context.Context) {
	d.ears.stop()
	push := 0
	select {
	case <-d.ears.woken:
		push = 1
	default:
	}
	if _, err := d.do(ctx, claim.Leaving, false, push); err != nil && ctx.Err() == nil {
		d.w.log.Warn("leaving the watch over the queue to others failed; they notice within a second or so", "error", err)
	}
	d.claim.Stop()
	d.look.Stop()
}

func (d *duty) do(ctx context.Context, stance claim.Stance, turn bool, push int) (claim.Looked, error) {
	// Not a deadline: the client would wait for it even when ctx ends before.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(lookWithin, cancel).Stop()
	found, err := d.watcher.Look(ctx, stance, turn, max(push, d.push))
	if err != nil {
		d.look.Reset(lookAgain)
		return found, err
	}
	d.push = min(2*found.Pushed, mostPushed)
	d.set(found.Timers)
	return found, nil
}

// listener sits in a blocking pop for wake-ups while its worker sleeps.
type listener struct {
	woken  chan struct{}
	ask    chan struct{}
	wanted atomic.Bool // its worker sleeps
	cancel context.CancelFunc
	done   chan struct{}
}

func newListener(c *claim.Claimer) *listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{woken: make(chan struct{}, 1), ask: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go l.run(ctx, c)
	return l
}

func (l *listener) run(ctx context.Context, c *claim.Claimer) {
	defer close(l.done)
	pause := newPause()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.ask:
		}
		for ctx.Err() == nil && l.wanted.Load() {
			woken, err := c.Await(ctx, awaitFor)
			if err != nil {
				// The worker's own calls say what is wrong.
				pause.wait(ctx)
				continue
			}
			pause.reset()
			if woken {
				select {
				case l.woken <- struct{}{}:
				default:
				}
				break
			}
		}
	}
}

// listen makes sure that the listener listens.
func (l *listener) listen() {
	l.wanted.Store(true)
	select {
	case l.ask <- struct{}{}:
	default:
	}
}

func (l *listener) stop() {
	l.cancel()
	<-l.done
}
