package lua_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

const most = "9007199254740991"

// limited gives the queue a limit of max in a second and three jobs that wait.
func (q *queue) limited(max string) {
	q.Helper()
	q.do("HSET", ":meta", "max", max, "duration", "1000")
	q.wait("a", "b", "c")
}

// contents is everything that the queue holds, by key: value and time to live.
func (q *queue) contents() map[string]string {
	q.Helper()
	held := map[string]string{}
	for _, key := range q.list("KEYS " + q.keys.Prefix() + "*") {
		held[key] = q.text("DUMP "+key) + " ttl " + q.text("PTTL "+key)
	}
	return held
}

// What one claim of ten finds with three jobs waiting and a window of a second.
func TestF70F71F72CounterAndCap(t *testing.T) {
	t.Parallel()
	shared := clocked(t) // its clock stands still
	for name, c := range map[string]struct {
		max     string
		counter []string // the limiter's value and the options of its SET
		grants  int
		value   string        // of the counter afterwards
		ttl     int64         // of the counter afterwards, ms
		retry   time.Duration // -1: nothing is refused
	}{
		"no limit":                          {"0", nil, 3, "", -2, -1},
		"no limit, counter of another time": {"0", []string{"foo"}, 3, "foo", -1, -1},
		"room for all":                      {"3", nil, 3, "3", 1000, -1},
		"room for two":                      {"2", nil, 2, "2", 1000, time.Second},
		"running window":                    {"3", []string{"1", "PX", "400"}, 2, "3", 400, 400 * time.Millisecond},
		"at the cap":                        {"3", []string{"3", "PX", "400"}, 0, "3", 400, 400 * time.Millisecond},
		"at the cap without TTL":            {"3", []string{"3"}, 0, "3", 1000, time.Second},
		"below the cap without TTL":         {"3", []string{"2"}, 1, "3", 1000, time.Second},
		"zero":                              {"3", []string{"0", "PX", "400"}, 3, "3", 400, -1},
		"max lowered below the count":       {"1", []string{"3", "PX", "400"}, 0, "3", 400, 400 * time.Millisecond},
		"max raised":                        {"5", []string{"3", "PX", "400"}, 2, "5", 400, 400 * time.Millisecond},
		"TTL longer than the window":        {"3", []string{"2", "PX", "99000"}, 1, "3", 1000, time.Second},
		"TTL longer, at the cap":            {"3", []string{"3", "PX", "99000"}, 0, "3", 1000, time.Second},
		"negative":                          {"2", []string{"-5", "PX", "400"}, 2, "2", 400, 400 * time.Millisecond},
		"negative without TTL":              {"2", []string{"-5"}, 2, "2", 1000, time.Second},
		"most negative":                     {"4", []string{"-" + most, "PX", "400"}, 3, "3", 400, -1},
		"manual stop":                       {"3", []string{most, "PX", "99000"}, 0, most, 99000, 99 * time.Second},
		"manual stop within the window":     {"3", []string{most, "PX", "400"}, 0, most, 400, 400 * time.Millisecond},
		"manual stop without TTL":           {"3", []string{most}, 0, most, 1000, time.Second},
		"the largest max":                   {most, []string{"9007199254740990", "PX", "400"}, 1, most, 400, 400 * time.Millisecond},
		"the largest max, new window":       {most, nil, 3, "3", 1000, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := shared.another(t)
			q.limited(c.max)
			if c.counter != nil {
				q.do(append([]string{"SET", ":limiter"}, c.counter...)...)
			}
			got := q.claim(10)
			assert.Len(t, got.IDs, c.grants)
			assert.Equal(t, c.value, q.text("GET :limiter"))
			assert.Equal(t, c.ttl, q.number("PTTL :limiter"))
			if c.retry < 0 {
				assert.Empty(t, sentBack(got))
				assert.Zero(t, got.Retry)
				return
			}
			assert.Equal(t, c.retry, got.Retry)
			assert.LessOrEqual(t, got.Next, c.retry)
			require.Less(t, c.grants, 3)
			refused := []string{"a", "b", "c"}[c.grants]
			assert.Equal(t, refused, sentBack(got))
			f, record := q.found(refused)
			assert.Equal(t, "delayed", f.State)
			assert.Equal(t, "limit", f.By)
			assert.Equal(t, got.Now.Add(c.retry), f.At)
			assert.Equal(t, 1, record.Deferrals)
			assert.Zero(t, record.Attempts)
			word := "claimed"
			if c.grants == 0 {
				word = "limited"
			}
			assert.Equal(t, word, got.Word)
		})
	}
}

