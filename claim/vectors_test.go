package claim_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

// Batch claims under each algorithm, to the millisecond. waiting counts jobs that wait and those that were sent back; a wait is
// told only when nothing was granted.
func TestClaimVectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/claim.json")
	require.NoError(t, err)
	var file struct {
		BaseMS  int64 `json:"base_ms"`
		Vectors []struct {
			ID, Desc  string
			Algorithm string
			Config    struct {
				Limit    int64
				WindowMS int64 `json:"window_ms"`
				Burst    int64
			}
			Waiting int
			Steps   []struct {
				T      int64
				K, Add int
				Expect struct {
					Claimed, Waiting int64
					RetryAfterMS     int64 `json:"retry_after_ms"`
					Remaining        int64
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	require.NotEmpty(t, file.Vectors)
	server, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	for _, v := range file.Vectors {
		name := emqtest.Queue(t)
		clock.Set(file.BaseMS + v.Steps[0].T)
		q, err := queue.New(client, name, queue.Options{})
		require.NoError(t, err)
		c, err := claim.New(client, name, claim.Options{Lease: time.Hour})
		require.NoError(t, err)
		if v.Config.Limit > 0 {
			_, err = q.SetLimit(t.Context(), limiter.Limit{
				Algorithm: limiter.Algorithm(v.Algorithm), Max: v.Config.Limit, Window: time.Duration(v.Config.WindowMS) * time.Millisecond, Burst: v.Config.Burst,
			}, v.ID)
			require.NoError(t, err)
		}
		if v.Waiting > 0 {
			_, err = q.EnqueueMany(t.Context(), make([]queue.Job, v.Waiting))
			require.NoError(t, err)
		}
		for i, s := range v.Steps {
			clock.Set(file.BaseMS + s.T)
			if s.Add > 0 {
				_, err = q.EnqueueMany(t.Context(), make([]queue.Job, s.Add))
				require.NoError(t, err)
			}
			b, err := c.Claim(t.Context(), s.K)
			require.NoError(t, err)
			require.EqualValues(t, s.Expect.Claimed, len(b.Jobs), "%s step %d: %s", v.ID, i, v.Desc)
			if len(b.Jobs) == 0 {
				require.Equal(t, s.Expect.RetryAfterMS, b.RetryAfter.Milliseconds(), "%s step %d", v.ID, i)
			}
			counts, err := q.Counts(t.Context())
			require.NoError(t, err)
			require.Equal(t, s.Expect.Waiting, counts.Wait+counts.SentBack, "%s step %d", v.ID, i)
			budget, err := metrics.ReadBudget(t.Context(), client, name)
			require.NoError(t, err)
			require.Equal(t, s.Expect.Remaining, budget.Remaining, "%s step %d", v.ID, i)
		}
	}
}
