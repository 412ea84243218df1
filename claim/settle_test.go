package claim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/queue"
)

// The server counts in ms: a shorter close is one of 1 ms, and none is cut.
func TestRateLimitedRoundsUp(t *testing.T) {
	t.Parallel()
	for wait, closed := range map[time.Duration]int64{0: 1, 900 * time.Microsecond: 1, 1001 * time.Microsecond: 2, 3 * time.Millisecond: 3} {
		q, c, _, client := clocked(t)
		_, err := q.Enqueue(t.Context(), queue.Job{ID: "a"})
		require.NoError(t, err)
		b, err := c.Claim(t.Context(), 1)
		require.NoError(t, err)
		require.Len(t, b.Jobs, 1)
		_, err = c.Settle(t.Context(), []claim.Outcome{claim.RateLimited(b.Jobs[0], wait, "", nil)})
		require.NoError(t, err)
		till, err := client.Do(t.Context(), client.B().Zscore().Key("emq:{q}:closed").Member("queue").Build()).AsFloat64()
		require.NoError(t, err, wait)
		require.Equal(t, start+closed, int64(till), wait)
	}
}
