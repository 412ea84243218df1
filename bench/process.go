package main

import (
	"context"
	"strconv"
	"time"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// enqueuers is how many goroutines enqueue at once.
const enqueuers = 16

// share is part i of n things among so many.
func share(n, among, i int) int { return (n*(i+1))/among - (n*i)/among }

// never is a limit that nothing here reaches.
var never = limiter.Limit{Max: 1e9, Window: time.Hour}

// processing measures jobs a second at a concurrency, and the server's processor time for each from its enqueue to its end.
func processing(concurrency int) func(context.Context, *env, string) samples {
	return func(ctx context.Context, e *env, system string) samples {
		n := e.size(50_000, 400)
		s := startServer()
		defer s.stop()
		idle := s.cpu(ctx)
		var rate float64
		var cpu time.Duration
		switch system {
		case emq:
			q := openQueue(s)
			defer q.close()
			q.fill(ctx, n, nil)
			rate = q.drain(ctx, n, worker.Options{Concurrency: concurrency})
			cpu = s.cpu(ctx) - idle
			q.checkEmpty(ctx)
		case asynq:
			a := openAsynq(s)
			defer a.close()
			a.fill(n)
			rate = a.drain(ctx, n, concurrency)
			cpu = s.cpu(ctx) - idle
			a.checkEmpty(ctx)
		case bullmq:
			rate = e.node.call(ctx, s, bullmqCall{Do: "drain", Jobs: n, Concurrency: concurrency})["drain"][0]
			cpu = s.cpu(ctx) - idle
			e.node.checkEmpty(ctx, s)
		case floor:
			client := s.dial()
			defer client.Close()
			floorFill(ctx, client, n)
			rate = floorDrain(ctx, client, n, concurrency)
			s.empty(ctx, floorList, floorJob("*"))
			return one(map[string]float64{"rate": rate})
		}
		return one(map[string]float64{"rate": rate, "cpu": us(cpu) / float64(n)})
	}
}

// processingLimits measures jobs a second at a concurrency of 256 with so many limits that are never reached: the queue's own, one
// by key over 1,000 values, and one by cost.
func processingLimits(limits int) func(context.Context, *env, string) samples {
	return func(ctx context.Context, e *env, system string) samples {
		n := e.size(50_000, 400)
		s := startServer()
		defer s.stop()
		if system == bullmq {
			got := e.node.call(ctx, s, bullmqCall{Do: "drain", Jobs: n, Concurrency: 256, Limited: true})
			e.node.checkEmpty(ctx, s)
			return samples{"rate": got["drain"]}
		}
		q := openQueue(s)
		defer q.close()
		must(q.SetLimit(ctx, never, ""))
		if limits > 1 {
			must(q.SetNamedLimit(ctx, queue.NamedLimit{Name: "tenant", By: "tenant", Limit: never}, ""))
		}
		if limits > 2 {
			must(q.SetNamedLimit(ctx, queue.NamedLimit{Name: "tokens", Unit: "tokens", Limit: never}, ""))
		}
		q.fill(ctx, n, func(i int, job *queue.Job) {
			if limits > 1 {
				job.Keys = map[string]string{"tenant": strconv.Itoa(i % 1000)}
			}
			if limits > 2 {
				job.Cost = map[string]int64{"tokens": 1}
			}
		})
		rate := q.drain(ctx, n, worker.Options{Concurrency: 256})
		q.checkEmpty(ctx)
		return one(map[string]float64{"rate": rate})
	}
}

// enqueueSingle measures enqueues a second, one job a call, from 16 goroutines.
func enqueueSingle(ctx context.Context, e *env, system string) samples {
	n := e.size(30_000, 500)
	s := startServer()
	defer s.stop()
	switch system {
	case asynq:
		a := openAsynq(s)
		defer a.close()
		return one(map[string]float64{"single": a.fill(n)})
	case bullmq:
		return e.node.call(ctx, s, bullmqCall{Do: "single", Jobs: n})
	}
	q := openQueue(s)
	defer q.close()
	began := time.Now()
	parallel(enqueuers, func(i int) {
		for range share(n, enqueuers, i) {
			must(q.Enqueue(ctx, queue.Job{Payload: payload}))
		}
	})
	return one(map[string]float64{"single": float64(n) / time.Since(began).Seconds()})
}

// enqueueBulk measures enqueues a second, many jobs a call.
func enqueueBulk(ctx context.Context, e *env, system string) samples {
	n := e.size(50_000, 400)
	s := startServer()
	defer s.stop()
	if system == bullmq {
		return e.node.call(ctx, s, bullmqCall{Do: "bulk", Jobs: n})
	}
	q := openQueue(s)
	defer q.close()
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i].Payload = payload
	}
	began := time.Now()
	must(q.EnqueueMany(ctx, jobs))
	return one(map[string]float64{"bulk": float64(n) / time.Since(began).Seconds()})
}
