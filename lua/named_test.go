package lua_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/lua"
)

func TestNamedLimitKeepsWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	read := func() lua.Named { return lua.ParseNamed(q.text("HGET :limits tpm")) }
	want := lua.Named{
		Rule:   lua.Rule{Algorithm: "fixed_window", Max: 5, Window: time.Second},
		Bucket: "tpm", At: time.UnixMilli(start), Reason: "why",
	}
	q.limit("set tpm max=5")
	require.Equal(t, want, read())
	q.clock.Advance(time.Second)
	before, known, err := q.tryLimit("set tpm window=60000 mode=shadow")
	require.NoError(t, err)
	require.True(t, known)
	require.Equal(t, "tpm fixed_window 5 1000 0 * * live 0 1800000000000 why", before)
	want.Window, want.Shadow, want.At = time.Minute, true, time.UnixMilli(start+1000)
	require.Equal(t, want, read())
	q.limit("set tpm max=7 mode=live")
	want.Max, want.Shadow = 7, false
	require.Equal(t, want, read())

	q.limit("set bucket max=5 algorithm=token_bucket")
	require.EqualValues(t, 5, q.bucket("bucket", "").Free)
	q.limit("set bucket max=9")
	require.EqualValues(t, 9, q.bucket("bucket", "").Free, "a burst never given follows max")
	q.limit("unset bucket")
	require.Equal(t, "", q.text("HGET :limits bucket"))
	for _, op := range []string{"unset", "reset"} {
		_, known, err = q.tryLimit(op + " bucket")
		require.NoError(t, err)
		require.False(t, known)
	}
}

func TestNamedLimitRefusesNonsense(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set tpm max=5 by=tenant unit=tokens algorithm=token_bucket")
	before := q.digest()
	for line, says := range map[string]string{
		"set tpm algorithm=sliding_log":             "limit tpm has algorithm token_bucket, which cannot be changed in place to sliding_log; remove the limit first, or take another name",
		"set tpm by=model":                          "limit tpm has by tenant, which cannot be changed in place to model; remove the limit first, or take another name",
		"set tpm by=*":                              "limit tpm has by tenant, which cannot be changed in place to none; remove the limit first, or take another name",
		"set tpm unit=requests":                     "limit tpm has unit tokens, which cannot be changed in place to requests; remove the limit first, or take another name",
		"set tpm max=0":                             "limit tpm has no max; want 1 or more",
		"set new":                                   "limit new has no max; want 1 or more",
		"set new max=-1":                            "limit new: field max is \"-1\"",
		"set new max=1 window=0":                    "limit new: field window is \"0\"; want a whole number of milliseconds, 1 or more",
		"set new max=1 algorithm=x":                 "limit new: field algorithm is \"x\"; want fixed_window, sliding_log,",
		"set new max=1 burst=x":                     "limit new: field burst is \"x\"",
		"set new max=1000001 algorithm=sliding_log": "limit new: field max is \"1000001\"",
	} {
		_, _, err := q.tryLimit(line)
		var refused *lua.NamedError
		require.ErrorAs(t, err, &refused, line)
		require.ErrorContains(t, err, says, line)
	}
	for _, value := range []lua.NamedValue{{Value: "a", Max: "x"}, {Value: "a", Max: "1", Window: "0"}, {Value: "a", Max: "1", Burst: "-1"}} {
		_, _, err := q.tryLimit("set tpm", value)
		require.ErrorContains(t, err, `limit tpm for key value "a": field `)
	}
	for _, algorithm := range []string{"fixed_window", "sliding_log", "sliding_window_counter", "concurrency"} {
		says := "limit new is a " + algorithm + ", which has no burst; want none, not 5"
		_, _, err := q.tryLimit("set new max=1 burst=5 by=tenant algorithm=" + algorithm)
		require.EqualError(t, err, says)
		_, _, err = q.tryLimit("set new max=1 by=tenant algorithm="+algorithm, lua.NamedValue{Value: "a", Max: "1", Burst: "5"})
		require.EqualError(t, err, says, "in an override")
	}
	_, _, err := q.tryLimit("set all max=1", lua.NamedValue{Value: "a", Max: "1"})
	require.EqualError(t, err, `limit all has no key that it goes by, so key value "a" can have no rule of its own; want by`)
	require.Equal(t, before, q.digest())
}

