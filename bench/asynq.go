package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	asynqlib "github.com/hibiken/asynq"
)

// silent keeps asynq's log to itself.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

// asynqOn is asynq at a server.
type asynqOn struct {
	*server
	client *asynqlib.Client
}

func openAsynq(s *server) *asynqOn {
	return &asynqOn{s, asynqlib.NewClient(asynqlib.RedisClientOpt{Addr: s.address()})}
}

func (a *asynqOn) close() { check(a.client.Close()) }

// fill enqueues n jobs, one a call, from 16 goroutines: asynq has no bulk call. It says how many it did a second.
func (a *asynqOn) fill(n int) float64 {
	began := time.Now()
	parallel(enqueuers, func(i int) {
		for range share(n, enqueuers, i) {
			must(a.client.Enqueue(asynqlib.NewTask(name, payload)))
		}
	})
	return float64(n) / time.Since(began).Seconds()
}

// start runs a server of asynq; stop ends it.
func (a *asynqOn) start(concurrency int, handle func()) (stop func()) {
	server := asynqlib.NewServer(asynqlib.RedisClientOpt{Addr: a.address()}, asynqlib.Config{Concurrency: concurrency, Logger: silent{}})
	check(server.Start(asynqlib.HandlerFunc(func(context.Context, *asynqlib.Task) error {
		handle()
		return nil
	})))
	return server.Shutdown
}

// drain does what emqQueue's does.
func (a *asynqOn) drain(ctx context.Context, n, concurrency int) float64 {
	var done atomic.Int64
	all := make(chan struct{})
	began := time.Now()
	defer a.start(concurrency, func() {
		if done.Add(1) == int64(n) {
			close(all)
		}
	})()
	wait(ctx, all, "all jobs to be handled")
	for must(a.admin.Do(ctx, a.admin.B().Llen().Key("asynq:{default}:active").Build()).AsInt64()) > 0 {
		check(ctx.Err())
	}
	return float64(n) / time.Since(began).Seconds()
}

// checkEmpty ends the run unless nothing of any job is left.
func (a *asynqOn) checkEmpty(ctx context.Context) {
	for _, state := range []string{"pending", "active", "scheduled", "retry", "archived", "completed", "lease"} {
		a.empty(ctx, "asynq:{default}:"+state)
	}
	a.empty(ctx, "asynq:{default}:t:*")
}

// pickup is how long n jobs, one at a time, take from their enqueue to their handler.
func (a *asynqOn) pickup(ctx context.Context, e *env, n int) (took []float64) {
	fmt.Fprintf(e.log, "asynq looks for jobs once a second when idle, so %d samples a round have to do\n", n)
	started := make(chan time.Time)
	defer a.start(pickupSlots, func() { started <- time.Now() })()
	for range n {
		pause(ctx, time.Second/2+rand.N(time.Second)) // at any point of its second
		began := time.Now()
		must(a.client.Enqueue(asynqlib.NewTask(name, payload)))
		select {
		case at := <-started:
			took = append(took, ms(at.Sub(began)))
		case <-ctx.Done():
			check(ctx.Err())
		}
	}
	return took
}
