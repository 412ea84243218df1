package worker

import (
	"context"
	"runtime"
	"time"

	"github.com/echomq/emq/claim"
)

// extendLoop extends the leases of all running jobs in one call, three times a lease, until ctx ends. A handler whose lease was
// lost, or ends by the local clock before the server could be asked, has its context cancelled.
func (w *Worker) extendLoop(ctx context.Context) {
	lease := w.claimer.Lease()
	beat := time.NewTicker(lease / 3)
	defer beat.Stop()
	again := time.NewTimer(never)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-again.C:
		}
		if err := w.extend(ctx); err != nil && ctx.Err() == nil {
			w.report("extending leases failed", err)
			again.Reset(lease / 20)
		}
	}
}

func (w *Worker) extend(ctx context.Context) error {
	lease := w.claimer.Lease()
	var jobs []*Job
	byJob := map[*Job]*run{}
	for _, r := range w.runs() {
		if r.lost.Load() || w.tooLong(r) {
			continue
		}
		jobs = append(jobs, r.job)
		byJob[r.job] = r
	}
	if len(jobs) == 0 {
		return nil
	}
	// A server that does not answer must not hide that a lease ends: the call ends when the first of them is about to.
	margin := lease / 10
	until := time.Now().Add(lease / 3)
	for _, job := range jobs {
		if end := job.LeaseEnd().Add(-margin); end.Before(until) {
			until = end
		}
	}
	calling, cancel := context.WithDeadline(ctx, until)
	lost, err := w.claimer.Extend(calling, jobs)
	cancel()
	for _, job := range lost {
		w.lose(byJob[job])
	}
	if err == nil {
		return nil
	}
	for _, job := range jobs {
		if time.Until(job.LeaseEnd()) <= margin {
			w.lose(byJob[job])
		}
	}
	return err
}

func (w *Worker) lose(r *run) {
	if r.over.Load() || r.lost.Swap(true) {
		return
	}
	w.log.Warn("lease lost", "job", r.job.ID)
	w.meter.LeaseLost(1)
	r.cancel(claim.ErrLeaseLost)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle.Broadcast()
}

// tooLong: the handler ignores that its time-out is over, for so long that its job is given to another worker.
func (w *Worker) tooLong(r *run) bool {
	if r.job.Timeout == 0 || time.Since(r.started) < r.job.Timeout+w.opts.StuckAfter {
		return false
	}
	if !r.stuck {
		r.stuck = true
		stacks := make([]byte, 64<<10)
		stacks = stacks[:runtime.Stack(stacks, true)]
		w.log.Error("handler ignores its context; its slot is lost until it returns and its job goes to another worker",
			"job", r.job.ID, "running", time.Since(r.started), "stacks", string(stacks))
	}
	return true
}