// A key value may have a rule of its own: another one, or none.
func TestOverrides(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=1 by=chat", lua.NamedValue{Value: "a:b", Max: "2"}, lua.NamedValue{Value: "all", Max: "0"},
		lua.NamedValue{Value: "slow", Max: "1", Window: "3000"})
	require.Equal(t, 3, lua.ParseNamed(q.text("HGET :limits chat")).Overrides)
	n := 0
	jobs := func() {
		for _, value := range []string{"a:b", "all", "slow", "x"} {
			for range 4 {
				n++
				q.enqueue(carries(fmt.Sprint(value, n), "chat="+value))
			}
		}
	}
	count := func() map[string]int {
		counts := map[string]int{}
		for _, id := range q.granted(100) {
			counts[strings.TrimRight(id, "0123456789")]++
		}
		return counts
	}
	jobs()
	require.Equal(t, map[string]int{"a:b": 2, "all": 4, "slow": 1, "x": 1}, count())
	q.clock.Advance(time.Second)
	require.Equal(t, map[string]int{"a:b": 2, "x": 1}, count())
	q.limit("set chat", lua.NamedValue{Value: "slow"}, lua.NamedValue{Value: "x", Max: "3"}, lua.NamedValue{Value: "never"})
	require.Equal(t, 3, lua.ParseNamed(q.text("HGET :limits chat")).Overrides)
	q.clock.Advance(time.Second)
	require.Equal(t, map[string]int{"x": 2}, count(), "the window of slow ends no later than the limit's own from now")
	q.clock.Advance(time.Second)
	require.Equal(t, map[string]int{"slow": 1}, count())
	q.limit("unset chat")
	require.EqualValues(t, 0, q.number("EXISTS :overrides"))
	require.Equal(t, map[string]int{"slow": 2}, count(), "lines of a removed limit go on")
}

// Lines are judged anew when a limit is changed, removed or reset.
func TestChangesAreObeyedAtOnce(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"set chat max=3": "a2 a3 b2 b3", "unset chat": "a2 a3 a4 b2 b3 b4", "reset chat": "a2 b2", "reset chat a": "a2", "set chat max=1": "",
		"set chat mode=shadow": "a2 a3 a4 b2 b3 b4",
	} {
		q := clocked(t)
		q.limit("set chat max=1 by=chat")
		q.enqueue(alike("chat=a", "a1", "a2", "a3", "a4")...)
		q.enqueue(alike("chat=b", "b1", "b2", "b3", "b4")...)
		require.Equal(t, []string{"a1", "b1"}, q.claim(9).IDs)
		q.do("DEL", ":wake")
		if words := strings.Fields(line); len(words) == 3 && words[0] == "reset" {
			q.limit("reset chat", lua.NamedValue{Value: words[2]})
		} else {
			q.limit(line)
		}
		require.EqualValues(t, 1, q.number("LLEN :wake"), line)
		require.Equal(t, strings.Fields(want), q.granted(9), line)
	}
}

// Many lines are judged anew in steps that say more, whoever claims.
func TestManyLinesAreJudgedAnewInSteps(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=1 by=chat")
	const n = 300
	for i := range n {
		q.enqueue(alike(fmt.Sprint("chat=", i), fmt.Sprint("x", i), fmt.Sprint("y", i))...)
	}
	require.Len(t, q.granted(1000), n)
	require.EqualValues(t, n, q.number("ZCARD :lines"))
	q.limit("set chat max=2")
	first := q.claim(10)
	require.Len(t, first.IDs, 10)
	require.Len(t, q.granted(1000), n-10)
	require.EqualValues(t, 0, q.number("ZCARD :stale"))

	q = q.another(t)
	q.limit("set chat max=1 by=chat window=60000")
	for i := range n {
		q.enqueue(alike(fmt.Sprint("chat=", i), fmt.Sprint("x", i), fmt.Sprint("y", i))...)
	}
	require.Len(t, q.granted(1000), n)
	q.limit("set chat window=20000")
	claims := 0
	for {
		c := q.claim(10)
		require.Empty(t, c.IDs)
		claims++
		if !c.More {
			break
		}
	}
	require.Greater(t, claims, 1)
	require.EqualValues(t, 0, q.number("ZCARD :stale"))
	require.EqualValues(t, n, q.number("ZCARD :lines"))
	q.clock.Advance(20 * time.Second)
	require.Subset(t, q.granted(1000), []string{"y0", "y299"})
}

