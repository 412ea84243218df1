package metrics_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/metrics"
)

const ms = time.Millisecond

func TestBudget(t *testing.T) {
	t.Parallel()
	client, clock := onVirtualClock(t)
	const now = 1_800_000_000_000
	type budget = metrics.Budget
	for name, c := range map[string]struct {
		meta    string // fields of meta
		counter string // arguments of SET; "" leaves it out
		later   int64  // ms between that and the read
		want    budget
		ttl     time.Duration // RateLimitTTL with max 0
	}{
		"nothing set up":               {"", "", 0, budget{Remaining: -1}, 0},
		"not limited":                  {"max 0 duration 500", "7 PX 300", 0, budget{Remaining: -1}, 0},
		"limit lifted, counter spoilt": {"duration 500", "abc", 0, budget{Remaining: -1}, 0},
		"paused":                       {"paused 1", "", 0, budget{Remaining: -1, Paused: true}, 0},
		"no window runs": {"max 5 duration 500", "", 0,
			budget{Configured: true, Max: 5, Remaining: 5, Window: 500 * ms}, 0},
		"window of one second by default": {"max 5", "", 0,
			budget{Configured: true, Max: 5, Remaining: 5, Window: time.Second}, 0},
		"some used": {"max 5 duration 500", "2 PX 500", 100,
			budget{Configured: true, Max: 5, Used: 2, Remaining: 3, Window: 500 * ms, ResetAfter: 400 * ms}, 0},
		"all used": {"max 5 duration 500", "5 PX 500", 100, budget{Configured: true, Max: 5, Used: 5, Window: 500 * ms,
			ResetAfter: 400 * ms, RetryAfter: 400 * ms, Limited: true}, 400 * ms},
		"all used and paused": {"max 5 duration 500 paused 1", "5 PX 500", 100, budget{Configured: true, Max: 5, Used: 5,
			Window: 500 * ms, ResetAfter: 400 * ms, RetryAfter: 400 * ms, Limited: true, Paused: true}, 400 * ms},
		"one ms left": {"max 5 duration 500", "5 PX 500", 499, budget{Configured: true, Max: 5, Used: 5, Window: 500 * ms,
			ResetAfter: ms, RetryAfter: ms, Limited: true}, ms},
		"PTTL 0: the key is there, its window is over": {"max 5 duration 500", "5 PX 500", 500,
			budget{Configured: true, Max: 5, Remaining: 5, Window: 500 * ms}, 0},
		"max lowered below the counter": {"max 2 duration 500", "5 PX 500", 0, budget{Configured: true, Max: 2, Used: 5,
			Window: 500 * ms, ResetAfter: 500 * ms, RetryAfter: 500 * ms, Limited: true}, 500 * ms},
		"counter without TTL": {"max 5 duration 500", "5", 0, budget{Configured: true, Max: 5, Used: 5, Window: 500 * ms,
			ResetAfter: 500 * ms, RetryAfter: 500 * ms, Limited: true}, 500 * ms},
		"clock stepped back": {"max 5 duration 500", "5 PX 500", -10_000, budget{Configured: true, Max: 5, Used: 5,
			Window: 500 * ms, ResetAfter: 500 * ms, RetryAfter: 500 * ms, Limited: true}, 500 * ms},
		"negative counter": {"max 5 duration 500", "-3 PX 300", 0,
			budget{Configured: true, Max: 5, Remaining: 5, Window: 500 * ms}, 0},
		"stopped by another runtime": {"max 5 duration 500", "9007199254740991 PX 60000", 0, budget{Configured: true, Max: 5,
			Used: limiter.Most, Window: 500 * ms, ResetAfter: time.Minute, RetryAfter: time.Minute, Limited: true}, time.Minute},
		"largest max": {"max 9007199254740991 duration 500", "9007199254740990 PX 500", 0, budget{Configured: true,
			Max: limiter.Most, Used: limiter.Most - 1, Remaining: 1, Window: 500 * ms, ResetAfter: 500 * ms}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			clock.Set(now)
			q := newQueue(t, client)
			if c.meta != "" {
				q.do(append([]string{"HSET", q.Meta()}, strings.Fields(c.meta)...)...)
			}
			if c.counter != "" {
				q.do(append([]string{"SET", q.Limiter()}, strings.Fields(c.counter)...)...)
			}
			clock.Set(now + c.later)
			c.want.At = time.UnixMilli(now + c.later)
			if c.want.Configured {
				c.want.Algorithm = limiter.FixedWindow
			}

			got, err := metrics.ReadBudget(t.Context(), client, q.name)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			ttl, err := metrics.RateLimitTTL(t.Context(), client, q.name, 0)
			require.NoError(t, err)
			assert.Equal(t, c.ttl, ttl)
			max, err := metrics.GlobalRateLimit(t.Context(), client, q.name)
			require.NoError(t, err)
			assert.Equal(t, c.want.Max, max)
		})
	}
}

