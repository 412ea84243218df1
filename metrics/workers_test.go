package metrics_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// A worker is there from its start until it has stopped, with what it runs.
func TestWorkers(t *testing.T) {
	t.Parallel()
	client, name := emqtest.Client(t), emqtest.Queue(t)
	fleet := func() metrics.Fleet {
		f, err := metrics.Workers(t.Context(), client, name, 10)
		require.NoError(t, err)
		return f
	}
	assert.Empty(t, fleet().Workers)
	q, err := queue.New(client, name, queue.Options{})
	require.NoError(t, err)
	_, err = q.Enqueue(t.Context(), queue.Job{})
	require.NoError(t, err)
	release := make(chan struct{})
	w, err := worker.New(client, name, func(context.Context, *worker.Job) error { <-release; return nil }, worker.Options{Concurrency: 7})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(context.WithoutCancel(t.Context()))) })
	require.Eventually(t, func() bool { f := fleet(); return len(f.Workers) == 1 && f.Workers[0].Busy == 1 }, time.Minute, 10*time.Millisecond)
	f := fleet()
	assert.Equal(t, []any{int64(1), 1, 7, false}, []any{f.All, f.Alive(), f.Slots(), f.Mixed()})
	one := f.Workers[0]
	assert.True(t, one.Alive)
	assert.NotEmpty(t, one.Host)
	assert.NotZero(t, one.Pid)
	assert.NotEmpty(t, one.Version)
	assert.Len(t, one.Scripts, 12)
	assert.WithinDuration(t, time.Now(), one.Started, time.Minute)
	w.Stop()
	close(release)
	running.Wait()
	assert.Empty(t, fleet().Workers)
}

func TestWorkersThatAreGone(t *testing.T) {
	t.Parallel()
	client, clock := onVirtualClock(t)
	name := emqtest.Queue(t)
	for concurrency := range 3 {
		c, err := claim.New(client, name, claim.Options{})
		require.NoError(t, err)
		require.NoError(t, c.Beat(t.Context(), concurrency+1, 0, concurrency == 2))
		clock.Advance(10 * time.Second)
	}
	fleet := func(most int) metrics.Fleet {
		f, err := metrics.Workers(t.Context(), client, name, most)
		require.NoError(t, err)
		return f
	}
	f := fleet(10)
	require.Len(t, f.Workers, 3)
	assert.Equal(t, []int{3, 2, 1}, []int{f.Workers[0].Concurrency, f.Workers[1].Concurrency, f.Workers[2].Concurrency}, "the last seen first")
	assert.Equal(t, []bool{true, false, false}, []bool{f.Workers[0].Alive, f.Workers[1].Alive, f.Workers[2].Alive})
	assert.Zero(t, f.Slots(), "it is stopping")
	f = fleet(1)
	assert.Equal(t, []any{int64(3), 1}, []any{f.All, len(f.Workers)})
	clock.Advance(35 * time.Second)
	assert.Len(t, fleet(10).Workers, 2)
	clock.Advance(time.Minute)
	assert.Empty(t, fleet(10).Workers)

	_, err := metrics.Workers(t.Context(), client, name, metrics.MostWorkers+1)
	require.ErrorContains(t, err, "most is 1001")
	_, err = metrics.Workers(t.Context(), client, "a b", 1)
	require.ErrorIs(t, err, queue.ErrBadName)
}
