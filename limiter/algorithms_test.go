package limiter_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/emulator"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

func TestRacingGoroutinesGetNoMoreThanThereIs(t *testing.T) {
	t.Parallel()
	l, name := newLimiter(t, emqtest.Client(t)), emqtest.Queue(t)
	for _, algorithm := range algorithms {
		limit := limiter.Limit{Algorithm: algorithm, Max: 200, Window: 1000 * time.Hour}
		if algorithm == limiter.LeakyBucket {
			limit.Burst = 200
		}
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					d, err := l.Take(t.Context(), name+string(algorithm), limit, 1)
					if !assert.NoError(t, err) || !d.Allowed {
						return
					}
					admitted.Add(1)
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, 200, admitted.Load(), algorithm)
	}
}

// A log of more units than one command may have arguments, and its move to an earlier time, keep each unit.
func TestALongLog(t *testing.T) {
	t.Parallel()
	l, clock, client := onVirtualClock(t)
	limit := limiter.Limit{Algorithm: limiter.SlidingLog, Max: 20_000, Window: time.Minute}
	units := func() int64 {
		n, err := send(t, client, "ZCARD", limiter.DefaultPrefix+key).AsInt64()
		require.NoError(t, err)
		return n
	}
	clock.Set(start)
	d, err := l.Take(t.Context(), key, limit, 12_345)
	require.NoError(t, err)
	require.EqualValues(t, 20_000-12_345, d.Remaining)
	clock.Set(start - time.Hour.Milliseconds())
	d, err = l.Take(t.Context(), key, limit, 20_000)
	require.NoError(t, err)
	require.Equal(t, time.Minute, d.RetryAfter)
	require.EqualValues(t, 12_345, units())
	d, err = l.Take(t.Context(), key, limit, 20_000-12_345)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.EqualValues(t, 20_000, units())
	d, err = l.Refund(t.Context(), key, limit, 19_999)
	require.NoError(t, err)
	require.EqualValues(t, 19_999, d.Remaining)
	require.EqualValues(t, 1, units())
}

