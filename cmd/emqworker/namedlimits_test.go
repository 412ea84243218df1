package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
)

func TestNamedLimits(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	assert.Equal(t, name+": unlimited\n", ok(t, "limits", "ls", name))
	assert.Equal(t, name+" tpm: 100/1m0s token_bucket burst=50 by model of tokens, was none\n",
		ok(t, "limits", "set", name, "tpm", "100/1m", "--by", "model", "--unit", "tokens", "--algorithm", "token_bucket", "--burst", "50",
			"--override", "model=big:500/1m", "--override", "model=a=b:c:7/1m", "--override", "model=free:unlimited", "--reason", "the plan"))
	// What is left out keeps its value.
	assert.Equal(t, name+" tpm: 100/1m0s token_bucket burst=60 by model of tokens, was 100/1m0s token_bucket burst=50 by model of tokens\n",
		ok(t, "limits", "set", name, "tpm", "--burst", "60"))
	set := decode[namedJSON](t, ok(t, "limits", "set", name, "tpm", "120/2m", "--override", "model=big:", "--json"))
	assert.Equal(t, namedRuleJSON{"token_bucket", 120, 120_000, 60, "model", "tokens", false}, *set.Limit)
	assert.EqualValues(t, 100, set.Was.Max)
	assert.Equal(t, name+" tenant: 2 concurrency by tenant, shadow, was none\n", ok(t, "limits", "set", name, "tenant", "2", "--algorithm", "concurrency", "--by", "tenant", "--shadow"))
	assert.Contains(t, ok(t, "limits", "set", name, "tenant", "--shadow=false"), ": 2 concurrency by tenant, was 2 concurrency by tenant, shadow")
	ok(t, "limits", "set", name, "30/1s")

	for value, cost := range map[string]string{"big": "20", "a=b:c": "7", "free": "1000000"} {
		ok(t, "enqueue", name, "x", "--key", "model="+value, "--key", "tenant=t", "--cost", "tokens="+cost)
	}
	claimer, err := claim.New(emqtest.Client(t), name, claim.Options{})
	require.NoError(t, err)
	b, err := claimer.Claim(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, b.Jobs, 2, "the third waits for a place of its tenant")

	l := decode[limitsJSON](t, ok(t, "limits", "ls", name, "--json", "--top", "3"))
	require.Len(t, l.Limits, 3)
	assert.Equal(t, []string{"", "tenant", "tpm"}, []string{l.Limits[0].Name, l.Limits[1].Name, l.Limits[2].Name})
	assert.EqualValues(t, 1, l.Limits[1].Waiting)
	assert.EqualValues(t, 1, l.Limits[1].Lines)
	assert.Equal(t, "t", l.Limits[1].Buckets[0].Value)
	assert.EqualValues(t, 2, l.Limits[1].Buckets[0].Used)
	assert.Len(t, decode[limitsJSON](t, ok(t, "limits", "ls", name, "tpm", "--json")).Limits, 1)
	contains(t, ok(t, "limits", "ls", name, "--top", "1"), "ALGORITHM", "(queue)", "30/1s", "  t ", "WAITING")
	assert.Regexp(t, `(?m)^\(queue\) +fixed_window +30/1s +- +- +2 +28 `, ok(t, "limits", "ls", name))
	assert.Regexp(t, `(?m)^tenant +concurrency +2 +tenant `, ok(t, "limits", "ls", name))
	assert.Regexp(t, `(?m)^tpm +token_bucket +120/2m0s burst=60 +model +tokens `, ok(t, "limits", "ls", name))
	contains(t, ok(t, "limits", "get", name, "tpm", "--key", "model=free", "--key", "model=a=b:c"), "unlimited", "a=b:c", "7/1m0s")
	got := decode[limitJSON](t, ok(t, "limits", "get", name, "tpm", "--key", "model=a=b:c", "--json", "--top", "0"))
	require.Len(t, got.Buckets, 1)
	assert.EqualValues(t, 7, got.Buckets[0].Max)

	waiting := b.SentBack[0].ID
	contains(t, ok(t, "job", "ls", name, "--state", "delayed"), waiting, "limit tenant for t")
	contains(t, ok(t, "job", "get", name, waiting), "limit tenant for t")
	contains(t, ok(t, "job", "explain", name, waiting), waiting+": delayed until ", " by limit tenant, tenant=t, 0 ahead", "ASKS OF", "limit tpm")
	e := decode[explainJSON](t, ok(t, "job", "explain", "-q", name, waiting, "--json"))
	assert.Equal(t, "limit tenant, tenant=t", e.By)
	assert.True(t, e.Blocked)
	assert.Len(t, e.Asks, 3)
	assert.Equal(t, exitNotFound, emq(t, "job", "explain", name, "nonesuch").code)

	ok(t, "limits", "reset", name, "tpm", "--key", "model=a=b:c")
	ok(t, "limits", "reset", name, "tpm")
	assert.Equal(t, name+" tenant: none, was 2 concurrency by tenant\n", ok(t, "limits", "unset", name, "tenant"))
	assert.Equal(t, exitNotFound, emq(t, "limits", "unset", name, "tenant").code)
}

