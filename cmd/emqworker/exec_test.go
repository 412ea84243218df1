package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
)

func TestExitCodesOfPrograms(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	ids := []string{"0", "1", "64", "65", "75", "255"}
	for _, id := range ids {
		ok(t, "enqueue", name, "--id", id, "--retain", "1h", "--delay", "1ms")
	}
	ok(t, "run", "-q", name, "--backoff", "1h", "--for", "3s", "--exec", script(t, `echo "reason of $EMQ_JOB_ID" >&2; exit $EMQ_JOB_ID`))
	for _, id := range ids {
		s, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		switch id {
		case "0":
			assert.Equal(t, queue.Completed, s.State)
		case "64", "65":
			assert.Equal(t, []any{queue.Dead, queue.ReasonDeadLettered}, []any{s.State, s.Reason}, id)
			assert.Equal(t, "exit status "+id+": reason of "+id, s.LastError)
		default:
			assert.Equal(t, []any{queue.Delayed, queue.ByRetry, 1}, []any{s.State, s.DelayedBy, s.Attempts}, id)
			assert.Equal(t, "exit status "+id+": reason of "+id, s.LastError)
			assert.Greater(t, time.Until(s.DueAt), 40*time.Minute)
		}
	}
}

// A program that ends with 75 may say on its file descriptor 3 when it wants to be tried again. The attempt is spent.
func TestRetryAfterOfPrograms(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	says := map[string]string{
		"seconds": `echo EMQ_RETRY_AFTER=7200 >&3; exit 75`, "duration": `printf 'x\nEMQ_RETRY_AFTER=2h0m' >&3; exit 75`,
		"most": `echo EMQ_RETRY_AFTER=1000h >&3; exit 75`, "nonsense": `echo EMQ_RETRY_AFTER=soon >&3; exit 75`, "nothing": `exit 75`,
		"other": `echo EMQ_RETRY_AFTER=7200 >&3; exit 1`, "child": `sleep 30 >/dev/null 2>&1 & echo EMQ_RETRY_AFTER=7200 >&3; exit 75`,
	}
	waits := map[string]time.Duration{"seconds": 2 * time.Hour, "duration": 2 * time.Hour, "most": 24 * time.Hour, "nonsense": time.Minute,
		"nothing": time.Minute, "other": time.Minute, "child": 2 * time.Hour}
	for id := range says {
		ok(t, "enqueue", name, "--id", id)
	}
	cases := ""
	for id, does := range says {
		cases += id + ") " + does + ";;\n"
	}
	ok(t, "run", "-q", name, "--backoff", "1m", "--for", "3s", "--exec", script(t, "case $EMQ_JOB_ID in\n"+cases+"esac"))
	for id, wait := range waits {
		s, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []any{queue.Delayed, queue.ByRetry, 1}, []any{s.State, s.DelayedBy, s.Attempts}, id)
		assert.InDelta(t, wait.Minutes(), time.Until(s.DueAt).Minutes(), wait.Minutes()/4, id) // the usual wait has jitter
	}
}

