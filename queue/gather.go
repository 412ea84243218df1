package queue

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/echomq/emq/lua"
)

// gatherer lets single enqueues that come while a call is under way share the next one. One that comes alone is sent at once, and
// a second call goes beside the first as soon as there are enough for it, so that server and producer work at the same time.
type gatherer struct {
	send   func(ctx context.Context, jobs []lua.NewJob) ([]lua.Enqueued, error)
	enough int // jobs that are worth a call beside the one under way

	mu      sync.Mutex
	waiting []*single // owned by mu, as are those below
	senders int       // goroutines that send, and will take what waits
}

// single is one job on its way.
type single struct {
	ctx    context.Context
	job    lua.NewJob
	call   *call         // the call that carries it; nil while it waits. Owned by the gatherer's mu
	done   chan struct{} // closed when the fields below are set
	answer lua.Enqueued
	err    error
}

// call is ended when all who wait for it have gone.
type call struct {
	wanted atomic.Int64
	cancel context.CancelFunc
}

// enqueue waits for the job's answer, or for ctx to end: then the job may or may not be stored.
func (g *gatherer) enqueue(ctx context.Context, job lua.NewJob) (lua.Enqueued, error) {
	if err := ctx.Err(); err != nil {
		return lua.Enqueued{}, fmt.Errorf("emq: enqueue: %w", err)
	}
	s := &single{ctx: ctx, job: job, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, s)
	if g.senders == 0 || (g.senders == 1 && len(g.waiting) >= g.enough) {
		g.senders++
		go g.run()
	}
	g.mu.Unlock()
	select {
	case <-s.done:
		return s.answer, s.err
	case <-ctx.Done():
		g.leave(s)
		return lua.Enqueued{}, fmt.Errorf("emq: enqueue: %w", ctx.Err())
	}
}

// leave takes back a job that is not sent yet, and ends a call that nobody waits for any more.
func (g *gatherer) leave(s *single) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.call != nil {
		if s.call.wanted.Add(-1) == 0 {
			s.call.cancel()
		}
		return
	}
	for i, other := range g.waiting {
		if other == s {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return
		}
	}
}

// run sends what waits, call after call, until nothing does.
func (g *gatherer) run() {
	for {
		batch, ctx, end := g.take()
		if len(batch) == 0 {
			return
		}
		jobs := make([]lua.NewJob, len(batch))
		for i, s := range batch {
			jobs[i] = s.job
		}
		answers, err := g.send(ctx, jobs)
		end()
		for i, s := range batch {
			if s.err = err; err == nil {
				s.answer = answers[i]
			}
			close(s.done)
		}
		runtime.Gosched() // those that were answered may have more to send
	}
}

// take takes the jobs of the next call, within the bounds of one.
func (g *gatherer) take() ([]*single, context.Context, context.CancelFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, size := 0, 0
	for n < len(g.waiting) && n < batchJobs && (n == 0 || size+len(g.waiting[n].job.Body) <= batchBytes) {
		size += len(g.waiting[n].job.Body)
		n++
	}
	if n == 0 {
		g.senders--
		g.waiting = nil
		return nil, nil, nil
	}
	batch := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].ctx))
	c := &call{cancel: cancel}
	c.wanted.Store(int64(n))
	for _, s := range batch {
		s.call = c
	}
	return batch, ctx, cancel
}
