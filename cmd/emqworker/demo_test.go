package main

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
)

// fast are the flags of a demo that is over in some seconds; the window is long enough for a machine that has other work.
var fast = []string{"demo", "--workers", "3", "--max", "5", "--window", "1s", "--jobs", "33"}

func TestDemo(t *testing.T) {
	t.Parallel()
	p := startWith(t, []string{"TMPDIR=" + t.TempDir()}, append(fast, "--json")...)
	require.Equal(t, 0, p.wait(t), p.stderr.String())
	checkDemo(t, p.stdout.String(), "private Valkey ")
}

func TestDemoOnTheEmulator(t *testing.T) {
	t.Parallel()
	p := startWith(t, []string{"EMQ_TEST_VALKEY_SERVER=/nonesuch"}, append(fast, "--json")...)
	require.Equal(t, 0, p.wait(t), p.stderr.String())
	contains(t, p.stderr.String(), "no Valkey server", "*** NO VALKEY SERVER: this demo runs on an emulator")
	checkDemo(t, p.stdout.String(), "emulator")
}

func checkDemo(t *testing.T, out, server string) {
	t.Helper()
	assert.Equal(t, 1, strings.Count(out, "\n"))
	r := decode[demoResult](t, out)
	assert.True(t, strings.HasPrefix(r.Server, server), r.Server)
	assert.Equal(t, []int64{33, 0, 0, 0, 0}, []int64{r.Admitted, r.Over, r.Under, int64(r.Lost), int64(r.RunTwice)}, out)
	assert.Equal(t, []any{3, 33, 5, int64(1000)}, []any{r.Workers, r.Jobs, r.Max, r.WindowMS})
	require.Len(t, r.PerWindow, r.Windows)
	sum := int64(0)
	for i, w := range r.PerWindow {
		sum += w.Admitted
		assert.Equal(t, 5-w.Admitted, w.Remaining)
		if server != "emulator" { // which may be too slow for a whole window
			assert.EqualValues(t, min(5, 33-5*i), w.Admitted)
		}
	}
	assert.EqualValues(t, 33, sum)
	assert.Positive(t, r.Deferred)
	assert.Equal(t, privateWindows, len(r.PrivateWindows))
	if server != "emulator" {
		assert.Greater(t, r.PrivateAdmittedPerWindow, 10, "the private counters let through a multiple of the limit")
	}
	for _, key := range []string{"windows", "admitted", "over", "under", "lost", "run_twice", "late_max_ms", "private_admitted_per_window"} {
		assert.Contains(t, decode[map[string]any](t, out), key)
	}
}

func TestDemoOnAServerOfYours(t *testing.T) {
	t.Parallel()
	out := bytes.Buffer{}
	p := start(t, append(fast, "--url", emqtest.URL(t))...)
	require.Equal(t, 0, p.wait(t), p.stderr.String())
	out.WriteString(p.stdout.String())
	contains(t, out.String(), "HELD: in 7 windows 3 processes admitted 33 of 33 jobs: 0 over the limit, 0 under", "PRIVATE COUNTERS", "emqworker stats demo-")
	assert.Regexp(t, `(?m)^ +1  5 of 5 +\d+ +0 +0\.\d{3}s +1[0-9]$`, out.String())
	assert.Regexp(t, `(?m)^ +7  3 of 5 +0 +2 +- +stopped$`, out.String())

	_, rest, _ := strings.Cut(out.String(), "share queue ")
	name, _, _ := strings.Cut(rest, ",")
	client := emqtest.Client(t)
	entries, err := client.Do(t.Context(), client.B().Xlen().Key("emq:{"+name+"}:audit").Build()).AsInt64()
	require.NoError(t, err)
	assert.Greater(t, entries, int64(10), "the audit stream is left")
	names, err := queue.Names(t.Context(), client)
	require.NoError(t, err)
	assert.Contains(t, names, name)
	assert.NotContains(t, names, name+"-private")
	keys, err := client.Do(t.Context(), client.B().Keys().Pattern("emq:{"+name+"-private}:*").Build()).AsStrSlice()
	require.NoError(t, err)
	for _, key := range keys {
		assert.Contains(t, key, ":settled:", "these end by themselves")
	}
}

func TestDemoCleansUpAfterASignal(t *testing.T) {
	t.Parallel()
	for s, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		dir, err := os.MkdirTemp("", "d") // its socket's path must be short
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		p := startWith(t, []string{"TMPDIR=" + dir}, "demo", "--workers", "2", "--jobs", "1000") // few processes: each takes its time to start
		eventually(t, func() bool { return strings.Contains(p.stdout.String(), "PRIVATE COUNTERS") }, p.stderr.String())
		begin := time.Now()
		p.signal(t, s)
		assert.Equal(t, code, p.wait(t), p.stderr.String())
		assert.Less(t, time.Since(begin), 20*time.Second, "long before the demo is over")
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left)
		assert.Empty(t, p.stderr.String())
	}
}

func TestVerdictIsTheExitCode(t *testing.T) {
	t.Parallel()
	b := newBoard(newRoot(&app{}), demoFlags{json: true})
	b.out = &bytes.Buffer{}
	for _, r := range []demoResult{{Over: 1}, {Under: 1}, {Lost: 1}, {RunTwice: 1}} {
		assert.Equal(t, exitFailure, exitCode(b.verdict(r)))
	}
	assert.NoError(t, b.verdict(demoResult{}))
	b.silent = false
	b.verdict(demoResult{Over: 2, Max: 1})
	assert.Contains(t, b.out.(*bytes.Buffer).String(), "NOT HELD: ")
}
