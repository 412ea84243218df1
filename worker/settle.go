package worker

import (
	"context"
	"time"

	"github.com/echomq/emq/claim"
)

// Bounds of one settle call.
const (
	settleBatch = 500
	settleBytes = 4 << 20
)

// settleLoop settles outcomes as they come: what gathers while one call is under way goes with the next, so a busy worker
// settles many at a time and an idle one does not wait. It ends when outcomes is closed and empty.
func (w *Worker) settleLoop(ctx context.Context) {
	for first := range w.outcomes {
		batch, size := []claim.Outcome{first}, first.Size()
	gather:
		for len(batch) < settleBatch && size < settleBytes {
			select {
			case next, open := <-w.outcomes:
				if !open {
					break gather
				}
				batch = append(batch, next)
				size += next.Size()
			default:
				break gather
			}
		}
		w.settle(ctx, batch)
	}
}

func (w *Worker) settle(ctx context.Context, batch []claim.Outcome) {
	// Past the longest lease of the batch no settle can succeed any more; the server is asked once all the same.
	until := time.Now()
	for _, o := range batch {
		if end := o.Job.LeaseEnd(); end.After(until) {
			until = end
		}
	}
	ctx, cancel := context.WithDeadline(ctx, until.Add(time.Second))
	defer cancel()
	answers, err := w.claimer.Settle(ctx, batch)
	known := make([]bool, len(batch)) // the loss of the lease was noticed and counted before
	for i, o := range batch {
		known[i] = w.leave(o.Job)
	}
	if err != nil {
		w.log.Error("settling failed; the jobs come back when their leases end", "jobs", len(batch), "error", err)
		return
	}
	for i, answer := range answers {
		if answer != nil && !known[i] {
			w.meter.LeaseLost(1)
			w.log.Warn("outcome refused", "job", batch[i].Job.ID, "error", answer)
		}
	}
}