func TestRateLimitTTLOfAGivenMax(t *testing.T) {
	t.Parallel()
	client, clock := onVirtualClock(t)
	clock.Set(1_800_000_000_000)
	q := newQueue(t, client)
	q.do("HSET", q.Meta(), "max", "5")
	q.do("SET", q.Limiter(), "3", "PX", "700")
	for max, want := range map[int64]time.Duration{0: 0, 1: 700 * ms, 3: 700 * ms, 4: 0, limiter.Most: 0} {
		ttl, err := metrics.RateLimitTTL(t.Context(), client, q.name, max)
		require.NoError(t, err)
		assert.Equal(t, want, ttl, max)
	}
	q.do("HDEL", q.Meta(), "max")
	ttl, err := metrics.RateLimitTTL(t.Context(), client, q.name, 3)
	require.NoError(t, err)
	assert.Equal(t, 700*ms, ttl, "a given max needs no cap in meta")
	for _, max := range []int64{-1, limiter.Most + 1} {
		_, err := metrics.RateLimitTTL(t.Context(), client, q.name, max)
		require.ErrorIs(t, err, limiter.ErrBadLimit)
	}
}

func TestAgreesWithPlainReads(t *testing.T) {
	t.Parallel()
	client := emqtest.Client(t)
	q := newQueue(t, client)
	q.do("HSET", q.Meta(), "max", "3", "duration", "60000")
	for i := range int64(5) {
		q.do("INCR", q.Limiter())
		if i == 0 {
			q.do("PEXPIRE", q.Limiter(), "60000")
		}
		used, err := q.do("GET", q.Limiter()).AsInt64()
		require.NoError(t, err)
		before, err := q.do("PTTL", q.Limiter()).AsInt64()
		require.NoError(t, err)
		b, err := metrics.ReadBudget(t.Context(), client, q.name)
		require.NoError(t, err)
		after, err := q.do("PTTL", q.Limiter()).AsInt64()
		require.NoError(t, err)
		assert.Equal(t, used, b.Used)
		assert.Equal(t, max(0, 3-used), b.Remaining)
		assert.Equal(t, used >= 3, b.Limited)
		assert.LessOrEqual(t, b.ResetAfter.Milliseconds(), before)
		assert.GreaterOrEqual(t, b.ResetAfter.Milliseconds(), after)
	}
}

// limitReads are the reads of a limit; each must fail alike.
var limitReads = map[string]func(*testing.T, valkey.Client, string) error{
	"ReadBudget": func(t *testing.T, c valkey.Client, queue string) error {
		b, err := metrics.ReadBudget(t.Context(), c, queue)
		assert.Zero(t, b)
		return err
	},
	"RateLimitTTL": func(t *testing.T, c valkey.Client, queue string) error {
		ttl, err := metrics.RateLimitTTL(t.Context(), c, queue, 0)
		assert.Zero(t, ttl)
		return err
	},
	"GlobalRateLimit": func(t *testing.T, c valkey.Client, queue string) error {
		max, err := metrics.GlobalRateLimit(t.Context(), c, queue)
		assert.Zero(t, max)
		return err
	},
}

func TestBrokenConfiguration(t *testing.T) {
	t.Parallel()
	client := emqtest.Client(t)
	numbers := []string{"abc", "-5", "1.5", "nan", "inf", "0x5", "05", " 5 ", "", "1e3", "+5", "9007199254740992", "12345678901234567890"}
	for field, values := range map[string][]string{
		"max": numbers, "duration": append(numbers, "0"), "algorithm": {"magic"}, "burst": numbers, "layout": {"2"},
	} {
		for _, value := range values {
			q := newQueue(t, client)
			q.do("HSET", q.Meta(), "max", "5", field, value)
			for name, read := range limitReads {
				err := read(t, client, q.name)
				var config *lua.ConfigError
				require.ErrorAs(t, err, &config, "%s of %s %q", name, field, value)
				assert.Equal(t, lua.ConfigError{Key: q.Meta(), Field: field, Value: value}, *config)
			}
		}
	}
}