// A limit by name that is not there is told with those that are.
func TestUnknownLimit(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	for _, there := range []string{"it has none by name", "it has rpm, tpm"} {
		for _, command := range []string{"ls", "get", "check", "reset", "unset"} {
			a := emq(t, "limits", command, name, "tmp")
			assert.Equal(t, exitNotFound, a.code, command)
			contains(t, a.stderr, "limit tmp: no such limit in queue "+name+"; "+there)
		}
		a := emq(t, "limits", "set", name, "tmp", "--shadow")
		assert.Equal(t, exitUsage, a.code)
		contains(t, a.stderr, "MAX/WINDOW is missing", there, "emqworker limits set "+name+" tmp MAX/WINDOW")
		ok(t, "limits", "set", name, "tpm", "5/1s")
		ok(t, "limits", "set", name, "rpm", "5/1s")
	}
}

// Texts from others neither break the table nor steer the terminal.
func TestLimitsPrintable(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	odd := "a\tb\x1b[31m\n"
	ok(t, "limits", "set", name, "rpm", "5/1s", "--by", "model", "--reason", odd)
	ok(t, "enqueue", name, "--id", "j", "--key", "model="+odd)
	for _, line := range [][]string{{"limits", "close", name, "--key", "model=" + odd, "--for", "1h", "--reason", odd}, {"limits", "ls", name},
		{"limits", "get", name, "rpm", "--key", "model=" + odd}, {"job", "explain", name, "j"}, {"limits", "reopen", name, "--key", "model=" + odd}} {
		out := ok(t, line...)
		assert.NotContains(t, out, "\x1b", line)
		assert.Contains(t, out, `\x1b`, line)
	}
}

// C06: a job that no budget could ever grant is refused at its enqueue, whatever the algorithm, and holds up nobody.
func TestTooHeavy(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"fixed_window", "sliding_log", "sliding_window_counter", "token_bucket"} {
		q, name := newTestQueue(t)
		ok(t, "limits", "set", name, "tpm", "100/10s", "--by", "model", "--unit", "tokens", "--algorithm", algorithm)
		a := emq(t, "enqueue", name, "big", "--key", "model=a", "--cost", "tokens=200")
		assert.Equal(t, exitFailure, a.code, algorithm)
		assert.Empty(t, a.stdout)
		contains(t, a.stderr, "tokens=200", "above 100", "limit tpm")
		wait, _, _, _ := counts(t, q)
		assert.Zero(t, wait, "nothing is stored")

		a = emqIn(t, `{"id":"mid","keys":{"model":"a"},"cost":{"tokens":80}}
{"id":"big","keys":{"model":"a"},"cost":{"tokens":200}}
{"id":"ok","keys":{"model":"a"},"cost":{"tokens":50}}`, "enqueue", name, "-")
		assert.Equal(t, exitFailure, a.code)
		assert.Equal(t, "mid\nok\n", a.stdout, "the others are enqueued")
		contains(t, a.stderr, "line 2: job big: job too heavy", "tokens=200", "above 100")

		contains(t, ok(t, "limits", "set", name, "tpm", "50/10s", "--by", "model", "--unit", "tokens"), ": 50/10s")
		e := decode[explainJSON](t, ok(t, "job", "explain", name, "mid", "--json"))
		assert.True(t, e.Never)
		assert.EqualValues(t, -1, e.Asks[0].RetryAfterMS)
		contains(t, ok(t, "job", "explain", name, "mid"), "mid: wait, for ever: limit tpm, model=a never grants its cost", "80 tokens", "never")
		claimer, err := claim.New(emqtest.Client(t), name, claim.Options{})
		require.NoError(t, err)
		b, err := claimer.Claim(t.Context(), 5)
		require.NoError(t, err)
		require.Len(t, b.Jobs, 1, algorithm)
		assert.Equal(t, "ok", b.Jobs[0].ID)
		dead := decode[jobJSON](t, ok(t, "job", "get", name, "mid", "--json"))
		assert.Equal(t, queue.Dead, dead.State)
		assert.Equal(t, queue.ReasonNeverFits, dead.Reason)
	}
}