func TestF72GarbageCounterStopsTheClaim(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for _, value := range []string{
		"foo", "", "05", "00", " 5", "5 ", "5\n", "2.5", "1e1", "0x5", "+5", "-0", "-05", "--5", "-", "nan", "inf", "1e400",
		"9007199254740992", "-9007199254740992", "99999999999999999999", "5\x00",
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			q := shared.another(t)
			q.limited("3")
			q.do("SET", ":limiter", value, "PX", "400")
			before := q.contents()
			_, err := q.tryClaim(10)
			var corrupt *lua.CorruptError
			require.ErrorAs(t, err, &corrupt)
			assert.Equal(t, lua.CorruptError{Key: q.keys.Limiter(), Value: value}, *corrupt)
			assert.ErrorContains(t, err, q.keys.Limiter())
			assert.Equal(t, before, q.contents())
			for _, read := range []error{
				second(lua.Look(t.Context(), q.client, q.keys, "", lua.Busy, false, 0)),
				second(lua.ReadBudget(t.Context(), q.client, q.keys, "")),
			} {
				assert.ErrorAs(t, read, &corrupt)
			}

			q.wait("d") // jobs still go in
			_, err = lua.Take(t.Context(), q.client, "reset", fixedWindow(q.keys.Limiter(), 3), 0)
			require.NoError(t, err)
			assert.Len(t, q.claim(10).IDs, 3, "a reset heals it")
		})
	}
}

func TestLimiterOfAnotherTypeStopsTheClaim(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	for kind, write := range writers {
		if kind == "string" {
			continue
		}
		q := shared.another(t)
		q.limited("3")
		q.do(append([]string{write[0], ":limiter"}, write[1:]...)...)
		before := q.contents()
		_, err := q.tryClaim(10)
		var corrupt *lua.CorruptError
		require.ErrorAs(t, err, &corrupt, kind)
		assert.Equal(t, lua.CorruptError{Key: q.keys.Limiter(), Type: kind, Want: "string"}, *corrupt)
		assert.EqualError(t, err, fmt.Sprintf("emq: key %s is a %s; want a string", q.keys.Limiter(), kind))
		assert.Equal(t, before, q.contents())
	}
}

func TestF73F74MisconfiguredQueueRefuses(t *testing.T) {
	t.Parallel()
	shared := clocked(t)
	notWhole := []string{
		"abc", "", "-5", "-0", "5.5", "5.0", "1e1", "1e400", "nan", "inf", "-inf", "0x5", " 5 ", "5 ", "05", "00", "+5", "5\n",
		"99999999999999999999", "9007199254740992", "5\x00",
	}
	for field, bad := range map[string][]string{
		"max":       notWhole,
		"duration":  append([]string{"0"}, notWhole...),
		"algorithm": {"", "abc", "Fixed_window", "fixed_window "},
		"layout":    {"", "0", "2", "01", "1 ", "abc"},
		"audit":     notWhole,
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			for _, value := range bad {
				q := shared.another(t)
				q.limited("3")
				q.do("HSET", ":meta", field, value)
				before := q.contents()
				_, err := q.tryClaim(10)
				var config *lua.ConfigError
				require.ErrorAs(t, err, &config, "%q", value)
				assert.Equal(t, lua.ConfigError{Key: q.keys.Meta(), Field: field, Value: value}, *config)
				assert.ErrorContains(t, err, q.keys.Meta()+" field "+field+" is "+strconv.QuoteToASCII(value)+"; want ")
				assert.Equal(t, before, q.contents())
				assert.ErrorAs(t, second(lua.Look(t.Context(), q.client, q.keys, "", lua.Busy, false, 0)), &config)
				assert.ErrorAs(t, second(lua.ReadBudget(t.Context(), q.client, q.keys, "")), &config)

				_, err = lua.Enqueue(t.Context(), q.client, q.keys, []lua.NewJob{job("d")})
				if field == "layout" {
					assert.ErrorAs(t, err, &config, "another layout")
				} else {
					assert.NoError(t, err, "a misconfigured limit closes the claim, not the enqueue")
				}
				q.do("HDEL", ":meta", field)
				assert.NotEmpty(t, q.claim(10).IDs)
			}
		})
	}
}