func TestWhatProgramsGet(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	dir := t.TempDir()
	payload := "\x00\xff\r\nbytes\n"
	a := emqIn(t, `{"id":"a","name":"n","payload_base64":"AP8NCmJ5dGVzCg==","timeout":"1m","keys":{"tenant":"x y","b":""},"cost":{"tokens":7}}
{"id":"b"}`, "enqueue", name, "-")
	require.Equal(t, 0, a.code, a.stderr)
	p := startWith(t, []string{"VALKEY_URL=" + emqtest.URL(t), "REDIS_URL=x", "EMQ_KEY_old=1", "EMQ_DEADLINE=1", "TRACEPARENT=old", "MINE=yes", "DIR=" + dir},
		"run", "-q", name, "--drain", "--exec", script(t, `cd "$DIR"; cat > $EMQ_JOB_ID.in; env > $EMQ_JOB_ID.env; printf '%s\n' "$@" > $EMQ_JOB_ID.args; echo out $EMQ_JOB_ID; echo err >&2`),
		"-q", "two  words", "$HOME;*", "--log", "-h")
	require.Equal(t, 0, p.wait(t), p.stderr.String())
	out := lines(p.stdout.String())
	slices.Sort(out)
	assert.Equal(t, []string{"out a", "out b"}, out, "the program's output is the worker's")
	assert.Contains(t, p.stderr.String(), "err\n")

	read := func(file string) string {
		b, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		return string(b)
	}
	assert.Equal(t, payload, read("a.in"))
	assert.Empty(t, read("b.in"))
	assert.Equal(t, "-q\ntwo  words\n$HOME;*\n--log\n-h\n", read("a.args"))
	env := func(id string) map[string]string {
		m := map[string]string{}
		for _, line := range lines(read(id + ".env")) {
			name, value, _ := strings.Cut(line, "=")
			m[name] = value
		}
		return m
	}
	e := env("a")
	now := time.Now().UnixMilli()
	for name, value := range map[string]string{
		"EMQ_JOB_ID": "a", "EMQ_JOB_NAME": "n", "EMQ_QUEUE": name, "EMQ_ATTEMPT": "1", "EMQ_KEY_tenant": "x y", "EMQ_KEY_b": "",
		"EMQ_COST_tokens": "7", "MINE": "yes",
	} {
		assert.Equal(t, value, e[name], name)
	}
	assert.NotEmpty(t, e["EMQ_TOKEN"])
	assert.InDelta(t, now, number(e["EMQ_CLAIMED_MS"]), 10_000)
	assert.InDelta(t, now+60_000, number(e["EMQ_DEADLINE"]), 10_000)
	for id, e := range map[string]map[string]string{"a": e, "b": env("b")} {
		for _, gone := range []string{"VALKEY_URL", "REDIS_URL", "EMQ_KEY_old", "TRACEPARENT"} {
			assert.NotContains(t, e, gone, id)
		}
	}
	assert.NotContains(t, env("b"), "EMQ_DEADLINE")
}

func TestReasonIsTheEndOfStderr(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	ok(t, "enqueue", name, "--id", "a", "--max-attempts", "1")
	ok(t, "run", "-q", name, "--drain", "--exec", script(t, `
		i=0; while [ $i -lt 3000 ]; do printf 'line %d \377 é\n' $i; i=$((i+1)); done >&2
		printf 'the last words' >&2; exit 3`))
	s, err := q.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, []any{queue.Dead, queue.ReasonAttempts}, []any{s.State, s.Reason})
	assert.True(t, utf8.ValidString(s.LastError))
	assert.True(t, strings.HasPrefix(s.LastError, "exit status 3: "), s.LastError[:40])
	assert.True(t, strings.HasSuffix(s.LastError, "line 2999 \uFFFD é\nthe last words"))
	assert.InDelta(t, 8<<10, len(s.LastError), 256)
}

func TestTimeoutEndsTheGroup(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	dir := t.TempDir()
	ok(t, "enqueue", name, "--id", "a", "--timeout", "300ms", "--max-attempts", "1")
	p := startWith(t, []string{"VALKEY_URL=" + emqtest.URL(t), "DIR=" + dir}, "run", "-q", name, "--drain", "--exec",
		script(t, `sh -c 'trap "sleep 0.3; echo cleaned up >$DIR/child; exit" TERM; echo $$ >$DIR/pid; while :; do sleep 0.05; done' & sleep 60`))
	begin := time.Now()
	require.Equal(t, 0, p.wait(t), p.stderr.String())
	assert.Less(t, time.Since(begin), 30*time.Second, "the program would sleep for a minute")
	s, err := q.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(s.LastError, "time-out of 300ms is over: signal: terminated"), s.LastError)
	child, err := os.ReadFile(filepath.Join(dir, "child"))
	require.NoError(t, err, "a child that cleans up is waited for")
	assert.Equal(t, "cleaned up\n", string(child))
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	stat, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
	assert.True(t, len(stat) == 0 || strings.Contains(string(stat), ") Z "), string(stat))
}

func TestProgramThatLeavesAChild(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	dir := t.TempDir()
	ok(t, "enqueue", name, "--id", "a", "--retain", "1h")
	p := startWith(t, []string{"VALKEY_URL=" + emqtest.URL(t), "DIR=" + dir}, "run", "-q", name, "--drain", "--exec",
		script(t, `sleep 30 >/dev/null & echo $! >$DIR/pid`))
	begin := time.Now()
	require.Equal(t, 0, p.wait(t), p.stderr.String())
	assert.Less(t, time.Since(begin), 20*time.Second, "the child holds the pipe of standard error")
	s, err := q.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, queue.Completed, s.State)
	b, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)
	left, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, left.Kill(), "it was left alone")
}
