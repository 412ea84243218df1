package limiter_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

func TestRacingGoroutinesGetExactlyMax(t *testing.T) {
	t.Parallel()
	l, key, limit := newLimiter(t, emqtest.Client(t)), emqtest.Queue(t), limiter.PerHour(500)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for {
				take := l.Take
				if i%2 == 1 {
					take = l.TakeUpTo
				}
				d, err := take(t.Context(), key, limit, int64(1+i%3))
				if !assert.NoError(t, err) || !d.Allowed && d.Remaining == 0 {
					return
				}
				admitted.Add(d.Granted)
				if !d.Allowed { // a few are left, fewer than it asks for
					return
				}
			}
		})
	}
	wg.Wait()
	d, err := l.TakeUpTo(t.Context(), key, limit, 3)
	require.NoError(t, err)
	assert.EqualValues(t, 500, admitted.Load()+d.Granted)
	d, err = l.Take(t.Context(), key, limit, 1)
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.InDelta(t, time.Hour, d.RetryAfter, float64(time.Minute))
}

func TestKeys(t *testing.T) {
	t.Parallel()
	client, name := emqtest.Client(t), emqtest.Queue(t)
	limit := limiter.PerHour(5)
	mail, err := limiter.New(client, limiter.Options{Prefix: name + ":{mail}:", Timeout: patient})
	require.NoError(t, err)
	sms, err := limiter.New(client, limiter.Options{Prefix: name + ":{sms}:", Timeout: patient})
	require.NoError(t, err)

	for _, key := range []string{"a", "user 7: ü\x00\xff", strings.Repeat("k", limiter.MaxKey)} {
		_, err := mail.Take(t.Context(), key, limit, 2)
		require.NoError(t, err)
		d, err := mail.Peek(t.Context(), key, limit, 0)
		require.NoError(t, err)
		assert.EqualValues(t, 3, d.Remaining, key)
		d, err = sms.Peek(t.Context(), key, limit, 0)
		require.NoError(t, err)
		assert.EqualValues(t, 5, d.Remaining, "prefixes keep keys apart")
		used, err := client.Do(t.Context(), client.B().Get().Key(name+":{mail}:"+key).Build()).AsInt64()
		require.NoError(t, err)
		assert.EqualValues(t, 2, used)
	}
	for _, key := range []string{"", strings.Repeat("k", limiter.MaxKey+1)} {
		_, err := mail.Take(t.Context(), key, limit, 1)
		require.ErrorIs(t, err, lua.ErrBadName)
		require.ErrorIs(t, mail.Reset(t.Context(), key), lua.ErrBadName)
		assert.ErrorContains(t, err, "want 1 to 512")
	}
}

func TestBadCalls(t *testing.T) {
	t.Parallel()
	l, key := newLimiter(t, emqtest.Client(t)), emqtest.Queue(t)
	for _, op := range []string{"take", "upto", "peek", "refund"} {
		for _, n := range []int64{-1, limiter.Most + 1} {
			_, err := call(t, l, key, limiter.PerSecond(5), op, n)
			require.ErrorIs(t, err, limiter.ErrBadCost)
		}
		_, err := call(t, l, key, limiter.Limit{Max: 5, Window: -1}, op, 1)
		require.ErrorIs(t, err, limiter.ErrBadLimit)
	}
}

func TestCorruptKeyIsAnErrorUntilReset(t *testing.T) {
	t.Parallel()
	client, key := emqtest.Client(t), emqtest.Queue(t)
	// Failing open is for a store that is down, not for a key that somebody spoilt.
	l, err := limiter.New(client, limiter.Options{OnError: limiter.FailOpen, Timeout: patient})
	require.NoError(t, err)
	full := limiter.DefaultPrefix + key
	for _, spoil := range [][]string{{"SET", full, "12x"}, {"RPUSH", full, "x"}} {
		send(t, client, spoil...)
		for _, op := range []string{"take", "upto", "peek", "refund"} {
			_, err := call(t, l, key, limiter.PerSecond(5), op, 1)
			var corrupt *lua.CorruptError
			require.ErrorAs(t, err, &corrupt)
			assert.Equal(t, full, corrupt.Key)
		}
		require.NoError(t, l.Reset(t.Context(), key))
		d, err := l.Peek(t.Context(), key, limiter.PerSecond(5), 5)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
	}
}

func TestRefundLeavesAManualStopAlone(t *testing.T) {
	t.Parallel()
	client, key := emqtest.Client(t), emqtest.Queue(t)
	l := newLimiter(t, client)
	send(t, client, "SET", limiter.DefaultPrefix+key, "9007199254740991", "PX", "3600000")
	_, err := l.Refund(t.Context(), key, limiter.PerSecond(5), 3)
	require.NoError(t, err)
	d, err := l.Take(t.Context(), key, limiter.PerSecond(5), 1)
	require.NoError(t, err)
	assert.Greater(t, d.RetryAfter, time.Minute)
}

func TestWait(t *testing.T) {
	t.Parallel()
	l, key := newLimiter(t, emqtest.Client(t)), emqtest.Queue(t)
	limit := limiter.Limit{Max: 2, Window: 60 * time.Millisecond}
	start := time.Now()
	for range 5 {
		d, err := l.Wait(t.Context(), key, limit, 1)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
	}
	assert.GreaterOrEqual(t, time.Since(start), 2*limit.Window-2*time.Millisecond, "two windows must pass")

	_, err := l.Wait(t.Context(), key, limit, 3)
	require.ErrorIs(t, err, limiter.ErrNeverFits)

	limit.Window = time.Hour
	require.NoError(t, l.Reset(t.Context(), key))
	_, err = l.Wait(t.Context(), key, limit, 2)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start = time.Now()
	d, err := l.Wait(ctx, key, limit, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(start), 30*time.Second, "told at once")
	assert.Greater(t, d.RetryAfter, time.Minute)

	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = l.Wait(ctx, key, limit, 1)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	client := emqtest.Client(t)
	dial := func() (valkey.Client, error) { return nil, errors.New("not called") }
	for field, opts := range map[string]limiter.Options{
		"Timeout is -1s": {Timeout: -time.Second},
		"OnError is 3":   {OnError: 3},
		"OnError is -1":  {OnError: -1},
	} {
		_, err := limiter.New(client, opts)
		require.ErrorContains(t, err, field)
		_, err = limiter.NewLazy(dial, opts)
		require.ErrorContains(t, err, field)
	}
	_, err := limiter.New(nil, limiter.Options{})
	require.ErrorContains(t, err, "client is nil")
	_, err = limiter.NewLazy(nil, limiter.Options{})
	require.ErrorContains(t, err, "dial is nil")
}
