package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// fleet is worker instances, each with a client of its own, whose claims and starts are counted.
type fleet struct {
	server  *server
	workers []*running
	clients []valkey.Client
	claims  atomic.Int64

	mu     sync.Mutex
	starts []time.Time     // of handlers, in order
	full   chan<- struct{} // closed when there are want of them
	want   int
}

// startFleet starts n workers of so many slots.
func startFleet(s *server, n, slots int) *fleet {
	f := &fleet{server: s, workers: make([]*running, n), clients: make([]valkey.Client, n)}
	parallel(min(n, 8), func(part int) {
		for i := part; i < n; i += min(n, 8) {
			f.clients[i] = s.dialSmall()
			tapped := tap{f.clients[i], func([]string) { f.claims.Add(1) }}
			f.workers[i] = startWorker(tapped, f.handle, worker.Options{Concurrency: slots})
		}
	})
	return f
}

func (f *fleet) handle(context.Context, *worker.Job) error {
	at := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts = append(f.starts, at)
	if len(f.starts) == f.want {
		close(f.full)
	}
	return nil
}

// after forgets what started and returns a channel that is closed when n more jobs have.
func (f *fleet) after(n int) <-chan struct{} {
	full := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts, f.full, f.want = nil, full, n
	return full
}

// started are the times of the starts since after, in order.
func (f *fleet) started() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(slices.Values(f.starts), time.Time.Compare)
}

// quiet returns when no worker has claimed anything for d.
func (f *fleet) quiet(ctx context.Context, d time.Duration) {
	for before := int64(-1); before != f.claims.Load(); {
		before = f.claims.Load()
		pause(ctx, d)
	}
}

func (f *fleet) stop() {
	for _, w := range f.workers {
		w.Stop()
	}
	for i, w := range f.workers {
		check(<-w.done)
		f.clients[i].Close()
	}
}

// perGrant is the claims and the scripts of a span for each job granted in it.
func (f *fleet) perGrant(ctx context.Context, span func()) (claims, scripts float64) {
	f.after(0)
	claimed := f.claims.Load()
	called, _ := f.server.scripts(ctx)
	span()
	granted := float64(len(f.started()))
	claims = float64(f.claims.Load() - claimed)
	after, _ := f.server.scripts(ctx)
	if granted == 0 || claims == 0 {
		fail("%v jobs were granted by %v claims", granted, claims)
	}
	return claims / granted, float64(after-called) / granted
}

// aligned runs from the middle of one window of the queue's own limit to that of another, so that it has whole windows' grants.
func aligned(ctx context.Context, f *fleet, limit limiter.Limit, windows int) func() {
	return func() {
		wait(ctx, f.after(int(limit.Max)*windows), "the grants of the windows")
		pause(ctx, limit.Window/2)
	}
}

// idleFleet measures what 200 one-slot workers spend on a limit of 5 a second.
func idleFleet(ctx context.Context, e *env, system string) samples {
	workers, seconds := e.size(200, 20), e.size(20, 2)
	s := startServer()
	defer s.stop()
	if system == bullmq {
		return e.node.call(ctx, s, bullmqCall{Do: "fleet", Jobs: 200, Workers: workers, Seconds: e.size(8, 2)})
	}
	claims, scripts := limitedFleet(ctx, s, workers, limiter.PerSecond(5), seconds)
	return one(map[string]float64{"claims": claims, "scripts": scripts})
}

// limitedFleet is what one-slot workers spend on each job that a limit of the queue grants, over some of its windows.
func limitedFleet(ctx context.Context, s *server, workers int, limit limiter.Limit, windows int) (claims, scripts float64) {
	q := openQueue(s)
	defer q.close()
	must(q.SetLimit(ctx, limit, ""))
	q.fill(ctx, int(limit.Max)*(windows+10), nil)
	f := startFleet(s, workers, 1)
	defer f.stop()
	aligned(ctx, f, limit, 2)() // they have all claimed once and sleep
	return f.perGrant(ctx, aligned(ctx, f, limit, windows))
}

// keyedFleet measures what 200 one-slot workers spend on 100 keys of one job a second each, out of phase.
func keyedFleet(ctx context.Context, e *env, _ string) samples {
	workers, keys, seconds := e.size(200, 20), e.size(100, 10), e.size(12, 2)
	s := startServer()
	defer s.stop()
	q := openQueue(s)
	defer q.close()
	must(q.SetNamedLimit(ctx, queue.NamedLimit{Name: "chat", By: "chat", Limit: limiter.PerSecond(1)}, ""))
	f := startFleet(s, workers, 1)
	defer f.stop()
	keyed := func(i int) map[string]string { return map[string]string{"chat": strconv.Itoa(i % keys)} }
	for i := range keys {
		must(q.Enqueue(ctx, queue.Job{Payload: payload, Keys: keyed(i)}))
		pause(ctx, time.Second/time.Duration(keys))
	}
	q.fill(ctx, keys*(seconds+6), func(i int, job *queue.Job) { job.Keys = keyed(i) })
	pause(ctx, 2500*time.Millisecond) // all of them are in their lines, and all workers asleep
	claims, scripts := f.perGrant(ctx, func() { pause(ctx, time.Duration(seconds)*time.Second) })
	return one(map[string]float64{"claims": claims, "scripts": scripts})
}

// bursts measures the time from the first enqueue of 100 to the last start on 20 one-slot workers: the worst of some bursts.
func bursts(ctx context.Context, e *env, _ string) samples {
	const jobs = 100
	s := startServer()
	defer s.stop()
	q := openQueue(s)
	defer q.close()
	f := startFleet(s, 20, 1)
	defer f.stop()
	var took []float64
	for range e.size(20, 3) {
		f.quiet(ctx, 100*time.Millisecond+rand.N(100*time.Millisecond))
		all := f.after(jobs)
		began := time.Now()
		for range jobs {
			must(q.Enqueue(ctx, queue.Job{Payload: payload}))
		}
		wait(ctx, all, "the burst to start")
		took = append(took, ms(f.started()[jobs-1].Sub(began)))
	}
	return one(map[string]float64{"burst_100_max_ms": most(took)})
}

// limitChanges measures the time from a raise of the limit to the first and to the 100th start, with 200 jobs waiting for it and 200
// one-slot workers asleep.
func limitChanges(ctx context.Context, e *env, _ string) samples {
	const jobs = 200
	s := startServer()
	defer s.stop()
	q := openQueue(s)
	defer q.close()
	low, high := limiter.PerHour(1), limiter.PerHour(1e6)
	must(q.SetLimit(ctx, low, ""))
	f := startFleet(s, 200, 1)
	defer f.stop()
	spent := f.after(1)
	must(q.Enqueue(ctx, queue.Job{Payload: payload}))
	wait(ctx, spent, "the budget to be spent")
	got := samples{}
	for range e.size(10, 2) {
		q.fill(ctx, jobs, nil)
		f.quiet(ctx, 250*time.Millisecond)
		all := f.after(jobs)
		began := time.Now()
		must(q.SetLimit(ctx, high, ""))
		wait(ctx, all, "all jobs to start after the limit was raised")
		starts := f.started()
		got["first"] = append(got["first"], ms(starts[0].Sub(began)))
		got["100th"] = append(got["100th"], ms(starts[99].Sub(began)))
		q.settled(ctx)
		must(q.SetLimit(ctx, low, ""))
	}
	return got
}