// A limit that was removed and comes back with another rule finds no state that it cannot read; with the same one it finds its own.
func TestARemovedLimitComesBack(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	rules := []string{
		"algorithm=fixed_window", "algorithm=sliding_log", "algorithm=sliding_window_counter", "algorithm=token_bucket",
		"algorithm=leaky_bucket", "algorithm=concurrency", "algorithm=fixed_window unit=tokens", "algorithm=fixed_window by=chat",
	}
	for i, rule := range slices.Concat(rules, rules) {
		q.limit("set x max=1 window=600000 " + rule)
		ids := []string{fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)}
		q.enqueue(alike("chat=1 tokens:1", ids...)...)
		want := ids[:1]
		if strings.Contains(rule, "concurrency") || i >= len(rules) {
			want = []string{} // jobs of the others are in flight; it is its second time
		}
		require.Equal(t, want, q.granted(9), rule)
		q.limit("unset x")
		q.limit("set x max=1 window=600000 " + rule)
		require.Empty(t, q.granted(9), "%s: what was used stays used", rule)
		q.limit("unset x")
		require.Len(t, q.granted(9), 2-len(want))
	}
	require.EqualValues(t, len(rules), q.number("HLEN :removed"), "one for each rule")
}

// A job gives back what it took of a limit that was removed meanwhile and came back, whatever had its name in between.
func TestARemovedLimitGetsItsUnitsBack(t *testing.T) {
	reserving(t, func(t *testing.T, q *queue, algorithm, keys, value string) {
		q.enqueue(carries("a", keys+"tokens:8"))
		c := q.claim(9)
		rule := lua.ParseNamed(q.text("HGET :limits tpm"))
		q.limit("unset tpm")
		q.limit("set tpm max=10 algorithm=leaky_bucket")
		q.limit("unset tpm")
		q.limit("set tpm max=10 unit=tokens algorithm=" + algorithm + " by=" + cmp.Or(rule.By, "*"))
		require.EqualValues(t, 2, q.free(value))
		q.settle(done(c, "a", tokens(3)))
		require.EqualValues(t, 7, q.free(value))
	})
}

// What is kept of the names that buckets had does not grow with resets, nor with rules that take turns.
func TestResetsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=1 by=chat")
	last := int64(0)
	for i := range 3000 {
		if i == 1500 {
			q.clock.Advance(-time.Hour)
		}
		q.limit("reset chat")
		_, number, _ := strings.Cut(lua.ParseNamed(q.text("HGET :limits chat")).Bucket, "~")
		n, err := strconv.ParseInt(number, 10, 64)
		require.NoError(t, err)
		require.Greater(t, n, last, "no bucket is called as one was before")
		last = n
	}
	require.EqualValues(t, 0, q.number("EXISTS :removed"))
	for range 300 {
		for _, rule := range []string{"algorithm=sliding_log", "unit=tokens", "algorithm=token_bucket"} {
			q.limit("unset chat")
			q.limit("set chat max=1 by=chat " + rule)
			q.limit("reset chat")
		}
	}
	require.EqualValues(t, 3, q.number("HLEN :removed"), "the rules that it has not")
}

