package metrics_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
)

func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }

// testQueue is a queue of a test, written and read by plain commands as another runtime would.
type testQueue struct {
	t      *testing.T
	client valkey.Client
	name   string
	lua.Keys
}

func newQueue(t *testing.T, client valkey.Client) testQueue {
	t.Helper()
	name := emqtest.Queue(t)
	keys, err := lua.ForQueue(name)
	require.NoError(t, err)
	return testQueue{t, client, name, keys}
}

func (q testQueue) do(args ...string) valkey.ValkeyResult {
	q.t.Helper()
	r := q.client.Do(q.t.Context(), q.client.B().Arbitrary(args...).Build())
	if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) {
		q.t.Fatalf("%v: %v", args, err)
	}
	return r
}

func dial(t *testing.T, options valkey.ClientOption) valkey.Client {
	t.Helper()
	client, err := valkey.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// onVirtualClock is a server of the test's own, whose clock it sets.
func onVirtualClock(t *testing.T) (valkey.Client, *valkeyd.Clock) {
	t.Helper()
	server, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	return dial(t, server.Options()), clock
}
