package main

import (
	"context"
	"strconv"
	"time"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// waitMemory measures the server's memory for each of 100,000 waiting jobs.
func waitMemory(ctx context.Context, e *env, system string) samples {
	n := e.size(100_000, 2000)
	s := startServer()
	defer s.stop()
	before := s.memory(ctx)
	switch system {
	case emq:
		q := openQueue(s)
		defer q.close()
		q.fill(ctx, n, nil)
	case asynq:
		a := openAsynq(s)
		defer a.close()
		a.fill(n)
	case bullmq:
		e.node.call(ctx, s, bullmqCall{Do: "bulk", Jobs: n})
	}
	return one(map[string]float64{"bytes_per_waiting_job": (s.memory(ctx) - before) / float64(n)})
}

// lineMemory measures the memory of jobs that a limit by key refused, 100 in the line of each of 1,000 values.
func lineMemory(ctx context.Context, e *env, _ string) samples {
	n, values := e.size(100_000, 2000), e.size(1000, 20)
	s := startServer()
	defer s.stop()
	q := openQueue(s)
	defer q.close()
	client := s.dial()
	defer client.Close()
	must(q.SetNamedLimit(ctx, queue.NamedLimit{Name: "tenant", By: "tenant", Limit: limiter.Limit{Max: 1, Window: 24 * time.Hour}}, ""))
	keyed := func(i int, job *queue.Job) { job.Keys = map[string]string{"tenant": strconv.Itoa(i % values)} }
	q.fill(ctx, values, keyed)
	q.drain(ctx, values, worker.Options{}) // every value has spent its budget
	before := s.memory(ctx)
	q.fill(ctx, n, keyed)
	c := must(claim.New(client, name, claim.Options{}))
	for must(q.Counts(ctx)).Wait > 0 {
		if b := must(c.Claim(ctx, claim.MaxBatch)); len(b.Jobs) > 0 {
			fail("%d jobs were granted over budget", len(b.Jobs))
		}
	}
	return one(map[string]float64{"bytes_per_job_in_line": (s.memory(ctx) - before) / float64(n)})
}
