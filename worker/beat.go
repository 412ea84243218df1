package worker

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	beatEvery  = 5 * time.Second // less a random part, so that a fleet started at once does not beat at once
	beatWithin = 2 * time.Second
)

// beatLoop says every few seconds that this worker is there, until ctx ends; then it says that it is not. Only those who look at the
// queue heed it, so failures are no more than logged.
func (w *Worker) beatLoop(ctx, fetching context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatWithin)
			defer cancel()
			if err := w.claimer.Leave(leaving); err != nil {
				w.log.Debug("leaving failed", "error", err)
			}
			return
		case <-next.C:
		}
		beating, cancel := context.WithTimeout(ctx, beatWithin)
		if err := w.claimer.Beat(beating, w.opts.Concurrency, w.busy(), fetching.Err() != nil); err != nil && ctx.Err() == nil {
			w.log.Debug("beat failed", "error", err)
		}
		cancel()
		next.Reset(beatEvery - rand.N(beatEvery/5))
	}
}

// busy is how many jobs are claimed and not yet settled.
func (w *Worker) busy() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running)
}
