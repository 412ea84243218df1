package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/meter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// The span that a producer enqueues under arrives with the job, and what a limit holds back reaches the hook.
func TestTraceContextAndHitsArrive(t *testing.T) {
	t.Parallel()
	hits := make(chan time.Duration, 100)
	m := meter.New(meter.Options{OnRateLimitHit: func(_ string, delay time.Duration) { hits <- delay }})
	client, name := emqtest.Client(t), emqtest.Queue(t)
	q, err := queue.New(client, name, queue.Options{Meter: m})
	require.NoError(t, err)
	span := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0x4b, 0xf9, 15: 1}, SpanID: trace.SpanID{0xf0, 7: 2}, TraceFlags: trace.FlagsSampled,
	})
	_, err = q.SetLimit(context.Background(), limiter.Limit{Max: 1, Window: 50 * time.Millisecond}, "test")
	require.NoError(t, err)
	for range 2 {
		_, err = q.Enqueue(trace.ContextWithSpanContext(context.Background(), span), queue.Job{})
		require.NoError(t, err)
	}
	got := make(chan string, 2)
	_, _ = start(t, name, func(_ context.Context, job *worker.Job) error {
		parent, _ := job.TraceContext()
		got <- parent
		return nil
	}, worker.Options{Claim: claim.Options{Meter: m}})
	const want = "00-4bf90000000000000000000000000001-f000000000000002-01"
	require.Equal(t, want, <-got)
	require.Equal(t, want, <-got)
	delay := <-hits
	require.Positive(t, delay)
	require.LessOrEqual(t, delay, 50*time.Millisecond)
}
