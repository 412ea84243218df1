package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

func TestNamedLimitsAreKept(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	yes, no := true, false
	tpm := queue.NamedLimit{
		Name: "tpm", By: "model", Unit: "tokens", Limit: limiter.Limit{Algorithm: limiter.TokenBucket, Max: 90, Window: time.Minute, Burst: 30},
	}
	before, err := q.SetNamedLimit(ctx, tpm, "the plan\nof 2030")
	require.NoError(t, err)
	require.Zero(t, before)
	before, err = q.SetNamedLimit(ctx, queue.NamedLimit{Name: "tpm", Limit: limiter.Limit{Max: 100}, Shadow: &yes}, "")
	require.NoError(t, err)
	tpm.Shadow = &no
	require.Equal(t, tpm, before)
	_, err = q.SetNamedLimit(ctx, queue.NamedLimit{Name: "flight", Limit: limiter.Limit{Algorithm: queue.Concurrency, Max: 3}}, "")
	require.NoError(t, err)
	all, err := q.NamedLimits(ctx)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "3 concurrency", all[0].String())
	require.Equal(t, "100/1m0s token_bucket burst=30 by model of tokens, shadow", all[1].String())
	removed, err := q.RemoveNamedLimit(ctx, "tpm", "")
	require.NoError(t, err)
	require.Equal(t, all[1], removed)

	for _, err := range []error{
		second(q.RemoveNamedLimit(ctx, "tpm", "")), second(q.NamedLimit(ctx, "tpm")), q.ResetNamedLimit(ctx, "tpm", ""), q.DropOverride(ctx, "tpm", "x", ""),
	} {
		require.ErrorIs(t, err, queue.ErrNoLimit)
		require.ErrorContains(t, err, "limit tpm: no such limit in queue "+q.Name())
	}
	require.ErrorIs(t, q.ResetNamedLimit(ctx, "flight", ""), limiter.ErrBadLimit)
}

// What a limit of any algorithm was can be set back as it was answered.
func TestTheLimitBeforeCanBeSetBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	yes := true
	for _, algorithm := range []limiter.Algorithm{
		limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingWindowCounter, limiter.TokenBucket, limiter.LeakyBucket, queue.Concurrency,
	} {
		l := queue.NamedLimit{Name: "a." + string(algorithm), By: "tenant", Limit: limiter.Limit{Algorithm: algorithm, Max: 5}}
		changed := queue.NamedLimit{Name: l.Name, Limit: limiter.Limit{Max: 7}, Shadow: &yes}
		if algorithm != queue.Concurrency {
			l.Window, changed.Window = time.Minute, time.Hour
		}
		if algorithm == limiter.TokenBucket {
			l.Burst, changed.Burst = 3, 4
		}
		_, err := q.SetNamedLimit(ctx, l, "")
		require.NoError(t, err)
		first, err := q.NamedLimit(ctx, l.Name)
		require.NoError(t, err)
		before, err := q.SetNamedLimit(ctx, changed, "")
		require.NoError(t, err)
		require.Equal(t, first, before)
		_, err = q.SetNamedLimit(ctx, before, "as it was")
		require.NoError(t, err)
		again, err := q.NamedLimit(ctx, l.Name)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
}

// An algorithm that has no burst has none for a key value either.
func TestAnOverrideWithoutBurstIsGivenNone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	_, err = q.SetNamedLimit(ctx, queue.NamedLimit{Name: "a", By: "tenant", Limit: limiter.PerSecond(1)}, "")
	require.NoError(t, err)
	_, err = q.SetNamedLimit(ctx, queue.NamedLimit{Name: "a", Overrides: map[string]limiter.Limit{"y": {Max: 1, Burst: 50}}}, "")
	require.ErrorIs(t, err, limiter.ErrBadLimit)
	require.ErrorContains(t, err, "limit a is a fixed_window, which has no burst; want none, not 50")
}

func second[T any](_ T, err error) error { return err }

