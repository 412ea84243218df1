package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
)

func TestStats(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	read := func() statsJSON {
		t.Helper()
		all := decode[[]statsJSON](t, ok(t, "stats", name, "--json"))
		require.Len(t, all, 1)
		s := all[0]
		assert.Positive(t, s.AtMS)
		s.AtMS, s.ResetAfterMS = 0, 0
		return s
	}
	assert.Equal(t, statsJSON{Queue: name, Remaining: -1}, read())
	ok(t, "limits", "set", name, "2/1m")
	for range 2 {
		ok(t, "enqueue", name, "x")
	}
	ok(t, "enqueue", name, "--delay", "1h")
	claimer, err := claim.New(emqtest.Client(t), name, claim.Options{})
	require.NoError(t, err)
	batch, err := claimer.Claim(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, batch.Jobs, 2)
	s := statsJSON{Queue: name, Active: 2, Delayed: 1, DelayedOwn: 1, Max: 2, WindowMS: 60_000, Used: 2}
	assert.Equal(t, s, read(), "a limit that refuses nobody who waits: not limited")
	assert.Regexp(t, name+` +0 +2 +1 +0 +0 +0 +2/1m0s +2 +0 +\S+ +open\n`, ok(t, "stats", name))

	ok(t, "enqueue", name, "x")
	_, err = claimer.Claim(t.Context(), 5)
	require.NoError(t, err)
	s.Delayed, s.SentBack, s.Limited = 2, 1, true
	assert.Equal(t, s, read())
	assert.Regexp(t, name+` +0 +2 +1 +1 +0 +0 +2/1m0s +2 +0 +\S+ +limited\n`, ok(t, "stats", name))

	_, err = claimer.Settle(t.Context(), []claim.Outcome{claim.DeadLetter(batch.Jobs[0], queue.ReasonDeadLettered, nil), claim.Complete(batch.Jobs[1])})
	require.NoError(t, err)
	ok(t, "queue", "pause", name)
	s.Active, s.Dead, s.Paused = 0, 1, true
	assert.Equal(t, s, read())
	assert.Contains(t, ok(t, "stats", name), "paused")

	_, other := newTestQueue(t)
	ok(t, "enqueue", other)
	all := ok(t, "stats")
	contains(t, all, name, other)
	var found int
	for _, s := range decode[[]statsJSON](t, ok(t, "stats", "--json")) {
		if s.Queue == name || s.Queue == other {
			found++
		}
	}
	assert.Equal(t, 2, found)
	both := decode[[]statsJSON](t, ok(t, "stats", other, name, "--json"))
	assert.Equal(t, []string{other, name}, []string{both[0].Queue, both[1].Queue})
	assert.True(t, strings.HasPrefix(all, "QUEUE "))
}

func TestQueue(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	ok(t, "enqueue", name)
	ok(t, "enqueue", name, "--delay", "1h")
	assert.Equal(t, name+": paused, was running\n", ok(t, "queue", "pause", name, "--reason", "test"))
	assert.Equal(t, name+": paused, was paused\n", ok(t, "queue", "pause", name))
	assert.Contains(t, ok(t, "queue", "ls"), name+"  paused\n")
	assert.Contains(t, decode[[]queueJSON](t, ok(t, "queue", "ls", "--json")), queueJSON{name, true})
	assert.Equal(t, name+": running, was paused\n", ok(t, "queue", "resume", name))
	assert.Equal(t, name+": running, was running\n", ok(t, "queue", "resume", name))

	assert.Equal(t, exitUsage, emq(t, "queue", "drain", name, "--delayed").code)
	wait, _, delayed, _ := counts(t, q)
	assert.EqualValues(t, []int64{1, 1}, []int64{wait, delayed})
	assert.Equal(t, name+": 1 jobs deleted\n", ok(t, "queue", "drain", name, "--confirm="+name))
	assert.Equal(t, name+": 1 jobs deleted\n", ok(t, "queue", "drain", name, "--delayed", "--confirm="+name))
}
