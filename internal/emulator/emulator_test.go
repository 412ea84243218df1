package emulator

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (*Emulator, valkey.Client) {
	t.Helper()
	e, err := Start()
	require.NoError(t, err)
	t.Cleanup(e.Stop)
	return e, dial(t, e)
}

func dial(t *testing.T, e *Emulator) valkey.Client {
	t.Helper()
	c, err := valkey.NewClient(valkey.MustParseURL(e.URL()))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func do(t *testing.T, c valkey.Client, args ...string) valkey.ValkeyResult {
	t.Helper()
	return c.Do(t.Context(), c.B().Arbitrary(args...).Build())
}

func TestScriptsAnswerAsOnAServer(t *testing.T) {
	_, c := start(t)
	assert.Equal(t, valkey.ClientModeStandalone, c.Mode())
	for _, flags := range []string{"#!lua", "#!lua flags=allow-oom"} {
		for body, want := range map[string]any{
			`return {1, 'two', false, 3.9, true}`:            []any{int64(1), "two", nil, int64(3), int64(1)},
			`return nil`:                                     nil,
			`return false`:                                   nil,
			`return 'a\0b'`:                                  "a\x00b",
			`return {ok = 'FINE'}`:                           "FINE",
			`return {KEYS[1], ARGV[1], ARGV[2]}`:             []any{"k", "9007199254740991", ""},
			`return server.call('INCR', KEYS[1] .. ARGV[2])`: int64(1),
		} {
			do(t, c, "DEL", "k")
			script := valkey.NewLuaScript(flags + "\n" + body)
			for range 2 { // by EVAL, then by EVALSHA
				do(t, c, "DEL", "k")
				got, err := script.Exec(t.Context(), c, []string{"k"}, []string{"9007199254740991", ""}).ToAny()
				if err != nil {
					require.True(t, valkey.IsValkeyNil(err), "%s: %v", body, err)
				}
				assert.Equal(t, want, got, body)
			}
		}
	}
}

func TestReadOnlyScriptsReadTheClock(t *testing.T) {
	_, c := start(t)
	script := valkey.NewLuaScriptReadOnly("#!lua flags=no-writes\nreturn redis.call('TIME')")
	for range 2 { // by EVAL_RO, then by EVALSHA_RO
		now, err := script.Exec(t.Context(), c, nil, nil).AsIntSlice()
		require.NoError(t, err)
		assert.InDelta(t, time.Now().Unix(), now[0], 5)
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	_, c := start(t)
	require.NoError(t, do(t, c, "SET", "text", "x").Error())
	for body, want := range map[string]string{
		`return redis.error_reply('EMQ_BAD thing')`:    "EMQ_BAD thing",
		`return {err = 'EMQ_BAD thing'}`:               "EMQ_BAD thing",
		`return redis.call('LPUSH', 'text', 1)`:        "WRONGTYPE Operation against a key holding the wrong kind of value",
		`return redis.call('INCR', 'text')`:            "value is not an integer or out of range, on @user_script:2.",
		"\n\nerror('boom')":                            "user_script:4: boom",
		`return = 1`:                                   "Error compiling script",
		`return redis.call('EVALSHA', 'x', 0)`:         "",
		`return redis.pcall('LPUSH', 'text', 1)`:       "WRONGTYPE",
		`return redis.call('CLUSTER', 'KEYSLOT', 'a')`: "cluster support disabled",
	} {
		err := valkey.NewLuaScript("#!lua\n"+body).Exec(t.Context(), c, nil, nil).Error()
		require.Error(t, err, body)
		_, isServer := valkey.IsValkeyErr(err)
		assert.True(t, isServer, body)
		assert.True(t, strings.Contains(err.Error(), want), "%s: %v", body, err)
	}
}

func TestOneRoundTripByTheOriginalSHA(t *testing.T) {
	e, c := start(t)
	const script = "#!lua flags=no-writes\nreturn 7"
	known := func() int64 {
		t.Helper()
		n, err := do(t, c, "SCRIPT", "EXISTS", sha(script)).AsIntSlice()
		require.NoError(t, err)
		return n[0]
	}
	evalsha := func(command string) error { return do(t, c, command, sha(script), "0").Error() }
	noscript := func(err error) bool {
		e, ok := valkey.IsValkeyErr(err)
		return ok && e.IsNoScript()
	}
	assert.True(t, noscript(evalsha("EVALSHA")))
	assert.Zero(t, known())

	for _, load := range [][]string{{"EVAL", script, "0"}, {"EVAL_RO", script, "0"}, {"SCRIPT", "LOAD", script}} {
		require.NoError(t, do(t, c, load...).Error())
		assert.EqualValues(t, 1, known())
		before := e.srv.TotalCommands()
		require.NoError(t, evalsha("EVALSHA"))
		require.NoError(t, evalsha("EVALSHA_RO"))
		assert.Equal(t, 2, e.srv.TotalCommands()-before)
		require.NoError(t, do(t, c, "SCRIPT", "FLUSH").Error())
		assert.True(t, noscript(evalsha("EVALSHA")))
		assert.Zero(t, known())
	}

	loaded, err := do(t, c, "SCRIPT", "LOAD", script).ToString()
	require.NoError(t, err)
	assert.Equal(t, sha(script), loaded)
	n, err := valkey.NewLuaScriptReadOnly(script).Exec(t.Context(), c, nil, nil).AsInt64()
	require.NoError(t, err)
	assert.EqualValues(t, 7, n)
}

func TestScriptsInATransaction(t *testing.T) {
	_, c := start(t)
	const script = "#!lua\nreturn redis.call('INCR', KEYS[1])"
	err := c.Dedicated(func(c valkey.DedicatedClient) error {
		for _, r := range c.DoMulti(t.Context(), c.B().Multi().Build(),
			c.B().Eval().Script(script).Numkeys(1).Key("n").Build(), c.B().Evalsha().Sha1(sha(script)).Numkeys(1).Key("n").Build()) {
			require.NoError(t, r.Error())
		}
		n, err := c.Do(t.Context(), c.B().Exec().Build()).AsIntSlice()
		assert.Equal(t, []int64{1, 2}, n)
		return err
	})
	require.NoError(t, err)
}

func TestBlockingPopIsWokenByAScript(t *testing.T) {
	_, c := start(t)
	popped := make(chan []string)
	go func() {
		pair, _ := c.Do(t.Context(), c.B().Blpop().Key("wake").Timeout(5).Build()).AsStrSlice()
		popped <- pair
	}()
	require.NoError(t, valkey.NewLuaScript("#!lua\nreturn redis.call('LPUSH', KEYS[1], 'token')").Exec(t.Context(), c, []string{"wake"}, nil).Error())
	assert.Equal(t, []string{"wake", "token"}, <-popped)
}

func TestStreamsAndExpiry(t *testing.T) {
	_, c := start(t)
	require.NoError(t, c.Do(t.Context(), c.B().Xadd().Key("s").Id("*").FieldValue().FieldValue("f", "v").Build()).Error())
	entries, err := c.Do(t.Context(), c.B().Xrange().Key("s").Start("-").End("+").Build()).AsXRange()
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.Equal(t, map[string]string{"f": "v"}, entries[0].FieldValues)

	require.NoError(t, do(t, c, "SET", "k", "v", "PX", "30").Error())
	require.Eventually(t, func() bool { return valkey.IsValkeyNil(do(t, c, "GET", "k").Error()) }, time.Minute, 5*time.Millisecond)
}

func TestStopTwice(t *testing.T) {
	e, c := start(t)
	e.Stop()
	e.Stop()
	assert.Error(t, do(t, c, "PING").Error())
}

// The emulator's Lua has room for fewer variables at once than the server's.
func TestEveryScriptRuns(t *testing.T) {
	t.Parallel()
	_, c := start(t)
	q, err := queue.New(c, "q", queue.Options{})
	require.NoError(t, err)
	claimer, err := claim.New(c, "q", claim.Options{})
	require.NoError(t, err)
	ctx := t.Context()
	_, err = q.SetNamedLimit(ctx, queue.NamedLimit{Name: "tpm", Limit: limiter.PerSecond(10), By: "model", Unit: "tokens"}, "")
	require.NoError(t, err)
	_, err = q.SetLimit(ctx, limiter.PerMinute(2), "")
	require.NoError(t, err)
	for _, id := range []string{"a", "b", "c", "d"} {
		_, err = q.Enqueue(ctx, queue.Job{ID: id, Keys: map[string]string{"model": "x"}, Cost: map[string]int64{"tokens": 6}})
		require.NoError(t, err)
	}
	b, err := claimer.Claim(ctx, 5)
	require.NoError(t, err)
	require.Len(t, b.Jobs, 1)
	require.Len(t, b.SentBack, 3, "they stand in the line of tpm, model=x")
	lost, err := claimer.Extend(ctx, b.Jobs)
	require.NoError(t, err)
	require.Empty(t, lost)
	require.NoError(t, b.Jobs[0].SetCost("tokens", 3))
	_, err = claimer.Settle(ctx, []claim.Outcome{claim.RateLimited(b.Jobs[0], time.Second, "model", nil)})
	require.NoError(t, err)
	all, err := metrics.Budgets(ctx, c, "q", 5)
	require.NoError(t, err)
	require.Len(t, all.Limits, 2)
	e, err := metrics.Explain(ctx, c, "q", "b")
	require.NoError(t, err)
	require.True(t, e.Blocked)
	_, err = claimer.Look(ctx)
	require.NoError(t, err)
	require.NoError(t, q.ReopenKey(ctx, "model", "x", ""))
	require.NoError(t, q.RunNow(ctx, "c"))
	require.NoError(t, q.Delete(ctx, "d"))
	counts, err := q.Counts(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, counts.Wait+counts.Delayed)
	_, err = q.List(ctx, queue.Delayed, 0, 10)
	require.NoError(t, err)
	n, err := q.Drain(ctx, true)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
}

// Jobs that nothing tells apart, and jobs under a limit by key alone, go through claims of many.
func TestClaimsOfMany(t *testing.T) {
	t.Parallel()
	_, c := start(t)
	ctx := t.Context()
	for name, limit := range map[string]func(q *queue.Queue) error{
		"none":  func(*queue.Queue) error { return nil },
		"queue": func(q *queue.Queue) error { _, err := q.SetLimit(ctx, limiter.PerHour(12), ""); return err },
		"key": func(q *queue.Queue) error {
			_, err := q.SetNamedLimit(ctx, queue.NamedLimit{Name: "tenant", Limit: limiter.PerHour(2), By: "tenant"}, "")
			return err
		},
	} {
		q, err := queue.New(c, name, queue.Options{})
		require.NoError(t, err)
		require.NoError(t, limit(q))
		jobs := make([]queue.Job, 30)
		for i := range jobs {
			jobs[i] = queue.Job{ID: strconv.Itoa(i), Keys: map[string]string{"tenant": strconv.Itoa(i % 6)}}
		}
		_, err = q.EnqueueMany(ctx, jobs)
		require.NoError(t, err)
		claimer, err := claim.New(c, name, claim.Options{})
		require.NoError(t, err)
		var ids []string
		for range 4 {
			b, err := claimer.Claim(ctx, 10)
			require.NoError(t, err, name)
			for _, job := range b.Jobs {
				ids = append(ids, job.ID)
			}
		}
		want := map[string]int{"none": 30, "queue": 12, "key": 12}[name]
		require.Len(t, ids, want, name)
		for i, id := range ids {
			require.Equal(t, strconv.Itoa(i), id, name)
		}
	}
}
