package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// name is what every queue here is called.
const name = "bench"

// payload is what every job of every system carries.
var payload = []byte("0123456789012345678901234")

// emqQueue is the producer's side on a server, with a client of its own.
type emqQueue struct {
	*queue.Queue
	*server
	client valkey.Client
}

func openQueue(s *server) *emqQueue {
	client := s.dial()
	return &emqQueue{must(queue.New(client, name, queue.Options{})), s, client}
}

// close closes the client.
func (q *emqQueue) close() { q.client.Close() }

// fill enqueues n jobs in bulk, each as set makes it.
func (q *emqQueue) fill(ctx context.Context, n int, set func(i int, job *queue.Job)) {
	const most = 10_000 // of them in this process's memory
	for from := 0; from < n; from += most {
		jobs := make([]queue.Job, min(most, n-from))
		for i := range jobs {
			jobs[i].Payload = payload
			if set != nil {
				set(from+i, &jobs[i])
			}
		}
		must(q.EnqueueMany(ctx, jobs))
	}
}

// checkEmpty ends the run unless nothing of any job is left.
func (q *emqQueue) checkEmpty(ctx context.Context) {
	c := must(q.Counts(ctx))
	if left := c.Wait + c.Active + c.Delayed + c.Dead + c.Completed; left > 0 {
		fail("the queue is not empty afterwards: %+v", c)
	}
	q.empty(ctx, "emq:{"+name+"}:job:*", "emq:{"+name+"}:line:*", "emq:{"+name+"}:result:*")
}

// settled returns when no job is under a lease.
func (q *emqQueue) settled(ctx context.Context) {
	for must(q.admin.Do(ctx, q.admin.B().Zcard().Key("emq:{"+name+"}:active").Build()).AsInt64()) > 0 {
		check(ctx.Err())
	}
}

// running is a worker that runs until it is stopped.
type running struct {
	*worker.Worker
	done chan error
}

// startWorker runs a worker on client.
func startWorker(client valkey.Client, handler worker.Handler, o worker.Options) *running {
	r := &running{must(worker.New(client, name, handler, o)), make(chan error, 1)}
	go func() { r.done <- r.Run(context.Background()) }()
	return r
}

// stop ends it and returns when it has settled what it claimed.
func (r *running) stop() {
	r.Stop()
	check(<-r.done)
}

// drain runs n no-op jobs that wait in the queue on one worker and says how many it did a second, from the first claim to the last
// settled reply.
func (q *emqQueue) drain(ctx context.Context, n int, o worker.Options) float64 {
	client := q.dial()
	defer client.Close()
	var done atomic.Int64
	all := make(chan struct{})
	began := time.Now()
	w := startWorker(client, func(context.Context, *worker.Job) error {
		if done.Add(1) == int64(n) {
			close(all)
		}
		return nil
	}, o)
	defer w.stop()
	wait(ctx, all, "all jobs to be handled")
	q.settled(ctx)
	return float64(n) / time.Since(began).Seconds()
}

// claimSHA names the claim script in the calls of it.
var claimSHA = func() string {
	sum := sha1.Sum([]byte(lua.Source("claim")))
	return hex.EncodeToString(sum[:])
}()

// tap is a client that tells of each claim that goes through it.
type tap struct {
	valkey.Client
	claim func(call []string)
}

// Do runs a command of the client.
func (t tap) Do(ctx context.Context, command valkey.Completed) valkey.ValkeyResult {
	if call := command.Commands(); len(call) > 2 && strings.HasPrefix(call[0], "EVALSHA") && call[1] == claimSHA {
		t.claim(call)
	}
	return t.Client.Do(ctx, command)
}
