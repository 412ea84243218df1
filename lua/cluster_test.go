package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
)

// Scripts touch keys that they do not declare, such as records; on a cluster that works because all lie in the queue's slot.
func TestF37ScriptsOnACluster(t *testing.T) {
	t.Parallel()
	s := server(t, valkeyd.Options{Cluster: true})
	for range 3 { // other slots
		q := queueOn(t, dial(t, s), nil)
		require.NoError(t, setLimit(100, "60000")(q))
		jobs := settled(q)
		require.NoError(t, second(q.trySettle(jobs...)))
		require.Equal(t, [6]int64{1, 0, 2, 0, 2, 1}, q.counts())
		q.wait("again")
		s := q.claimed(lua.Complete, time.Minute, "result")
		require.NoError(t, second(lua.Extend(t.Context(), q.client, q.keys, lease, []lua.Settlement{s})))
		q.settle(s)
		require.NoError(t, second(runNow(q, "retry")))
		require.NoError(t, second(redrive(q, "dead")))
		require.NoError(t, second(remove(q, "kept")))
		require.NotEmpty(t, q.page("wait", 0, 10))
		require.NoError(t, second(lua.Look(t.Context(), q.client, q.keys, "", lua.Busy, false, 0)))
		require.NoError(t, second(lua.ReadBudget(t.Context(), q.client, q.keys, "")))
		_, _, err := lua.Drain(t.Context(), q.client, q.keys, true, 100)
		require.NoError(t, err)
	}
}