// A10: two limits by the same key keep two budgets, each with its own window, and one stays when the other goes.
func TestTwoLimitsOfOneKey(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	ok(t, "limits", "set", name, "a", "10/2m", "--by", "user")
	ok(t, "limits", "set", name, "b", "5/1m", "--by", "user")
	a := emqIn(t, strings.Repeat(`{"keys":{"user":"u"}}`+"\n", 20), "enqueue", name, "-")
	require.Equal(t, 0, a.code, a.stderr)
	client := emqtest.Client(t)
	claimer, err := claim.New(client, name, claim.Options{})
	require.NoError(t, err)
	started := func() int {
		b, err := claimer.Claim(t.Context(), 20)
		require.NoError(t, err)
		return len(b.Jobs)
	}
	assert.Equal(t, 5, started())
	keys, err := client.Do(t.Context(), client.B().Keys().Pattern("emq:{"+name+"}:limiter:*").Build()).AsStrSlice()
	require.NoError(t, err)
	assert.Len(t, keys, 2)
	for limit, window := range map[string]time.Duration{"a": 2 * time.Minute, "b": time.Minute} {
		got := decode[limitJSON](t, ok(t, "limits", "get", name, limit, "--key", "user=u", "--json"))
		assert.EqualValues(t, 5, got.Buckets[0].Used, limit)
		assert.InDelta(t, window.Milliseconds(), got.Buckets[0].ResetAfterMS, 10_000, limit)
	}
	ok(t, "limits", "unset", name, "b")
	assert.Equal(t, 5, started(), "what the other still has")
	assert.Zero(t, started())
}

func TestLimitsCheck(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	check := func(want bool, args ...string) int64 {
		t.Helper()
		a := emq(t, append([]string{"limits", "check", name}, args...)...)
		n, err := strconv.ParseInt(strings.TrimSpace(a.stdout), 10, 64)
		require.NoError(t, err, a.stderr)
		if want {
			assert.Equal(t, 0, a.code)
			assert.Zero(t, n)
		} else {
			assert.Equal(t, exitLimited, a.code)
			assert.Positive(t, n)
		}
		return n
	}
	check(true)
	for _, command := range []string{"pause", "resume"} {
		ok(t, "queue", command, name)
		a := emq(t, "limits", "check", name)
		want := map[string]answer{"pause": {"-1\n", "", exitLimited}, "resume": {"0\n", "", 0}}[command]
		assert.Equal(t, want, a, command)
	}
	ok(t, "limits", "set", name, "trial", "1/48h", "--shadow")
	ok(t, "limits", "set", name, "1/1h")
	ok(t, "limits", "set", name, "day", "1/24h")
	ok(t, "limits", "set", name, "rpm", "1/1m", "--by", "model")
	check(true)
	check(true, "rpm", "--key", "model=x")
	ok(t, "enqueue", name, "a", "--key", "model=x")
	claimer, err := claim.New(emqtest.Client(t), name, claim.Options{})
	require.NoError(t, err)
	_, err = claimer.Claim(t.Context(), 1)
	require.NoError(t, err)
	assert.InDelta(t, 24*time.Hour.Milliseconds(), check(false), 10_000, "the longest of those that every job falls under")
	assert.InDelta(t, time.Minute.Milliseconds(), check(false, "rpm", "--key", "model=x"), 10_000)
	check(true, "rpm", "--key", "model=y")
	assert.EqualValues(t, 0, decode[limitJSON](t, ok(t, "limits", "get", name, "trial", "--json")).Buckets[0].Remaining)
	check(true, "trial") // a shadow refuses nothing
	ok(t, "limits", "close", name, "--key", "model=y", "--for", "2h", "--reason", "429")
	assert.InDelta(t, 2*time.Hour.Milliseconds(), check(false, "rpm", "--key", "model=y"), 10_000)
	ok(t, "limits", "reopen", name, "--key", "model=y")
	check(true, "rpm", "--key", "model=y")
}