func TestSpoiltCounter(t *testing.T) {
	t.Parallel()
	client := emqtest.Client(t)
	for _, value := range []string{"abc", "", "-0", "05", " 5 ", "2.5", "1e3", "nan", "0x5", "9007199254740992", "-9007199254740992",
		"12345678901234567890"} {
		q := newQueue(t, client)
		q.do("HSET", q.Meta(), "max", "5")
		q.do("SET", q.Limiter(), value, "PX", "60000")
		for name, read := range limitReads {
			var corrupt *lua.CorruptError
			require.ErrorAs(t, read(t, client, q.name), &corrupt, "%s of %q", name, value)
			assert.Equal(t, lua.CorruptError{Key: q.Limiter(), Value: value}, *corrupt)
		}
	}
	q := newQueue(t, client)
	q.do("HSET", q.Meta(), "max", "5")
	q.do("RPUSH", q.Limiter(), "x")
	for name, read := range limitReads {
		var corrupt *lua.CorruptError
		require.ErrorAs(t, read(t, client, q.name), &corrupt, name)
		assert.Equal(t, lua.CorruptError{Key: q.Limiter(), Type: "list", Want: "string"}, *corrupt)
	}
}

func TestBadQueueName(t *testing.T) {
	t.Parallel()
	client := emqtest.Client(t)
	for _, name := range []string{"", "a:b", "{a}", strings.Repeat("q", 129)} {
		for _, read := range limitReads {
			require.ErrorIs(t, read(t, client, name), lua.ErrBadName)
		}
		_, err := metrics.ReadCounts(t.Context(), client, name)
		require.ErrorIs(t, err, lua.ErrBadName)
	}
}

// readAll reads all there is of a queue; what it says does not matter.
func readAll(t *testing.T, client valkey.Client, queue string) (errs []error) {
	for _, max := range []int64{0, 1} {
		_, err := metrics.RateLimitTTL(t.Context(), client, queue, max)
		errs = append(errs, err)
	}
	_, budget := metrics.ReadBudget(t.Context(), client, queue)
	_, global := metrics.GlobalRateLimit(t.Context(), client, queue)
	_, counts := metrics.ReadCounts(t.Context(), client, queue)
	return append(errs, budget, global, counts)
}

func TestReadsChangeNothing(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{}) // nobody else writes
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client := dial(t, server.Options())
	for i, counter := range []string{"", "2 PX 600000", "5", "9 PX 99000000", "-3 PX 600000", "abc", "9007199254740991 PX 99000000"} {
		for _, meta := range []string{"", "max 5 duration 600000", "max 0", "max abc", "paused 1"} {
			q := newQueue(t, client)
			if counter != "" {
				q.do(append([]string{"SET", q.Limiter()}, strings.Fields(counter)...)...)
			}
			if meta != "" {
				q.do(append([]string{"HSET", q.Meta()}, strings.Fields(meta)...)...)
			}
			q.do("RPUSH", q.Prefix()+"wait:"+strconv.Itoa(1+i%4), "id")
			state := func() string {
				text, err := q.do("DEBUG", "DIGEST").ToString()
				require.NoError(t, err)
				end, err := q.do("PEXPIRETIME", q.Limiter()).AsInt64()
				require.NoError(t, err)
				return text + " " + strconv.FormatInt(end, 10)
			}
			before := state()
			readAll(t, client, q.name)
			require.Equal(t, before, state(), "counter %q, meta %q", counter, meta)
		}
	}
}

func TestReaderWithoutWritePermission(t *testing.T) {
	t.Parallel()
	admin := emqtest.Client(t)
	q := newQueue(t, admin)
	q.do("HSET", q.Meta(), "max", "2", "duration", "60000")
	q.do("SET", q.Limiter(), "2", "PX", "60000")
	user := "reader-" + q.name
	q.do("ACL", "SETUSER", user, "on", ">secret", "%R~emq:*", "-@all", "+@connection", "+evalsha_ro", "+eval_ro", "+@read", "+time")
	t.Cleanup(func() { admin.Do(context.Background(), admin.B().AclDeluser().Username(user).Build()) })

	options := valkey.MustParseURL(emqtest.URL(t))
	options.Username, options.Password = user, "secret"
	reader := dial(t, options)
	require.Error(t, reader.Do(t.Context(), reader.B().Del().Key(q.Limiter()).Build()).Error())
	for _, err := range readAll(t, reader, q.name) {
		require.NoError(t, err)
	}
	ttl, err := metrics.RateLimitTTL(t.Context(), reader, q.name, 0)
	require.NoError(t, err)
	assert.Positive(t, ttl)
	q.do("DEL", q.Limiter())
	q.do("RPUSH", q.Limiter(), "x")
	var corrupt *lua.CorruptError
	_, err = metrics.ReadBudget(t.Context(), reader, q.name)
	require.ErrorAs(t, err, &corrupt)
}
