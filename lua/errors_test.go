package lua_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
)

// private returns a queue on a server of its own.
func private(t *testing.T, args ...string) *queue {
	t.Helper()
	return queueOn(t, dial(t, server(t, valkeyd.Options{Args: args})), nil)
}

// A call that the server cannot run now is sent again, as it did not run.
func TestCallIsSentAgainWhenItDidNotRun(t *testing.T) {
	t.Parallel()
	q := private(t)
	q.run("REPLICAOF 127.0.0.1 1")
	done := make(chan error)
	go func() {
		_, err := lua.Enqueue(t.Context(), q.client, q.keys, []lua.NewJob{job("a")})
		done <- err
	}()
	refused := func() bool { // the first answers were that the server is read-only
		info := q.text("INFO errorstats")
		return len(info) > 0 && strings.Contains(info, "errorstat_READONLY")
	}
	require.Eventually(t, refused, time.Minute, time.Millisecond)
	q.run("REPLICAOF NO ONE")
	require.NoError(t, <-done)
	require.Equal(t, "wait", q.state("a"))
}

func TestF60Unavailable(t *testing.T) {
	t.Parallel()
	q := private(t)
	q.wait("a")
	q.run("REPLICAOF 127.0.0.1 1")
	began := time.Now()
	_, err := q.tryClaim(1)
	require.ErrorIs(t, err, lua.ErrUnavailable)
	require.ErrorContains(t, err, "emq: claim: server unavailable: ")
	require.GreaterOrEqual(t, time.Since(began), 500*time.Millisecond, "not before it tried for a while")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err = lua.Claim(ctx, q.client, q.keys, "", "n", 1, lease, reclaims)
	require.Error(t, err)
	require.NotErrorIs(t, err, lua.ErrUnavailable)
	// It ends in the last and longest pause between two attempts, from 300 to 620 ms on.
	ctx, stop := context.WithTimeout(t.Context(), 560*time.Millisecond)
	defer stop()
	_, err = lua.Claim(ctx, q.client, q.keys, "", "n", 1, lease, reclaims)
	require.ErrorIs(t, err, lua.ErrUnavailable, "the context ends the attempts")
	q.run("REPLICAOF NO ONE")
	require.Len(t, q.claim(1).IDs, 1, "nothing ran")
}

// When memory is full only enqueues are refused: the fleet drains the queue.
func TestF45FullServer(t *testing.T) {
	t.Parallel()
	q := private(t)
	q.wait(ids(6)...)
	q.run("CONFIG SET maxmemory 1")
	_, err := lua.Enqueue(t.Context(), q.client, q.keys, []lua.NewJob{job("a")})
	require.ErrorIs(t, err, lua.ErrStoreFull)
	require.NoError(t, setLimit(5, "")(q))
	require.NoError(t, second(lua.Pause(t.Context(), q.client, q.keys, false, "")))

	c := q.claim(4)
	require.Len(t, c.IDs, 4)
	s := func(i int, outcome string) lua.Settlement {
		return lua.Settlement{Outcome: outcome, ID: c.IDs[i], Token: c.Token}
	}
	lost, err := lua.Extend(t.Context(), q.client, q.keys, lease, []lua.Settlement{s(0, "")})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, lost)
	q.settle(s(0, lua.Complete), s(1, lua.Retry), s(2, lua.HandBack), s(3, lua.DeadLetter))
	require.NoError(t, second(runNow(q, c.IDs[1])))
	require.NoError(t, second(redrive(q, c.IDs[3])))
	_, err = remove(q, c.IDs[3])
	require.NoError(t, err)
	_, _, err = lua.Drain(t.Context(), q.client, q.keys, true, 100)
	require.NoError(t, err)
	require.Equal(t, [6]int64{}, q.counts())
	_, err = lua.Take(t.Context(), q.client, "take", fixedWindow(q.keys.Limiter(), 1), 1)
	require.NoError(t, err)
}

// A server that forgot its scripts gets them again.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	q := private(t)
	q.wait("a", "b")
	q.claim(1)
	q.run("SCRIPT FLUSH")
	require.Len(t, q.claim(1).IDs, 1)
	q.run("SCRIPT FLUSH")
	require.Equal(t, [6]int64{0, 2, 0, 0, 0, 0}, q.counts())
}

func TestErrorsOfTheConnectionSayWhichScript(t *testing.T) {
	t.Parallel()
	s := server(t, valkeyd.Options{})
	q := queueOn(t, dial(t, s), nil)
	q.wait("a")
	q.client.Close()
	_, err := q.tryClaim(1)
	require.ErrorIs(t, err, valkey.ErrClosing)
	require.ErrorContains(t, err, "emq: claim: ")
	require.NotErrorIs(t, err, lua.ErrUnavailable)
}

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		`emq: queue misconfigured: k field max is "x"; want a whole number without sign or leading zero, from 0 to the most that its algorithm counts exactly (at most 9007199254740991)`: &lua.ConfigError{Key: "k", Field: "max", Value: "x"},
		`emq: queue misconfigured: k field duration is "0"; want a whole number of milliseconds, 1 or more`:                                                                               &lua.ConfigError{Key: "k", Field: "duration", Value: "0"},
		`emq: queue misconfigured: k field algorithm is "x"; want fixed_window, sliding_log, sliding_window_counter, token_bucket or leaky_bucket`:                                        &lua.ConfigError{Key: "k", Field: "algorithm", Value: "x"},
		`emq: queue misconfigured: k field layout is "2"; want 1: another version of this library laid the queue out`:                                                                     &lua.ConfigError{Key: "k", Field: "layout", Value: "2"},
		`emq: key k holds "x"; want a whole number up to 9007199254740991`:                                                                                                                &lua.CorruptError{Key: "k", Value: "x"},
		`emq: key k is a list; want a string`: &lua.CorruptError{Key: "k", Type: "list", Want: "string"},
	} {
		assert.EqualError(t, err, want)
	}
}