func TestF75SettingsThatAreLeftOut(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a", "b")
	q.do("HSET", ":meta", "max", "1", "version", "bullmq:5.0.0", "unknown", "x")
	q.do("HDEL", ":meta", "layout")
	got := q.claim(10)
	assert.Equal(t, []string{"a"}, got.IDs)
	assert.Equal(t, time.Second, got.Retry, "the window is a second")
	q.do("HSET", ":meta", "duration", "1")
	q.claim(10) // the shortest window
	q.do("HSET", ":meta", "max", "0")
	assert.Equal(t, []string{"b"}, q.claim(10).IDs, "0 is no limit; what the limit sent back comes at once")
}

func TestLastMillisecondOfAWindow(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.do("HSET", ":meta", "max", "2", "duration", "1000")
	q.wait(ids(6)...)
	require.Len(t, q.claim(2).IDs, 2)
	q.clock.Advance(999 * time.Millisecond)
	got := q.claim(10)
	require.Equal(t, "limited", got.Word)
	require.Equal(t, time.Millisecond, got.Retry)
	q.clock.Advance(time.Millisecond)
	require.Equal(t, "2", q.text("GET :limiter"), "still there")
	require.EqualValues(t, 0, q.number("PTTL :limiter"))
	got = q.claim(10)
	require.Equal(t, []string{"j2", "j3"}, got.IDs, "a new window, and the job that was sent back comes first")
	require.Equal(t, "2", q.text("GET :limiter"))
	require.EqualValues(t, 1000, q.number("PTTL :limiter"))
	require.Equal(t, time.Second, got.Retry)
}

func TestF80NothingIsSpentForNothing(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.do("HSET", ":meta", "max", "2")
	got := q.claim(10)
	assert.Equal(t, "empty", got.Word)
	assert.EqualValues(t, -1, got.Next)
	assert.Empty(t, got.Token)
	assert.EqualValues(t, 0, q.number("EXISTS :limiter"))
	q.wait("a")
	assert.Empty(t, q.claim(0).IDs)
	q.do("HSET", ":meta", "paused", "1")
	assert.Equal(t, "paused", q.claim(10).Word)
	assert.EqualValues(t, 0, q.number("EXISTS :limiter"))
	q.do("HSET", ":meta", "paused", "0")
	q.do("SET", ":limiter", "1", "PX", "400")
	assert.Len(t, q.claim(10).IDs, 1)
	assert.Equal(t, "2", q.text("GET :limiter"))
}

func TestF77WindowShortenedAndLengthened(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(q *queue, ms string){
		"by a plain command": func(q *queue, ms string) { q.do("HSET", ":meta", "duration", ms) },
		"by the script": func(q *queue, ms string) {
			_, _, err := setLimitTexts(q.ctx(), q.client, q.keys, 2, ms, "test")
			require.NoError(q, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := clocked(t)
			q.do("HSET", ":meta", "max", "2", "duration", "60000")
			q.wait(ids(9)...)
			require.Len(t, q.claim(2).IDs, 2)
			q.clock.Advance(10 * time.Second)

			set(q, "300000") // longer: the running window ends when it would
			require.Equal(t, 50*time.Second, q.claim(9).Retry)
			require.EqualValues(t, 50_000, q.number("PTTL :limiter"))

			set(q, "5000") // shorter: it ends no later than the new window from now
			require.Equal(t, 5*time.Second, q.claim(9).Retry)
			require.EqualValues(t, 5000, q.number("PTTL :limiter"))
			q.clock.Advance(2 * time.Second)
			require.Equal(t, 3*time.Second, q.claim(9).Retry)

			set(q, "4000") // shorter than it was, longer than what is left
			require.Equal(t, 3*time.Second, q.claim(9).Retry)
			q.clock.Advance(3 * time.Second)
			require.Len(t, q.claim(9).IDs, 2)
			require.EqualValues(t, 4000, q.number("PTTL :limiter"))
		})
	}
}

