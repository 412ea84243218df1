package worker_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

var wakes = flag.Int("worker.wakes", 2000, "jobs of the test that no wake-up is lost")

// long enough for whatever watches over a queue.
const within = time.Minute

// dead is a claimer that takes its part in watching over the queue and does nothing for it.
func dead(t *testing.T, q *queue.Queue) *claim.Claimer {
	t.Helper()
	c, err := claim.New(emqtest.Client(t), q.Name(), claim.Options{})
	require.NoError(t, err)
	_, err = c.Watch().Claim(t.Context(), 0)
	require.NoError(t, err)
	return c
}

// starts sends the time at which each handler of a new worker starts.
func starts(t *testing.T, q *queue.Queue, slots int) <-chan time.Time {
	t.Helper()
	started := make(chan time.Time, 10)
	start(t, q.Name(), func(context.Context, *worker.Job) error {
		started <- time.Now()
		return nil
	}, worker.Options{Concurrency: slots})
	return started
}

func soon(t *testing.T, started <-chan time.Time, what string) {
	t.Helper()
	select {
	case <-started:
	case <-time.After(within):
		require.FailNow(t, "nobody took the job", what)
	}
}

func part(t *testing.T, c valkey.Client, q *queue.Queue, role string) string {
	t.Helper()
	name, err := c.Do(t.Context(), c.B().Hget().Key("emq:{"+q.Name()+"}:state").Field(role).Build()).ToString()
	if err != nil {
		require.ErrorIs(t, err, valkey.Nil)
	}
	return name
}

// A worker sees to what those that died were to do: the holder of the alarm; one that took the token; holder and deputy together.
func TestTheDeadAreMissed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	t.Run("holder, delayed job", func(t *testing.T) {
		t.Parallel()
		q := newQueue(t)
		enqueue(t, q, queue.Job{Delay: 300 * time.Millisecond})
		dead(t, q)
		soon(t, starts(t, q, 1), "of a dead holder")
	})
	t.Run("holder, limit", func(t *testing.T) {
		t.Parallel()
		q := newQueue(t)
		_, err := q.SetLimit(ctx, limiter.Limit{Max: 1, Window: 300 * time.Millisecond}, "")
		require.NoError(t, err)
		enqueue(t, q, queue.Job{})
		enqueue(t, q, queue.Job{})
		c := dead(t, q)
		_, err = c.Watch().Claim(ctx, 1)
		require.NoError(t, err)
		_, err = c.Watch().Claim(ctx, 1)
		require.NoError(t, err)
		soon(t, starts(t, q, 1), "of a dead holder")
	})
	t.Run("token", func(t *testing.T) {
		t.Parallel()
		server, err := valkeyd.Start(valkeyd.Options{})
		require.NoError(t, err)
		t.Cleanup(server.Stop)
		client, err := valkey.NewClient(server.Options())
		require.NoError(t, err)
		t.Cleanup(client.Close)
		q, err := queue.New(client, "q", queue.Options{})
		require.NoError(t, err)
		blocked := func(n int) func() bool {
			return func() bool {
				info, err := client.Do(ctx, client.B().Info().Section("clients").Build()).ToString()
				return err == nil && strings.Contains(info, fmt.Sprintf("blocked_clients:%d\r", n))
			}
		}
		const n = 4
		swallowed := make(chan bool, n)
		for i := range n { // they came to wait before the worker, so the next tokens are theirs
			c, err := claim.New(client, "q", claim.Options{})
			require.NoError(t, err)
			go func() {
				woken, _ := c.Await(ctx, within)
				swallowed <- woken
			}()
			require.Eventually(t, blocked(i+1), within, time.Millisecond)
		}
		started := make(chan time.Time, n)
		w, err := worker.New(client, "q", func(context.Context, *worker.Job) error {
			started <- time.Now()
			return nil
		}, worker.Options{})
		require.NoError(t, err)
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		require.Eventually(t, blocked(n+1), within, time.Millisecond)
		for range n {
			enqueue(t, q, queue.Job{})
			soon(t, started, "whose token was lost")
			require.True(t, <-swallowed)
		}
		w.Stop()
		require.NoError(t, <-done)
	})
	t.Run("holder and deputy", func(t *testing.T) {
		t.Parallel()
		q := newQueue(t)
		enqueue(t, q, queue.Job{Delay: time.Second})
		dead(t, q)
		dead(t, q)
		soon(t, starts(t, q, 1), "of a dead holder, whose deputy is dead")
	})
}

// A worker that stops leaves its part to another one.
func TestStoppedWorkersLeaveTheWatch(t *testing.T) {
	t.Parallel()
	q, client := newQueue(t), emqtest.Client(t)
	nothing := func(context.Context, *worker.Job) error { return nil }
	enqueue(t, q, queue.Job{Delay: time.Hour})
	_, stop := start(t, q.Name(), nothing, worker.Options{})
	require.Eventually(t, func() bool { return part(t, client, q, "holder") != "" }, within, time.Millisecond)
	first := part(t, client, q, "holder")
	start(t, q.Name(), nothing, worker.Options{})
	require.Eventually(t, func() bool { return part(t, client, q, "deputy") != first }, within, time.Millisecond)
	second := part(t, client, q, "deputy")
	require.NoError(t, stop())
	require.Eventually(t, func() bool { return part(t, client, q, "holder") == second }, within, time.Millisecond)
}

// Of jobs that come at any moment of a worker's way into its sleep none is left lying. The parts that would help are held by
// nobody who does.
func TestNoWakeUpIsLost(t *testing.T) {
	t.Parallel()
	q, client := newQueue(t), emqtest.Client(t)
	seed := rand.Uint64()
	t.Logf("seed %d, %d jobs", seed, *wakes)
	rnd := rand.New(rand.NewPCG(seed, 0))
	idle := func() {
		now, err := client.Do(t.Context(), client.B().Time().Build()).AsStrSlice()
		require.NoError(t, err)
		seconds, err := strconv.ParseInt(now[0], 10, 64)
		require.NoError(t, err)
		till, net := now[0]+"999", fmt.Sprint(1000*seconds+590_000) // the others' turns are in ten minutes
		require.NoError(t, client.Do(t.Context(), client.B().Hset().Key("emq:{"+q.Name()+"}:state").FieldValue().
			FieldValue("deputy", "nobody").FieldValue("deputy_till", till).FieldValue("net", net).Build()).Error())
	}
	idle()
	started := make(chan string, 10)
	for range 3 {
		start(t, q.Name(), func(_ context.Context, job *worker.Job) error {
			started <- job.ID
			return nil
		}, worker.Options{Concurrency: 1 + rnd.IntN(2)})
	}
	for i := range *wakes {
		if i%50 == 0 {
			idle()
		}
		n := 1 + rnd.IntN(3)
		waiting := map[string]bool{}
		for range n {
			job := queue.Job{ID: fmt.Sprintf("j%d-%d", i, len(waiting))}
			if rnd.IntN(4) == 0 {
				job.Delay = time.Duration(rnd.IntN(5)) * time.Millisecond
			}
			waiting[enqueue(t, q, job)] = true
		}
		for len(waiting) > 0 {
			select {
			case id := <-started:
				require.True(t, waiting[id], id)
				delete(waiting, id)
			case <-time.After(within):
				require.FailNow(t, "left lying", "%v in round %d", waiting, i)
			}
		}
		for range rnd.IntN(2000) { // somewhere on the workers' way
			_ = rnd.Uint64()
		}
	}
}