func TestCloseAndReopen(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	contains(t, ok(t, "limits", "close", name, "--for", "1h", "--reason", "429 from them"), name+": closed until ")
	first := decode[limitsJSON](t, ok(t, "limits", "ls", name, "--json")).Closed
	require.Len(t, first, 1)
	assert.Equal(t, "429 from them", first[0].Reason)
	ok(t, "limits", "close", name, "--for", "1s")
	assert.Equal(t, first, decode[limitsJSON](t, ok(t, "limits", "ls", name, "--json")).Closed, "a close only ever lengthens")
	until := time.Now().Add(3 * time.Hour).UTC().Format(time.RFC3339)
	contains(t, ok(t, "limits", "close", name, "--key", "model=x", "--until", until), name+" model=x: closed until ")
	contains(t, ok(t, "limits", "ls", name), " waiting (429 from them)\n")
	assert.Regexp(t, `(?m)^closed: queue until \d\d:\d\d:\d\d, 0 waiting`, ok(t, "limits", "ls", name))
	assert.Regexp(t, `(?m)^closed: model=x until \d\d:\d\d:\d\d, 0 waiting$`, ok(t, "limits", "ls", name))
	ok(t, "queue", "pause", name, "--reason", "their outage")
	contains(t, ok(t, "limits", "ls", name), "paused: nothing is let through until queue resume (their outage)\n")
	ok(t, "queue", "resume", name)
	a := emq(t, "limits", "reopen", name, "--key", "modle=x")
	assert.Equal(t, exitNotFound, a.code)
	contains(t, a.stderr, "nothing of queue "+name+" is closed by key modle; want one of model")
	assert.Len(t, decode[limitsJSON](t, ok(t, "limits", "ls", name, "--json")).Closed, 2)
	ok(t, "limits", "reopen", name, "--key", "model=other")
	ok(t, "limits", "reopen", name)
	assert.Len(t, decode[limitsJSON](t, ok(t, "limits", "ls", name, "--json")).Closed, 1)
	assert.Equal(t, name+" model=x: open\n", ok(t, "limits", "reopen", name, "--key", "model=x"))
	assert.Equal(t, name+": unlimited\n", ok(t, "limits", "ls", name))
}

