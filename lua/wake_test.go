package lua_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

func TestAwait(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.wait("a")
	woken, err := lua.Await(t.Context(), q.client, q.keys, time.Minute)
	require.NoError(t, err)
	require.True(t, woken, "a token waits")

	for _, d := range []time.Duration{10 * time.Millisecond, time.Nanosecond, 0, -time.Second} {
		woken, err = lua.Await(t.Context(), q.client, q.keys, d)
		require.NoError(t, err)
		require.False(t, woken)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = lua.Await(ctx, q.client, q.keys, time.Minute)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Jobs that arrive wake one that sits in its pop.
func TestAwaitIsWoken(t *testing.T) {
	t.Parallel()
	q := private(t)
	done := make(chan bool)
	go func() {
		woken, err := lua.Await(t.Context(), q.client, q.keys, time.Minute)
		done <- woken && err == nil
	}()
	require.Eventually(t, func() bool { return strings.Contains(q.text("INFO clients"), "blocked_clients:1") }, 5*time.Second, time.Millisecond)
	q.wait("a")
	require.True(t, <-done)
	require.EqualValues(t, 0, q.number("EXISTS :wake"))
}
