package main

import (
	"context"
	"time"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

const (
	pickupSlots  = 20                    // concurrency of the idle worker
	delayedEvery = 5 * time.Millisecond  // between enqueues of delayed jobs
	resetWindow  = 25 * time.Millisecond // of the limit whose resets are watched
)

// pickup measures the time from an enqueue to the start of the handler in an idle worker.
func pickup(ctx context.Context, e *env, system string) samples {
	n := e.size(300, 30)
	s := startServer()
	defer s.stop()
	switch system {
	case asynq:
		a := openAsynq(s)
		defer a.close()
		return samples{"pickup": a.pickup(ctx, e, e.size(10, 1))}
	case bullmq:
		return e.node.call(ctx, s, bullmqCall{Do: "pickup", Jobs: n, Concurrency: pickupSlots})
	case floor:
		return samples{"pickup": floorPickup(ctx, s, n)}
	}
	q := openQueue(s)
	defer q.close()
	client := s.dial()
	defer client.Close()
	started := make(chan time.Time, 1)
	w := startWorker(client, func(context.Context, *worker.Job) error {
		started <- time.Now()
		return nil
	}, worker.Options{Concurrency: pickupSlots})
	defer w.stop()
	pause(ctx, 200*time.Millisecond)
	var took []float64
	for range n {
		idle(ctx)
		began := time.Now()
		must(q.Enqueue(ctx, queue.Job{Payload: payload}))
		select {
		case at := <-started:
			took = append(took, ms(at.Sub(began)))
		case <-ctx.Done():
			check(ctx.Err())
		}
	}
	return samples{"pickup": took}
}

// delayed measures how late after their due times the handlers of delayed jobs start.
func delayed(ctx context.Context, e *env, system string) samples {
	n := e.size(250, 40)
	if system == floor {
		return samples{"delayed": floorDelayed(ctx, n)}
	}
	s := startServer()
	defer s.stop()
	if system == bullmq {
		return e.node.call(ctx, s, bullmqCall{Do: "delayed", Jobs: n, Concurrency: pickupSlots})
	}
	q := openQueue(s)
	defer q.close()
	client := s.dial()
	defer client.Close()
	late := make(chan float64, n)
	w := startWorker(client, func(_ context.Context, job *worker.Job) error {
		delay := must(time.ParseDuration(string(job.Payload)))
		late <- ms(sinceWall(job.EnqueuedAt.Add(delay)))
		return nil
	}, worker.Options{Concurrency: pickupSlots})
	defer w.stop()
	pause(ctx, 200*time.Millisecond)
	for range n {
		d := randomDelay()
		must(q.Enqueue(ctx, queue.Job{Payload: []byte(d.String()), Delay: d}))
		pause(ctx, delayedEvery)
	}
	return samples{"delayed": collect(ctx, late, n)}
}

// reset measures how late after the end of a fixed window of the queue's own limit the next job starts.
func reset(ctx context.Context, e *env, system string) samples {
	n := e.size(210, 30)
	if system == floor {
		return samples{"reset": floorReset(ctx, n)}
	}
	s := startServer()
	defer s.stop()
	q := openQueue(s)
	defer q.close()
	client := s.dial()
	defer client.Close()
	must(q.SetLimit(ctx, limiter.Limit{Max: 1, Window: resetWindow}, ""))
	q.fill(ctx, n+1, nil)
	type start struct{ claimed, at time.Time }
	starts := make(chan start, n+1)
	w := startWorker(client, func(_ context.Context, job *worker.Job) error {
		starts <- start{job.ClaimedAt, time.Now()}
		return nil
	}, worker.Options{Concurrency: pickupSlots})
	defer w.stop()
	var late []float64
	var window time.Time // when the running one ends
	for range n + 1 {
		select {
		case s := <-starts:
			if !window.IsZero() {
				if s.claimed.Before(window) {
					fail("a job was granted %v before the window's end", window.Sub(s.claimed))
				}
				late = append(late, ms(s.at.Round(0).Sub(window)))
			}
			window = s.claimed.Add(resetWindow)
		case <-ctx.Done():
			fail("%d of %d jobs came: %w", len(late), n, ctx.Err())
		}
	}
	return samples{"reset": late}
}
