package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// A handler that sleeps past its time-out and does not heed its context keeps its lease for StuckAfter, then loses it; its late outcome is
// refused, and this process does not run the job beside it.
func TestF12HandlerThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	release, stuck := make(chan struct{}), make(chan time.Time, 10)
	options := worker.Options{Concurrency: 2, StuckAfter: 300 * time.Millisecond, Claim: claim.Options{Lease: 300 * time.Millisecond}}
	_, stop := start(t, q.Name(), func(context.Context, *worker.Job) error {
		stuck <- time.Now()
		<-release
		return errors.New("late")
	}, options)
	id := enqueue(t, q, queue.Job{Timeout: 100 * time.Millisecond, MaxAttempts: 1, Retain: time.Minute})
	begin := <-stuck
	_, stopOther := start(t, q.Name(), func(context.Context, *worker.Job) error { return nil }, options)
	eventually(t, "another worker completes it", func() bool {
		s, err := q.Get(context.Background(), id)
		return err == nil && s.State == queue.Completed
	})
	kept := time.Since(begin)
	require.Greater(t, kept, 400*time.Millisecond, "its time-out, and StuckAfter")
	require.Empty(t, stuck, "not beside itself")
	close(release)
	require.NoError(t, stop())
	require.NoError(t, stopOther())
	s, err := q.Get(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, queue.Completed, s.State, "the late error changed nothing")
	t.Attr("figure", "run by another worker after "+kept.Round(10*time.Millisecond).String()+", the late error refused")
}

// What a handler leaves running is told by its context that the handler has returned.
func TestF13ContextEndsWithTheHandler(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	left := make(chan context.Context, 1)
	_, stop := start(t, q.Name(), func(ctx context.Context, _ *worker.Job) error {
		left <- ctx
		return nil
	}, worker.Options{})
	enqueue(t, q, queue.Job{})
	<-(<-left).Done()
	require.NoError(t, stop())
}

// With the budget spent, running jobs are extended and settled, and lost ones come back: none of it is limited.
func TestF87LimitedQueueSettlesAndExtends(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	ctx := context.Background()
	_, err := q.SetLimit(ctx, limiter.Limit{Max: 2, Window: time.Hour}, "")
	require.NoError(t, err)
	release, runs := make(chan struct{}), make(chan string, 10)
	_, stop := start(t, q.Name(), func(ctx context.Context, job *worker.Job) error {
		runs <- job.ID
		<-release
		return nil
	}, worker.Options{Concurrency: 3, Claim: claim.Options{Lease: 2 * time.Second}})
	for range 3 {
		enqueue(t, q, queue.Job{Retain: time.Minute})
	}
	first, err := q.Get(ctx, <-runs)
	require.NoError(t, err)
	<-runs
	eventually(t, "its lease is extended", func() bool {
		s, err := q.Get(ctx, first.ID)
		return err == nil && s.LeaseEnd.Sub(first.LeaseEnd) > 2500*time.Millisecond
	})
	n, err := q.Counts(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 1}, []int64{n.Active, n.Wait + n.SentBack}, "their leases were extended; the third is over budget")
	close(release)
	eventually(t, "both settle", func() bool { n, err := q.Counts(ctx); return err == nil && n.Completed == 2 })
	require.NoError(t, stop())
}

// What is kept of an error is bounded, and text.
func TestF93LongErrorTexts(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	_, stop := start(t, q.Name(), func(context.Context, *worker.Job) error {
		return errors.New("begin\x00\x1b[31m" + strings.Repeat("secret \xff", 1_500_000))
	}, worker.Options{})
	id := enqueue(t, q, queue.Job{MaxAttempts: 1})
	eventually(t, "dead", func() bool { s, err := q.Get(context.Background(), id); return err == nil && s.State == queue.Dead })
	require.NoError(t, stop())
	s, err := q.Get(context.Background(), id)
	require.NoError(t, err)
	require.LessOrEqual(t, len(s.LastError), claim.MaxErrorText)
	require.True(t, strings.HasPrefix(s.LastError, "begin"))
	require.NotContains(t, s.LastError, "\x1b")
	require.NotContains(t, s.LastError, "\x00")
	require.True(t, strings.ToValidUTF8(s.LastError, "") == s.LastError)
}