func TestBadNamedLimitsAreRefusedBeforeTheyAreSent(t *testing.T) {
	t.Parallel()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	per := limiter.PerSecond(1)
	for says, l := range map[string]queue.NamedLimit{
		"emq: limit a: bad limit: max is -1":                            {Name: "a", Limit: limiter.Limit{Max: -1}},
		"emq: limit a: bad limit: window is 1ns":                        {Name: "a", Limit: limiter.Limit{Max: 1, Window: 1}},
		"emq: limit a: bad limit: algorithm \"x\" is unknown":           {Name: "a", Limit: limiter.Limit{Algorithm: "x", Max: 1}},
		"emq: limit a: bad limit: a leaky_bucket hands out one job":     {Name: "a", Limit: limiter.Limit{Algorithm: limiter.LeakyBucket, Max: 1, Burst: 2}},
		"emq: limit a: bad limit: aligned and count_denied":             {Name: "a", Limit: limiter.Limit{Max: 1, Aligned: true}},
		"emq: bad limit: limit a: window 1s, burst 0, unit \"\"":        {Name: "a", Limit: limiter.Limit{Algorithm: queue.Concurrency, Max: 1, Window: time.Second}},
		"emq: limit a, override for \"v\": bad limit: max is -1":        {Name: "a", By: "k", Limit: per, Overrides: map[string]limiter.Limit{"v": {Max: -1}}},
		"emq: bad limit: limit a: the override for \"v\" has algorithm": {Name: "a", By: "k", Limit: per, Overrides: map[string]limiter.Limit{"v": {Algorithm: limiter.SlidingLog, Max: 1}}},
		"emq: bad limit: limit a: the override for \"v\" has a max of 0 beside a window of 1m0s; want": {
			Name: "a", By: "k", Limit: per, Overrides: map[string]limiter.Limit{"v": {Window: time.Minute}}},
		"emq: bad limit: limit a: the override for \"v\" has a max of 0 beside a burst of 5; want": {
			Name: "a", By: "k", Limit: per, Overrides: map[string]limiter.Limit{"v": {Burst: 5}}},
		"emq: bad limit: limit a: key value of an override": {Name: "a", By: "k", Limit: per, Overrides: map[string]limiter.Limit{strings.Repeat("v", 257): {Max: 1}}},
		"limit name is empty":                               {Limit: per},
		"key name \"a b\" has ' ' at byte 1":                {Name: "a", By: "a b", Limit: per},
		"cost name \"a:b\" has ':' at byte 1":               {Name: "a", Unit: "a:b", Limit: per},
	} {
		_, err := q.SetNamedLimit(t.Context(), l, "")
		require.ErrorContains(t, err, says)
	}
	for says, err := range map[string]error{
		"closing for 0s; want more than 0": second(q.Close(t.Context(), 0, "")),
		"closing for 87600h0m1s; want":     second(q.Close(t.Context(), queue.MaxDelay+time.Second, "")),
		"key name is empty":                second(q.CloseKey(t.Context(), "", "x", time.Second, "")),
		"value of key k has 1 bytes; want": q.ReopenKey(t.Context(), "k", "\xff", ""),
	} {
		require.ErrorContains(t, err, says)
	}
	all, err := q.NamedLimits(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
}

func TestTooHeavyJobsAreTheirOwnAnswer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	_, err = q.SetNamedLimit(ctx, queue.NamedLimit{
		Name: "tpm", By: "model", Unit: "tokens", Limit: limiter.PerMinute(100), Overrides: map[string]limiter.Limit{"big": {Max: 500}, "free": {}},
	}, "")
	require.NoError(t, err)
	cost := func(id, model string, n int64) queue.Job {
		return queue.Job{ID: id, Keys: map[string]string{"model": model}, Cost: map[string]int64{"tokens": n}}
	}
	answers, err := q.EnqueueMany(ctx, []queue.Job{cost("a", "x", 100), cost("b", "x", 101), cost("c", "big", 500), cost("d", "big", 501), cost("e", "free", queue.MaxCost), {ID: "f", Cost: map[string]int64{"tokens": 101}}})
	require.NoError(t, err)
	for i, heavy := range []bool{false, true, false, true, false, false} {
		if heavy {
			require.ErrorIs(t, answers[i].Err, queue.ErrTooHeavy)
		} else {
			require.NoError(t, answers[i].Err, answers[i].ID)
		}
	}
	require.ErrorContains(t, answers[1].Err, "its cost tokens=101 is above 100, the most that limit tpm of queue "+q.Name()+" ever grants at once; nothing was stored")
	_, err = q.Get(ctx, "b")
	require.ErrorIs(t, err, queue.ErrNotFound)
}