func TestBadNamedLimits(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	ok(t, "limits", "set", name, "tpm", "100/1m", "--by", "model", "--unit", "tokens")
	for line, want := range map[string]string{
		"set Q tpm 0/1m":                                        "max is 0; want 1 or more",
		"set Q new --by x":                                      "MAX/WINDOW is missing",
		"set Q new 5":                                           "\"5\" has no window; want 5/WINDOW",
		"set Q b 5 --algorithm concurency":                      "leaky_bucket, or concurrency",
		"set Q b 5/1s --algorithm concurrency":                  "it counts jobs in flight",
		"set Q tpm --burst 0":                                   "--burst is 0; want 1 or more",
		"set Q tpm --by=":                                       "--by is empty",
		"set Q tpm --unit=":                                     "--unit is empty",
		"set Q tpm --override model=1:0/1m":                     "max is 0; want 1 or more",
		"set Q tpm --override model=1:0":                        "max is 0; want 1 or more",
		"set Q tpm --override model=1:-2/1m":                    "max",
		"set Q tpm --override model=1:2/1m --override model=1:": "--override model=1 is given twice",
		"set Q tpm 9007199254740992/1m":                         "max is 9007199254740992",
		"set Q tpm 5/1m --by tenant":                            "limit tpm has by model, which cannot be changed in place to tenant",
		"set Q tpm 5/1m --unit bytes":                           "limit tpm has unit tokens, which cannot be changed in place to bytes",
		"set Q tpm 5/1m --algorithm token_bucket":               "limit tpm has algorithm fixed_window, which cannot be changed in place to token_bucket",
		"set Q b 5/1m --algorithm frob":                         "algorithm \"frob\" is unknown; want one of fixed_window",
		"set Q b 5/1m --burst 3":                                "burst",
		"set Q b 5 --algorithm concurrency --unit x":            "it counts jobs in flight",
		"set Q a:b 5/1m":                                        "limit name \"a:b\" has ':' at byte 1",
		"set Q b 5/1m --by a{b":                                 "key name \"a{b\" has '{' at byte 1",
		"set Q b 5/1m --unit a{b":                               "cost name \"a{b\" has '{' at byte 1",
		"set Q b 5/1m --override x=1:2/1m":                      "the limit goes by no key; want --by x",
		"set Q tpm --override x=1:2/1m":                         "the limit goes by model, not x",
		"set Q tpm --override model=1":                          "want KEY=VALUE:MAX/WINDOW",
		"set Q tpm --override model=1:soon":                     "want max/window",
		"set Q b unlimited":                                     "want limits unset",
		"set Q 5/1m --by model":                                 "--by is for a limit by NAME",
		"set Q 5/1m --algorithm concurrency":                    "concurrency is for a limit by NAME",
		"set a,b x 1/1s":                                        "a limit belongs to one",
		"ls Q nonesuch":                                         "no such limit",
		"get Q nonesuch":                                        "no such limit",
		"get Q tpm --key tenant=x":                              "limit tpm goes by model",
		"get Q --key model=x":                                   "--key is for a limit by NAME",
		"check Q tpm":                                           "want one --key model=",
		"check Q tpm --key model":                               "want name=value",
		"reset Q nonesuch":                                      "no such limit",
		"close Q":                                               "want one of --for and --until",
		"close Q --for 1s --until 2030-01-02T15:04:05Z":         "want one of --for and --until",
		"close Q --for 0s --until 2030-01-02T15:04:05Z":         "want one of --for and --until",
		"close Q --for -1s":                                     "want more than 0",
		"close Q --until tomorrow":                              "want a time as in",
		"close Q --until 2020-01-02T15:04:05Z":                  "has passed",
		"close Q --for 1s --key model":                          "want name=value",
		"close Q --for 1s --key a{b=x":                          "key name \"a{b\" has '{'",
	} {
		words := append([]string{"limits"}, strings.Fields(strings.ReplaceAll(line, "Q", name))...)
		a := emq(t, words...)
		assert.NotEqual(t, 0, a.code, line)
		assert.Contains(t, a.stderr, want, line)
		assert.Empty(t, a.stdout, line)
	}
	for _, rate := range []string{"5/1m token_bucket", "5/1m burst=2"} {
		for _, words := range [][]string{{rate}, {"b", rate}, {"tpm", "--override", "model=x:" + rate}} {
			a := emq(t, append([]string{"limits", "set", name}, words...)...)
			assert.Equal(t, exitUsage, a.code, words)
			contains(t, a.stderr, "alone, as in")
		}
	}
	a := emq(t, "limits", "get", "a:b", "tpm")
	contains(t, a.stderr, "queue name \"a:b\"")
	l := decode[limitsJSON](t, ok(t, "limits", "ls", name, "--json")).Limits
	require.Len(t, l, 1, "nothing was set")
	assert.EqualValues(t, 100, decode[limitJSON](t, ok(t, "limits", "get", name, "tpm", "--json")).Max, "nothing was changed")
}
