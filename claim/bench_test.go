package claim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
)

// BenchmarkSettle completes 100 jobs in one call.
func BenchmarkSettle(b *testing.B) {
	b.ReportAllocs()
	client, name := emqtest.Client(b), emqtest.Queue(b)
	q, err := queue.New(client, name, queue.Options{})
	require.NoError(b, err)
	c, err := claim.New(client, name, claim.Options{})
	require.NoError(b, err)
	jobs := make([]queue.Job, 100)
	for b.Loop() {
		b.StopTimer()
		_, err := q.EnqueueMany(b.Context(), jobs)
		require.NoError(b, err)
		batch, err := c.Claim(b.Context(), len(jobs))
		require.NoError(b, err)
		require.Len(b, batch.Jobs, len(jobs))
		outcomes := make([]claim.Outcome, len(jobs))
		for i, job := range batch.Jobs {
			outcomes[i] = claim.Complete(job)
		}
		b.StartTimer()
		answers, err := c.Settle(b.Context(), outcomes)
		b.StopTimer()
		require.NoError(b, err)
		for _, answer := range answers {
			require.NoError(b, answer)
		}
		b.StartTimer()
	}
}
