package lua_test

import (
	"context"
	"fmt"
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
	require.Eventually(t, func() bool { return strings.Contains(q.text("INFO clients"), "blocked_clients:1") }, time.Minute, time.Millisecond)
	q.wait("a")
	require.True(t, <-done)
	require.EqualValues(t, 0, q.number("EXISTS :wake"))
}

// A claim that leaves work behind wakes another worker, and at most two tokens wait.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	tokens := func() int64 { return q.number("LLEN :wake") }
	q.wait(ids(9)...)
	require.EqualValues(t, 1, tokens())
	for _, want := range []int64{2, 2, 2} {
		got := q.claim(1)
		require.False(t, got.More)
		require.Zero(t, got.Next, "there is more to claim")
		require.EqualValues(t, want, tokens())
	}
	q.do("DEL", ":wake")
	q.claim(0)
	require.EqualValues(t, 1, tokens(), "a claim of none passes the token on")
	q.do("DEL", ":wake")
	require.Equal(t, lease, q.claim(6).Next)
	require.EqualValues(t, 0, tokens(), "nothing is left")

	q.limited("2")
	q.do("DEL", ":wake")
	require.Equal(t, time.Second, q.claim(2).Retry)
	require.EqualValues(t, 0, tokens(), "what is left cannot be granted")
	require.Equal(t, "limited", q.claim(0).Word)
	require.EqualValues(t, 0, tokens())
	require.Equal(t, [6]int64{1, 11, 0, 0, 0, 0}, q.counts(), "and a claim that fills its k sends nothing back")
}

// The alarm is the next time at which some process claims by itself: the one that was told so, unless another will do it
// earlier.
func TestAlarm(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for name, c := range map[string]struct{ alarm, due, want time.Duration }{
		"none":    {-1, 5, 5},
		"earlier": {3, 5, 3},
		"same":    {5, 5, 5},
		"later":   {9, 5, 5},
		"now":     {0, 5, 5},
		"past":    {-2, 5, 5},
		"nothing": {9, -1, 9},
	} {
		q := shared.another(t)
		if c.due > 0 {
			q.enqueue(delayed("a", c.due*time.Second))
		}
		if c.alarm != -1 {
			q.do("HSET", ":state", "alarm", fmt.Sprint(start+c.alarm.Nanoseconds()*1000))
		}
		got := q.claim(1)
		require.Equal(t, max(-1, c.due*time.Second), got.Next, name)
		require.Equal(t, fmt.Sprint(start+c.want.Nanoseconds()*1000), q.hash(":state")["alarm"], name)
	}
	q := shared.another(t)
	require.EqualValues(t, -1, q.claim(1).Next)
	require.NotContains(t, q.hash(":state"), "alarm")
}

func TestEnqueueWakes(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	enqueue := func(want int64, jobs ...lua.NewJob) {
		t.Helper()
		q.do("DEL", ":wake")
		q.enqueue(jobs...)
		require.Equal(t, want, q.number("LLEN :wake"))
	}
	enqueue(1, job("a"))
	enqueue(1, delayed("b", time.Minute)) // nobody has set a timer yet
	require.Equal(t, []string{"a"}, q.claim(1).IDs)
	enqueue(0, delayed("c", time.Hour)) // a process claims when the lease ends
	enqueue(1, delayed("d", time.Second))
	q.claim(1)
	enqueue(0, delayed("e", 2*time.Second))
	enqueue(1, delayed("e1", time.Hour), delayed("e2", time.Millisecond), delayed("e3", time.Minute))

	require.NoError(t, setLimit(1, "5000")(q))
	enqueue(1, job("f"))
	require.Equal(t, []string{"f"}, q.claim(1).IDs)
	enqueue(0, job("g")) // the limit refuses, and there is an alarm before it is back
	q.clock.Advance(time.Second)
	q.do("HDEL", ":state", "alarm")
	enqueue(1, job("h")) // nobody would claim when it is back
	q.do("HSET", ":meta", "paused", "1")
	enqueue(0, job("i"))
	q.do("HDEL", ":meta", "max")
	enqueue(0, job("j"))
	enqueue(1, delayed("k", time.Minute))
	require.Empty(t, q.list("LRANGE :wait1 0 -1"))
	require.Equal(t, []string{"g", "h", "i", "j"}, q.list("LRANGE :wait2 0 -1"))
}
