package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
)

// A process that was stopped between its claim and the start of the handler finds that it is too late to start.
func TestF86StartByHandsBackUnrun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, name := emqtest.Client(t), emqtest.Queue(t)
	q, err := queue.New(client, name, queue.Options{})
	require.NoError(t, err)
	w, err := New(client, name, func(context.Context, *Job) error { t.Error("the handler ran"); return nil }, Options{Concurrency: 1})
	require.NoError(t, err)
	id, err := q.Enqueue(ctx, queue.Job{StartBy: queue.MinStartBy})
	require.NoError(t, err)
	<-w.slots
	b, err := w.claimer.Claim(ctx, 1)
	require.NoError(t, err)
	require.Len(t, b.Jobs, 1)
	require.Eventually(t, func() bool { return b.Jobs[0].SinceClaim() > queue.MinStartBy }, time.Minute, time.Millisecond)
	w.start(ctx, b.Jobs[0])
	w.settle(ctx, []claim.Outcome{<-w.outcomes})
	s, err := q.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, queue.Wait, s.State)
	require.Zero(t, s.Attempts)
	require.Len(t, w.slots, 1)
}

// A job that is claimed again while its earlier handler still runs here is not run beside it.
func TestSecondLeaseOfARunningJobWaits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, name := emqtest.Client(t), emqtest.Queue(t)
	q, err := queue.New(client, name, queue.Options{})
	require.NoError(t, err)
	release := make(chan struct{})
	w, err := New(client, name, func(context.Context, *Job) error { <-release; return nil }, Options{Concurrency: 2})
	require.NoError(t, err)
	defer close(w.next)
	_, err = q.Enqueue(ctx, queue.Job{})
	require.NoError(t, err)
	b, err := w.claimer.Claim(ctx, 1)
	require.NoError(t, err)
	<-w.slots
	w.start(ctx, b.Jobs[0])
	<-w.slots
	w.start(ctx, &claim.Job{Job: b.Jobs[0].Job})
	second := <-w.outcomes
	require.Equal(t, "defer", second.Kind())
	close(release)
	first := <-w.outcomes
	require.Equal(t, "complete", first.Kind())
}

func TestBackoffDoublesAndStops(t *testing.T) {
	t.Parallel()
	b := Exponential(time.Second, time.Minute)
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 63: time.Minute, 5000: time.Minute} {
		for range 20 {
			got := b(n)
			require.LessOrEqual(t, got, want)
			require.GreaterOrEqual(t, got, want*4/5)
		}
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	wait := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for name, c := range map[string]struct {
		err, cause error
		attempt    int
		kind       string
		wait       time.Duration
	}{
		"nil completes":                   {nil, nil, 1, "complete", 0},
		"nil completes although stopping": {nil, ErrStopping, 1, "complete", 0},
		"an error retries":                {failed, nil, 2, "retry", 2 * time.Second},
		"the last attempt is dead":        {failed, nil, 3, "dead", 0},
		"a time-out is an error":          {context.DeadlineExceeded, context.DeadlineExceeded, 1, "retry", time.Second},
		"a lost lease hands back":         {failed, claim.ErrLeaseLost, 3, "back", 0},
		"stopping hands back":             {failed, ErrStopping, 3, "back", 0},
		"defer":                           {Defer(time.Minute), nil, 3, "defer", time.Minute},
		"a wrapped defer":                 {errors.Join(failed, Defer(time.Minute)), nil, 3, "defer", time.Minute},
		"retry in":                        {RetryIn(time.Hour, failed), nil, 2, "retry", time.Hour},
		"retry in, the last attempt":      {RetryIn(time.Hour, failed), nil, 3, "dead", 0},
		"retry in, stopping":              {RetryIn(time.Hour, failed), ErrStopping, 3, "back", 0},
		"retry in before now":             {RetryIn(-1, nil), nil, 1, "retry", 0},
		"dead-letter":                     {DeadLetter(failed), nil, 1, "dead", 0},
	} {
		job := &Job{Job: queue.Job{MaxAttempts: 3}, Attempt: c.attempt}
		o, _ := decide(job, c.err, c.cause, wait)
		require.Equal(t, c.kind, o.Kind(), name)
		require.Equal(t, c.wait, o.Wait(), name)
	}
}
