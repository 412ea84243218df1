package limiter_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
)

var algorithms = []limiter.Algorithm{
	limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingWindowCounter, limiter.TokenBucket, limiter.LeakyBucket,
}

func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }

// patient is for tests that are not about time-outs.
const patient = 30 * time.Second

func newLimiter(t *testing.T, client valkey.Client) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(client, limiter.Options{Timeout: patient})
	require.NoError(t, err)
	return l
}

func dial(t *testing.T, s *valkeyd.Server) valkey.Client {
	t.Helper()
	client, err := valkey.NewClient(s.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// onVirtualClock is a limiter on a server of its own, whose clock the test sets.
func onVirtualClock(t *testing.T) (*limiter.Limiter, *valkeyd.Clock, valkey.Client) {
	t.Helper()
	server, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client := dial(t, server)
	return newLimiter(t, client), clock, client
}

func send(t *testing.T, client valkey.Client, args ...string) valkey.ValkeyResult {
	t.Helper()
	r := client.Do(t.Context(), client.B().Arbitrary(args...).Build())
	if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) {
		t.Fatalf("%v: %v", args, err)
	}
	return r
}