func TestManualStopSurvivesAShorterWindow(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limited("2")
	q.do("SET", ":limiter", most, "PX", "99000")
	_, _, err := setLimitTexts(t.Context(), q.client, q.keys, 2, "500", "")
	require.NoError(t, err)
	assert.EqualValues(t, 99_000, q.number("PTTL :limiter"))
	q.do("DEL", ":limiter")
	q.do("LPUSH", ":limiter", "x")
	_, _, err = setLimitTexts(t.Context(), q.client, q.keys, 2, "500", "")
	assert.NoError(t, err, "the counter's type is the claim's matter")
}

func TestF76RaisedLimitWakesAndGrants(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limited("1")
	require.Equal(t, "b", sentBack(q.claim(3)))
	q.do("DEL", ":wake")
	_, _, err := setLimitTexts(t.Context(), q.client, q.keys, 2, "", "")
	require.NoError(t, err)
	assert.EqualValues(t, 1, q.number("LLEN :wake"))
	got := q.claim(3)
	assert.Equal(t, []string{"b"}, got.IDs)
	assert.Equal(t, "c", sentBack(got))
	b, err := lua.ReadBudget(t.Context(), q.client, q.keys, "")
	require.NoError(t, err)
	assert.Equal(t, lua.Budget{
		Now: time.UnixMilli(start), Algorithm: "fixed_window", Max: 2, Window: time.Second, Used: 2, Retry: time.Second, Reset: time.Second,
	}, b)
	q.do("HSET", ":meta", "max", "1")
	b, err = lua.ReadBudget(t.Context(), q.client, q.keys, "")
	require.NoError(t, err)
	assert.EqualValues(t, 2, b.Used, "more than the lowered max")
	assert.Empty(t, q.claim(3).IDs)
}

func TestF43LargestNumbersAreExact(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	const max = 1<<53 - 1
	take := func(op string, n int64) lua.Taken {
		t.Helper()
		got, err := lua.Take(t.Context(), q.client, op, fixedWindow(q.key("limiter:x"), max), n)
		require.NoError(t, err)
		return got
	}
	got := take("take", max)
	assert.Equal(t, lua.Taken{Now: time.UnixMilli(start), Allowed: true, Granted: max, Reset: time.Second}, got)
	assert.Equal(t, most, q.text("GET :limiter:x"))
	assert.False(t, take("take", 1).Allowed)
	got = take("refund", 1)
	assert.EqualValues(t, 1, got.Remaining)
	assert.Equal(t, "9007199254740990", q.text("GET :limiter:x"))
	assert.False(t, take("take", 2).Allowed)
	assert.True(t, take("take", 1).Allowed)
	assert.Equal(t, most, q.text("GET :limiter:x"))
	take("refund", max-1)
	assert.Equal(t, "1", q.text("GET :limiter:x"))
	assert.EqualValues(t, max-1, take("upto", max).Granted)

	_, _, err := setLimitTexts(t.Context(), q.client, q.keys, max, strconv.Itoa(max), "")
	require.NoError(t, err)
	q.wait("a")
	assert.Len(t, q.claim(1).IDs, 1)
	assert.EqualValues(t, max, q.number("PTTL :limiter"), "a window of 285,616 years")
}