// The buckets that a reset leaves behind are known as long as jobs stand in their lines, and no longer.
func TestALineThatAResetLeftBehindIsKnown(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	former := func() map[string]string {
		m, err := q.run("HGETALL :removed").AsStrMap()
		require.NoError(t, err)
		return m
	}
	q.limit("set chat max=1 by=chat window=60000")
	q.enqueue(alike("chat=a", "a1", "a2", "a3", "a4")...)
	require.Equal(t, []string{"a1"}, q.claim(9).IDs)
	for range 3 {
		q.limit("reset chat")
	}
	require.Equal(t, map[string]string{"chat": "- chat *"}, former())
	for _, id := range []string{"a2", "a3", "a4"} {
		f, _ := q.found(id)
		require.Equal(t, "delayed", f.State)
		require.Equal(t, &lua.Blocker{Limit: "chat", Value: "a"}, f.Line)
	}
	found, err := runNow(q, "a4")
	require.NoError(t, err)
	require.Equal(t, []string{"delayed"}, found)
	require.Equal(t, []string{"a2"}, q.granted(9))
	second := lua.ParseNamed(q.text("HGET :limits chat")).Bucket
	require.Equal(t, second+":a", q.in("a3"))
	q.limit("reset chat")
	require.Equal(t, map[string]string{second: "- chat *"}, former(), "nobody stands in the line of the first")
	q.limit("unset chat")
	require.Contains(t, values(former()), "fixed_window chat *")
	require.Equal(t, []string{"a3", "a4"}, q.granted(9))
	q.limit("set chat max=1 by=chat window=60000")
	require.Empty(t, former())
	q.enqueue(carries("a5", "chat=a"))
	require.Equal(t, []string{"a5"}, q.granted(9), "it finds what it had after the last reset")
}

// A shadow counts what it would have refused, and refuses nothing.
func TestAShadowRefusesNothing(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	q.limit("set chat max=1 by=chat mode=shadow")
	q.limit("set all max=2 mode=shadow")
	q.limit("set tpm max=10 unit=tokens mode=shadow")
	q.enqueue(alike("chat=a tokens:99", "a1", "a2", "a3")...)
	c := q.claim(9)
	require.Equal(t, []string{"a1", "a2", "a3"}, c.IDs)
	require.Empty(t, c.SentBack)
	refused := map[string]int64{}
	all, err := lua.ReadBudgets(t.Context(), q.client, q.keys, 9, nil)
	require.NoError(t, err)
	for _, l := range all.Limits {
		refused[l.Name] = l.Refused
	}
	require.Equal(t, map[string]int64{"chat": 2, "all": 1, "tpm": 3}, refused)
	q.limit("set chat mode=live")
	q.enqueue(carries("a4", "chat=a"))
	require.Empty(t, q.claim(9).IDs, "what it counted is used")
	q.limit("unset chat")
	require.NotContains(t, q.list("HKEYS :tally"), "shadow chat")
}

// Lines lock nobody out for longer than two windows when the clock steps back an hour.
func TestLinesDoNotOutliveAStepOfTheClock(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"fixed_window", "sliding_log", "sliding_window_counter", "token_bucket", "leaky_bucket"} {
		for _, by := range []string{"chat", "*"} {
			q := clocked(t)
			q.limit("set chat max=1 by=" + by + " algorithm=" + algorithm)
			q.enqueue(alike("chat=a", "a1", "a2", "a3")...)
			require.Equal(t, []string{"a1"}, q.claim(9).IDs)
			q.clock.Advance(-time.Hour)
			got := q.granted(9)
			for range 4 {
				q.clock.Advance(500 * time.Millisecond)
				got = append(got, q.granted(9)...)
			}
			assert.Contains(t, got, "a2", "%s by %s", algorithm, by)
		}
	}
}

// As many overrides as one call may set, audited or not; one more is refused before anything is written.
func TestManyOverridesAtOnce(t *testing.T) {
	t.Parallel()
	q := clocked(t)
	values := make([]lua.NamedValue, 501)
	for i := range values {
		values[i] = lua.NamedValue{Value: strconv.Itoa(i), Max: "5"}
	}
	for _, size := range []string{"0", "1000"} {
		q.do("HSET", ":meta", "audit", size)
		_, _, err := q.tryLimit("set tpm max=10 by=tenant", values[:500]...)
		require.NoError(t, err)
		require.EqualValues(t, 500, q.number("HLEN :overrides"))
	}
	before := q.digest()
	_, _, err := q.tryLimit("set tpm max=11 by=tenant", values...)
	require.ErrorContains(t, err, "501 key values with a rule of their own are set at once; want at most 500")
	require.Equal(t, before, q.digest())
}
