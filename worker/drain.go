package worker

import (
	"context"
	"time"

	"github.com/echomq/emq/claim"
)

// A claim under way at the stop may take lastClaim, or handBackClaim when all is to be handed back at once: its jobs would come back only
// when their leases end. Once their contexts have ended, handlers may take afterCancel to return, and settling goes on for lastSettle: on a server
// that is away it would not end before the leases do.
const (
	lastClaim     = time.Second
	handBackClaim = 250 * time.Millisecond
	afterCancel   = 2 * time.Second
	lastSettle    = 5 * time.Second
)

// drain lets running handlers finish within the grace, or not at all when asked, then ends their contexts and hands back what is
// unfinished. It returns how many handlers are still running.
func (w *Worker) drain(stopHandlers context.CancelCauseFunc, stopSettling func()) (left int) {
	done := w.finished()
	grace := time.NewTimer(w.opts.Grace)
	defer grace.Stop()
	select {
	case <-done:
		return 0
	case <-grace.C:
	case <-w.abort:
	}
	stopHandlers(ErrStopping)
	giveUp := time.AfterFunc(lastSettle, stopSettling)
	defer giveUp.Stop()
	late := time.NewTimer(afterCancel)
	defer late.Stop()
	select {
	case <-done:
		return 0
	case <-late.C:
	}
	for _, r := range w.runs() {
		if !r.over.Swap(true) {
			left++
			w.outcomes <- claim.HandBack(r.job)
		}
	}
	<-done
	return left
}

// finished is closed when every claimed job is settled.
func (w *Worker) finished() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.mu.Lock()
		defer w.mu.Unlock()
		for len(w.running) > 0 {
			w.idle.Wait()
		}
	}()
	return done
}