// Who hammers a bucket that counts denied calls stays out, and its log grows no further than the limit.
func TestCountedDenials(t *testing.T) {
	t.Parallel()
	l, clock, client := onVirtualClock(t)
	for _, algorithm := range []limiter.Algorithm{limiter.SlidingLog, limiter.FixedWindow} {
		limit, key := limiter.Limit{Algorithm: algorithm, Max: 3, Window: time.Second, CountDenied: true}, string(algorithm)
		for i := range int64(100) {
			clock.Set(start + 10*i)
			d, err := l.Take(t.Context(), key, limit, 1+i%2)
			require.NoError(t, err)
			require.Equal(t, i < 2, d.Allowed, "%s %d", algorithm, i)
			d, err = l.Take(t.Context(), key, limit, 4) // never granted, never counted
			require.NoError(t, err)
			require.Equal(t, limiter.Never, d.RetryAfter)
		}
		if algorithm == limiter.SlidingLog {
			n, err := send(t, client, "ZCARD", limiter.DefaultPrefix+key).AsInt64()
			require.NoError(t, err)
			require.EqualValues(t, 3, n)
			clock.Set(start + 1990)
		} else {
			used, err := send(t, client, "GET", limiter.DefaultPrefix+key).AsInt64()
			require.NoError(t, err)
			require.EqualValues(t, 150, used)
			clock.Set(start + 1000)
		}
		d, err := l.Take(t.Context(), key, limit, 3)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
}

// Whatever stands in a key, a call either reads it or names it in an error, and changes nothing then.
func TestCorruptKeys(t *testing.T) {
	t.Parallel()
	client, name := emqtest.Client(t), emqtest.Queue(t)
	l := newLimiter(t, client)
	zset := func(score, member string) []string { return []string{"ZADD", score, member} }
	text := func(value string) []string { return []string{"SET", value} }
	bad := map[limiter.Algorithm][][]string{
		limiter.SlidingLog: {
			zset("5", "x"), zset("1.5", "0000000000000001"), zset("-5", "0000000000000001"), zset("inf", "0000000000000001"),
			zset("9007199254740992", "0000000000000001"), zset("5", "9000000000000000"), zset("5", "00000000000000010"), zset("5", " 000000000000001"),
		},
		limiter.FixedWindow:          {text("1.5"), text("1000 1 1 1")},
		limiter.SlidingWindowCounter: {text("5"), text("1000 1 1"), text("0 1 1 1"), text("1000 9007199254741 1 1"), text("1000 1 1 1 ")},
		limiter.TokenBucket:          {text("5"), text("1000 1 1 1"), text("0 1 1"), text("1000 01 1"), text("1000 1 -1")},
		limiter.LeakyBucket:          {text("5"), text("1000 1 1 1"), text("0 1 1"), text("1000 01 1"), text("1000 1 1.0")},
	}
	wants := map[limiter.Algorithm]string{limiter.FixedWindow: "a whole number", limiter.SlidingLog: "what sliding_log writes"}
	for _, algorithm := range algorithms {
		limit, key := limiter.Limit{Algorithm: algorithm, Max: 5}, name+string(algorithm)
		full := limiter.DefaultPrefix + key
		require.NotEmpty(t, bad[algorithm])
		for _, spoil := range append(bad[algorithm], []string{"RPUSH", "x"}, []string{"HSET", "f", "v"}) {
			send(t, client, "DEL", full)
			send(t, client, append([]string{spoil[0], full}, spoil[1:]...)...)
			before, err := send(t, client, "DUMP", full).ToString()
			require.NoError(t, err)
			for _, op := range []string{"take", "upto", "peek", "refund"} {
				_, err := call(t, l, key, limit, op, 1)
				var corrupt *lua.CorruptError
				require.ErrorAs(t, err, &corrupt, "%s: %q", algorithm, spoil)
				assert.Equal(t, full, corrupt.Key)
				kind := "string"
				if algorithm == limiter.SlidingLog {
					kind = "zset"
				}
				switch {
				case spoil[0] == "RPUSH":
					assert.ErrorContains(t, err, "is a list; want a "+kind)
				case corrupt.Type == "" && wants[algorithm] != "":
					assert.ErrorContains(t, err, wants[algorithm])
				}
			}
			after, err := send(t, client, "DUMP", full).ToString()
			require.NoError(t, err)
			require.Equal(t, before, after)
			require.NoError(t, l.Reset(t.Context(), key))
			d, err := l.Peek(t.Context(), key, limit, limit.Capacity())
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
	}
}

// A denial writes nothing, but gives a key its TTL back.
func TestDenialsWriteOnlyRepairs(t *testing.T) {
	t.Parallel()
	l, clock, client := onVirtualClock(t)
	writes := func() string {
		s, err := send(t, client, "EVAL", "return redis.call('INFO', 'persistence'):match('rdb_changes_since_last_save:(%d+)')", "0").ToString()
		require.NoError(t, err)
		return s
	}
	for _, algorithm := range algorithms {
		limit, key := limiter.Limit{Algorithm: algorithm, Max: 2}, string(algorithm)
		clock.Set(start)
		d, err := l.TakeUpTo(t.Context(), key, limit, 2)
		require.NoError(t, err)
		ttl := func() int64 {
			n, err := send(t, client, "PTTL", limiter.DefaultPrefix+key).AsInt64()
			require.NoError(t, err)
			return n
		}
		require.Equal(t, d.ResetAfter.Milliseconds(), ttl(), algorithm)
		before := writes()
		for i := range int64(20) {
			clock.Set(start + i)
			for n := range int64(4) {
				_, err := l.Peek(t.Context(), key, limit, n)
				require.NoError(t, err)
				if n > 0 {
					d, err := l.Take(t.Context(), key, limit, n)
					require.NoError(t, err)
					require.False(t, d.Allowed)
				}
			}
		}
		require.Equal(t, before, writes(), algorithm)
		send(t, client, "PERSIST", limiter.DefaultPrefix+key)
		_, err = l.Peek(t.Context(), key, limit, 1)
		require.NoError(t, err)
		require.EqualValues(t, -1, ttl(), algorithm)
		d, err = l.Take(t.Context(), key, limit, 1)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Equal(t, d.ResetAfter.Milliseconds(), ttl(), algorithm)
	}
}

// No state grows: what is left in memory after any number of calls is one small key, and it goes when the bucket is whole.
func TestKeysGo(t *testing.T) {
	t.Parallel()
	l, clock, client := onVirtualClock(t)
	for _, algorithm := range algorithms {
		limit, key := limiter.Limit{Algorithm: algorithm, Max: 7}, string(algorithm)
		reset := time.Duration(0)
		now := start
		for i := range int64(200) {
			now += i % 90
			clock.Set(now)
			d, err := l.TakeUpTo(t.Context(), key, limit, 2)
			require.NoError(t, err)
			reset = d.ResetAfter
		}
		exists := func(at int64) string {
			clock.Set(at)
			n, err := send(t, client, "EXISTS", limiter.DefaultPrefix+key).AsInt64()
			require.NoError(t, err)
			return strconv.FormatInt(n, 10)
		}
		assert.Equal(t, "1 0", fmt.Sprint(exists(now+reset.Milliseconds()), " ", exists(now+reset.Milliseconds()+1)), algorithm)
	}
}

// The scripts run in the emulator too, whose Lua is another.
func TestEmulator(t *testing.T) {
	t.Parallel()
	e, err := emulator.Start()
	require.NoError(t, err)
	t.Cleanup(e.Stop)
	options, err := valkey.ParseURL(e.URL())
	require.NoError(t, err)
	client, err := valkey.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	l := newLimiter(t, client)
	var buckets []limiter.Bucket
	for _, algorithm := range algorithms {
		limit, key := limiter.Limit{Algorithm: algorithm, Max: 7, Window: 1001 * time.Hour}, "{k}"+string(algorithm)
		if algorithm == limiter.LeakyBucket {
			limit.Burst = 7
		}
		buckets = append(buckets, limiter.Bucket{Key: key, Limit: limit})
		for i, s := range []struct {
			op                 string
			n                  int64
			allowed            bool
			granted, remaining int64
		}{
			{"take", 5, true, 5, 2}, {"take", 3, false, 0, 2}, {"peek", 2, true, 0, 2}, {"upto", 9, true, 2, 0}, {"upto", 9, false, 0, 0},
			{"refund", 3, true, 0, 3}, {"take", 8, false, 0, 3}, {"take", 1, true, 1, 2},
		} {
			d, err := call(t, l, key, limit, s.op, s.n)
			require.NoError(t, err, "%s %d", algorithm, i)
			require.Equal(t, []any{s.allowed, s.granted, s.remaining}, []any{d.Allowed, d.Granted, d.Remaining}, "%s %d", algorithm, i)
			require.Equal(t, !s.allowed, d.RetryAfter != 0)
		}
		// Numbers too large for one product.
		limit.Window += time.Millisecond
		d, err := l.Peek(t.Context(), key, limit, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, d.Remaining, int64(2))
		_, err = l.Refund(t.Context(), key, limit, 7)
		require.NoError(t, err)
	}
	joint, err := l.TakeAll(t.Context(), buckets, 7)
	require.NoError(t, err)
	require.True(t, joint.Allowed)
	joint, err = l.TakeAllUpTo(t.Context(), buckets, 7)
	require.NoError(t, err)
	require.Len(t, joint.DeniedBy(), len(buckets))
}
