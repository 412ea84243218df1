//go:build linux

package valkeyd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

func startWithClock(t *testing.T) (*Server, *Clock, valkey.Client) {
	t.Helper()
	s, clock, err := StartWithClock(Options{})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s, clock, dial(t, s)
}

// serverMs is TIME in milliseconds.
func serverMs(t *testing.T, c valkey.Client) int64 {
	t.Helper()
	parts, err := do(t, c, "TIME").AsIntSlice()
	require.NoError(t, err)
	return parts[0]*1000 + parts[1]/1000
}

const pttlAndValue = `return {redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1])}`

func TestClockIsFollowedAtOnce(t *testing.T) {
	t.Parallel()
	s, clock, c := startWithClock(t)
	assert.InDelta(t, time.Now().UnixMilli(), serverMs(t, c), 5000, "the real clock until set")
	assert.InDelta(t, time.Now().UnixMilli(), clock.Ms(), 5000)

	const base = 1_000_000_000_000
	for i := range int64(500) { // forwards and backwards
		ms := base + i*(1-2*(i%2))*60_000 + i
		clock.Set(ms)
		require.Equal(t, ms, serverMs(t, c))
		require.Equal(t, ms, clock.Ms())
	}
	clock.Set(base)
	do(t, c, "SET", "k", "v", "PX", "10000")
	for left := int64(10_000); left > 0; left -= 100 {
		require.Equal(t, left, number(t, c, "PTTL", "k"))
		clock.Advance(100 * time.Millisecond)
	}

	clock.Set(base + 5)
	require.NoError(t, s.Restart())
	c = dial(t, s)
	assert.EqualValues(t, base+5, serverMs(t, c), "kept over a restart")
	clock.Set(0)
	assert.InDelta(t, time.Now().UnixMilli(), serverMs(t, c), 5000)
	clock.Advance(time.Hour)
	assert.InDelta(t, time.Now().Add(time.Hour).UnixMilli(), serverMs(t, c), 5000)
	s.Stop()
	clock.Set(base)
	assert.EqualValues(t, base, clock.Ms())
}

func TestClockReachesTheLastMillisecond(t *testing.T) {
	t.Parallel()
	_, clock, c := startWithClock(t)
	const base = 1_700_000_000_000
	clock.Set(base)
	do(t, c, "SET", "k", "v", "PX", "1000")
	read := func() (int64, string) {
		t.Helper()
		r, err := do(t, c, "EVAL", pttlAndValue, "1", "k").ToArray()
		require.NoError(t, err)
		ttl, err := r[0].AsInt64()
		require.NoError(t, err)
		value, _ := r[1].ToString()
		return ttl, value
	}
	for _, want := range []struct {
		at, ttl int64
		value   string
	}{{999, 1, "v"}, {1000, 0, "v"}, {-3_600_000, 3_601_000, "v"}, {1000, 0, "v"}, {1001, -2, ""}} {
		clock.Set(base + want.at)
		// Longer than a pass of the server's own expiry, which runs ten times a second.
		for until := time.Now().Add(150 * time.Millisecond); time.Now().Before(until); {
			ttl, value := read()
			require.Equal(t, want.ttl, ttl, "at %d", want.at)
			require.Equal(t, want.value, value, "at %d", want.at)
		}
	}
}

func TestClockLeavesMonotonicTimersAlone(t *testing.T) {
	t.Parallel()
	_, clock, c := startWithClock(t)
	// The server's cron, driven by a monotonic timer, keeps this value: the seconds in 24 bits.
	lruClock := func() int64 {
		return number(t, c, "EVAL", `return tonumber(redis.call('INFO', 'server'):match('lru_clock:(%d+)'))`, "0")
	}
	for _, ms := range []int64{1_700_000_000_000, 1_700_000_060_000} {
		clock.Set(ms)
		require.Eventually(t, func() bool { return lruClock() == ms/1000&(1<<24-1) }, time.Minute, 10*time.Millisecond)
	}
}

func TestClockNeedsACompilerOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path := t.TempDir()
	server, err := Find()
	require.NoError(t, err)
	t.Setenv("EMQ_TEST_VALKEY_SERVER", server)
	t.Run("missing", func(t *testing.T) {
		t.Setenv("PATH", path)
		_, _, err := StartWithClock(Options{})
		require.ErrorContains(t, err, "needs a C compiler")
	})
	first, err := clockLibrary()
	require.NoError(t, err)
	t.Run("not needed again", func(t *testing.T) {
		t.Setenv("PATH", path)
		again, err := clockLibrary()
		require.NoError(t, err)
		assert.Equal(t, first, again)
	})
}
