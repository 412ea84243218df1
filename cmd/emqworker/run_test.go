package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/queue"
)

func TestRunLog(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	a := emqIn(t, `{"id":"a","name":"n","payload":"<é>","keys":{"tenant":"x"},"cost":{"tokens":3}}
{"id":"b","payload_base64":"/w=="}
{"id":"c","delay":"300ms"}`, "enqueue", name, "-")
	require.Equal(t, 0, a.code, a.stderr)
	got := map[string]logLine{}
	out := ok(t, "run", "-q", name, "--log", "--drain")
	for _, text := range lines(out) {
		l := decode[logLine](t, text)
		assert.InDelta(t, time.Now().UnixMilli(), l.ClaimedMS, 5000)
		l.ClaimedMS = 0
		got[l.ID] = l
	}
	none, free := map[string]string{}, map[string]int64{}
	assert.Equal(t, map[string]logLine{
		"a": {ID: "a", Queue: name, Name: "n", Attempt: 1, Payload: "<é>", Keys: map[string]string{"tenant": "x"}, Cost: map[string]int64{"tokens": 3}},
		"b": {ID: "b", Queue: name, Attempt: 1, Payload: "/w==", PayloadBase64: true, Keys: none, Cost: free},
		"c": {ID: "c", Queue: name, Attempt: 1, Keys: none, Cost: free},
	}, got)
	contains(t, out, `"payload":"<é>"`, `"keys":{},"cost":{}`)
}

func TestRunFor(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	ok(t, "limits", "set", name, "2/1s")
	a := emqIn(t, strings.Repeat("{}\n", 9), "enqueue", name, "-")
	require.Equal(t, 0, a.code)
	begin := time.Now()
	a = emq(t, "run", "-q", name, "-c", "5", "--log", "--for", "3s")
	assert.Equal(t, 0, a.code, a.stderr)
	assert.GreaterOrEqual(t, time.Since(begin), 3*time.Second)
	n := len(lines(a.stdout))
	assert.Contains(t, []int{2, 4, 6, 8}, n, "two in each of the windows that began")
	assert.Contains(t, a.stderr, "emqworker: running queue "+name+": 5 at once, limit 2/1s")
	wait, active, delayed, _ := counts(t, q)
	assert.Equal(t, []int64{int64(9 - n), 0}, []int64{wait + delayed, active})
}

// handler is the program of the tests of signals: it says that it runs, and for how long is its argument.
const handler = `echo "start $EMQ_JOB_ID $EMQ_ATTEMPT" >&2; sleep $1; echo "end $EMQ_JOB_ID" >&2`

func TestFirstSignalLetsJobsFinish(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	ok(t, "enqueue", name, "--id", "a")
	p := start(t, "run", "-q", name, "--exec", script(t, handler), "0.5")
	eventually(t, func() bool { return strings.Contains(p.stderr.String(), "start a 1") }, "the job runs")
	p.signal(t, syscall.SIGTERM)
	eventually(t, func() bool {
		return strings.Contains(p.stderr.String(), "stopping; 1 jobs may run on for 25s; the next Ctrl-C hands them back at once")
	}, "says what comes")
	ok(t, "enqueue", name, "--id", "b")
	assert.Equal(t, 0, p.wait(t), p.stderr.String())
	assert.Contains(t, p.stderr.String(), "end a")
	wait, active, _, _ := counts(t, q)
	assert.Equal(t, []int64{1, 0}, []int64{wait, active}, "b was not claimed any more")
}

func TestGraceOverHandsBack(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	a := emqIn(t, "{}\n{}\n{}\n{}\n", "enqueue", name, "-")
	program := script(t, handler)
	require.Equal(t, 0, a.code)
	for range 2 {
		p := start(t, "run", "-q", name, "-c", "4", "--grace", "200ms", "--exec", program, "600")
		eventually(t, func() bool { return strings.Count(p.stderr.String(), "start ") == 4 }, "all jobs run")
		begin := time.Now()
		p.signal(t, syscall.SIGTERM)
		assert.Equal(t, 0, p.wait(t), p.stderr.String())
		assert.Less(t, time.Since(begin), 20*time.Second, "the grace that is set, not the 25s of one that is not")
		assert.NotContains(t, p.stderr.String(), "end ")
	}
	jobs, err := q.List(t.Context(), queue.Wait, 0, 10)
	require.NoError(t, err)
	require.Len(t, jobs, 4)
	for _, job := range jobs {
		assert.Zero(t, job.Attempts)
		assert.Zero(t, job.Reclaims)
	}
}

func TestF15SecondSignalHandsBackAtOnce(t *testing.T) {
	t.Parallel()
	for s, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		q, name := newTestQueue(t)
		ok(t, "enqueue", name, "--id", "a")
		p := start(t, "run", "-q", name, "--grace", "1h", "--exec", script(t, `trap "" TERM; `+handler), "600") // it ignores SIGTERM
		eventually(t, func() bool { return strings.Contains(p.stderr.String(), "start a 1") }, "the job runs")
		p.signal(t, syscall.SIGTERM)
		eventually(t, func() bool { return strings.Contains(p.stderr.String(), "stopping") }, "the first signal is heard")
		p.signal(t, s)
		assert.Equal(t, code, p.wait(t), p.stderr.String())
		job, err := q.Get(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, []any{queue.Wait, 0}, []any{job.State, job.Attempts})
		assert.NotContains(t, p.stderr.String(), "end a")
	}
}

func TestSignalBeforeAnyJob(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	p := start(t, "run", "-q", name, "--log")
	eventually(t, func() bool { return strings.Contains(p.stderr.String(), "running queue") }, "it runs")
	p.signal(t, syscall.SIGINT)
	assert.Equal(t, 0, p.wait(t), p.stderr.String())
}

func TestRunVerbose(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	ok(t, "enqueue", name, "--id", "a")
	ok(t, "enqueue", name, "--id", "b", "--max-attempts", "1")
	program := script(t, `[ $EMQ_JOB_ID = a ]`)
	a := emq(t, "run", "-q", name, "--drain", "--verbose", "--exec", program)
	assert.Equal(t, 0, a.code)
	contains(t, a.stderr, `msg="job done"`, "job=a", `msg="job failed"`, "job=b", "exit status 1", `msg="job is dead"`)
	assert.Empty(t, a.stdout)
	_, err := os.Stat(program)
	require.NoError(t, err)
}