// A clock that steps back locks nothing for longer than its own length; delays that users asked for stay.
func TestF78ClockStepsBack(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.do("HSET", ":meta", "max", "2", "duration", "5000")
	q.wait("a", "b", "c", "d")
	q.enqueue(delayed("later", 2*time.Hour))
	got := q.claim(10)
	require.Equal(t, []string{"a", "b"}, got.IDs)
	require.Equal(t, "c", sentBack(got))
	due := q.text("ZSCORE :delayed later")

	q.clock.Advance(-time.Hour)
	got = q.claim(10)
	require.Equal(t, "limited", got.Word)
	require.Equal(t, 5*time.Second, got.Retry)
	require.LessOrEqual(t, got.Next, 5*time.Second)
	require.EqualValues(t, 5000, q.number("PTTL :limiter"))
	require.EqualValues(t, q.now()+5000, q.number("ZSCORE :delayed c"))
	require.Equal(t, due, q.text("ZSCORE :delayed later"))
	for _, id := range []string{"a", "b"} {
		f, _ := q.found(id)
		require.Equal(t, got.Now.Add(lease), f.At)
	}

	q.clock.Advance(5 * time.Second)
	require.Equal(t, []string{"c", "d"}, q.claim(10).IDs)
	q.clock.Advance(lease - 5*time.Second)
	got = q.claim(10)
	require.Equal(t, 2, got.Reclaimed)
	require.Equal(t, []string{"a", "b"}, got.IDs)
	require.Equal(t, "delayed", q.state("later"))
	q.clock.Set(start + (2 * time.Hour).Milliseconds())
	q.claim(0)
	require.Equal(t, "wait", q.state("later"))
}

// What lies no further ahead than its own length stays.
func TestClockStepsBackALittle(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.do("HSET", ":meta", "max", "1", "duration", "5000")
	q.wait("a", "b")
	q.do("SET", ":limiter", "1", "PX", "1000")
	require.Equal(t, "a", sentBack(q.claim(1)))
	q.clock.Advance(-2 * time.Second)
	q.claim(1)
	require.EqualValues(t, start+1000, q.number("ZSCORE :delayed a"))
}

// A claim that cuts what lies too far ahead says when to come back for it.
func TestClockStepsBackWithNothingToGrant(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a")
	q.claim(1)
	q.clock.Advance(-time.Hour)
	got := q.claim(1)
	assert.Equal(t, "empty", got.Word)
	assert.Equal(t, lease, got.Next)
	q.clock.Advance(lease)
	assert.Equal(t, 1, q.claim(1).Reclaimed)
}

func TestManyLeasesAreCutInSteps(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	const n = 400
	q.wait(ids(n)...)
	require.Len(t, q.claim(n).IDs, n)
	q.clock.Advance(-time.Hour)
	for calls := 0; q.claim(0).More; calls++ {
		require.Less(t, calls, n/128+1)
	}
	ends := fmt.Sprintf("(%d", q.now()+lease.Milliseconds())
	assert.EqualValues(t, 0, q.number("ZCOUNT :active "+ends+" +inf"))
}

// Less than a second is no step: servers' clocks are slewed.
func TestSmallStepBackCutsNoLease(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.wait("a")
	q.claim(1)
	q.clock.Advance(-time.Second)
	q.claim(1)
	f, _ := q.found("a")
	assert.Equal(t, time.UnixMilli(start).Add(lease), f.At)
}

func TestF78ClockStepsForward(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.do("HSET", ":meta", "max", "2", "duration", "5000")
	q.wait("a", "b", "c")
	q.enqueue(delayed("later", time.Hour))
	q.claim(10)
	q.clock.Advance(time.Hour)
	got := q.claim(10)
	assert.Equal(t, 2, got.Reclaimed)
	assert.Equal(t, []string{"a", "b"}, got.IDs)
	assert.Equal(t, "c", sentBack(got))
	assert.Equal(t, "wait", q.state("later"))
}

func TestLongValuesAreCutInErrors(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.wait("a")
	q.do("HSET", ":meta", "max", strings.Repeat("9", 1000)+"\x1b[31m")
	_, err := q.tryClaim(1)
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 300)
	q.do("HSET", ":meta", "max", "\x1b[31m")
	_, err = q.tryClaim(1)
	assert.ErrorContains(t, err, `"\x1b[31m"`)
}
