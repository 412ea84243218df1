// Package cases holds faults that users of other queues reported in public, as tests: each gives the report, what was seen
// there, and what must be seen here. They drive the binary and the public packages as a stranger would.
package cases

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

var (
	ctx    = context.Background()
	binary string
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "emq")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "emqworker")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/echomq/emq/cmd/emqworker").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := emqtest.Run(m)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// late is how late a wake-up may be on a busy machine of two cores. One start too many is never allowed.
const late = 1000

// started is one line of run --log.
type started struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
	At      int64  `json:"claimed_ms"`
	Payload string `json:"payload"`
}

type testCase struct {
	*testing.T
	q *queue.Queue
}

func open(t *testing.T) testCase {
	t.Helper()
	t.Parallel()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	return testCase{t, q}
}

// hset sets the limit as valkey-cli would.
func (c testCase) hset(max, duration int) {
	c.Helper()
	client := emqtest.Client(c.T)
	require.NoError(c, client.Do(ctx, client.B().Hset().Key("emq:{"+c.q.Name()+"}:meta").FieldValue().
		FieldValue("max", strconv.Itoa(max)).FieldValue("duration", strconv.Itoa(duration)).Build()).Error())
}

func (c testCase) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "VALKEY_URL="+emqtest.URL(c.T))
	return cmd
}

func (c testCase) emqworker(stdin string, args ...string) string {
	c.Helper()
	cmd := c.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(c, err, "emqworker %v: %s", args, stderr.String())
	return string(out)
}

// gen enqueues n jobs whose payloads are 1 to n.
func (c testCase) gen(n int) {
	c.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "{\"payload\":\"%d\"}\n", i+1)
	}
	c.emqworker(lines.String(), "enqueue", c.q.Name(), "-")
}

// fleet runs processes with a concurrency for some time and returns their starts by time; during runs beside them.
func (c testCase) fleet(processes, concurrency int, length time.Duration, during func(begun time.Time)) []started {
	c.Helper()
	var running sync.WaitGroup
	outputs := make([]bytes.Buffer, processes)
	begun := time.Now()
	for i := range processes {
		cmd := c.command("run", "-q", c.q.Name(), "-c", strconv.Itoa(concurrency), "--log", "--for", length.String())
		cmd.Stdout = &outputs[i]
		require.NoError(c, cmd.Start())
		running.Go(func() { _ = cmd.Wait() })
	}
	if during != nil {
		during(begun)
	}
	running.Wait()
	var all []started
	for i := range outputs {
		for line := range strings.Lines(outputs[i].String()) {
			var s started
			require.NoError(c, json.Unmarshal([]byte(line), &s))
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b started) int { return cmp.Compare(a.At, b.At) })
	return all
}

// starts counts those in [from, to) ms after the first.
func starts(all []started, from, to int64) (n int) {
	for _, s := range all {
		if t := s.At - all[0].At; t >= from && t < to {
			n++
		}
	}
	return n
}

func (c testCase) work(h worker.Handler, opts worker.Options) (stop func()) {
	c.Helper()
	w, err := worker.New(emqtest.Client(c.T), c.q.Name(), h, opts)
	require.NoError(c, err)
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	return sync.OnceFunc(func() {
		w.Stop()
		require.NoError(c, <-done)
	})
}

// A01, OptimalBits/bull#2068: 3 a second holds with one process; with two, six run.
func TestCaseA01TwoProcessesShareTheLimit(t *testing.T) {
	c := open(t)
	c.hset(3, 1000)
	c.gen(60)
	all := c.fleet(2, 10, 9*time.Second, nil)
	for w := range int64(8) {
		require.Equal(t, 3, starts(all, 1000*w, 1000*(w+1)), "window %d", w)
	}
}

// A05, discord/discord-api-docs#5144: 101 calls under 50 a second, sent right and refused at the far end: two windows met.
func TestCaseA05SeamOfTwoWindows(t *testing.T) {
	c := open(t)
	c.hset(50, 1000)
	c.gen(101)
	all := c.fleet(3, 20, 4*time.Second, nil)
	require.Len(t, all, 101)
	require.Equal(t, []int{50, 50, 1}, []int{starts(all, 0, 1000), starts(all, 1000, 2000), starts(all, 2000, 3000)})
	require.GreaterOrEqual(t, all[100].At-all[0].At, int64(2000))
	for i := 99; i < 101; i++ {
		require.GreaterOrEqual(t, all[i].At-all[i-99].At, int64(1000), "at most 99 in any second")
	}
}

// B01, taskforcesh/bullmq#1649: 70 a minute are allowed but one slow job at a time runs; nothing says what holds it back.
func TestCaseB01SlotsNotTheLimitHoldBack(t *testing.T) {
	c := open(t)
	c.hset(70, 6000)
	c.gen(200)
	exec := func(concurrency string) int {
		record := filepath.Join(t.TempDir(), "record")
		script := filepath.Join(t.TempDir(), "H")
		require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho start >> \"$REC\"; sleep 0.2\n"), 0o700))
		cmd := c.command("run", "-q", c.q.Name(), "-c", concurrency, "--for", "5500ms", "--exec", script)
		cmd.Env = append(cmd.Env, "REC="+record)
		require.NoError(t, cmd.Run())
		lines, err := os.ReadFile(record)
		require.NoError(t, err)
		return bytes.Count(lines, []byte("\n"))
	}
	require.Equal(t, 70, exec("20"))

	slow := open2(t)
	slow.hset(70, 6000)
	slow.gen(200)
	c = slow
	n := exec("1")
	require.Less(t, n, 31)
	var stats []struct {
		Limited bool `json:"limited"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.emqworker("", "stats", c.q.Name(), "--json")), &stats))
	require.False(t, stats[0].Limited, "the slots hold it back, not the limit")
}

func open2(t *testing.T) testCase {
	t.Helper()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	return testCase{t, q}
}

// B04, OptimalBits/bull#2235: after one overload the inflow falls far below the limit, yet every new job is delayed first.
func TestCaseB04AfterAnOverloadNothingIsDelayed(t *testing.T) {
	c := open(t)
	c.hset(30, 1000)
	const after = 30
	all := c.fleet(2, 10, 10*time.Second, func(begun time.Time) {
		c.gen(90)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for now := range tick.C {
			if now.Sub(begun) < 5*time.Second {
				continue
			}
			if now.Sub(begun) > 8100*time.Millisecond {
				return
			}
			_, err := c.q.Enqueue(ctx, queue.Job{Payload: []byte(strconv.FormatInt(time.Now().UnixMilli(), 10))})
			require.NoError(t, err)
		}
	})
	n := 0
	for _, s := range all {
		if sent, _ := strconv.ParseInt(s.Payload, 10, 64); sent > 1000 {
			n++
			require.Less(t, s.At-sent, int64(late))
		}
	}
	require.GreaterOrEqual(t, n, after)
	counts, err := c.q.Counts(ctx)
	require.NoError(t, err)
	require.Zero(t, counts.Delayed)
}

// C01, taskforcesh/bullmq#269: only the first window's jobs run, then nothing for ever.
func TestCaseC01WindowAfterWindow(t *testing.T) {
	c := open(t)
	c.hset(2, 3000)
	c.gen(10)
	all := c.fleet(1, 1, 14*time.Second, nil)
	require.Len(t, all, 10)
	for w := range int64(5) {
		require.Equal(t, 2, starts(all, 3000*w, 3000*(w+1)), "window %d", w)
	}
	require.LessOrEqual(t, all[9].At-all[0].At, int64(12_000+5*late))
}

// C07, OptimalBits/bull#2394: two handlers on one limited queue: the first job runs, the rest sit in delayed.
func TestCaseC07TwoNamesOnALimitedQueue(t *testing.T) {
	c := open(t)
	c.hset(1, 200)
	var mu sync.Mutex
	var at []int64
	names := map[string]int{}
	run := func(_ context.Context, job *worker.Job) error {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, job.ClaimedAt.UnixMilli())
		names[job.Name]++
		return nil
	}
	for _, name := range []string{"a", "b"} {
		for range 20 {
			_, err := c.q.Enqueue(ctx, queue.Job{Name: name})
			require.NoError(t, err)
		}
	}
	stop := c.work(worker.Mux{Handlers: map[string]worker.Handler{"a": run, "b": run}}.Handle, worker.Options{})
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(at) == 40 }, time.Minute, 10*time.Millisecond)
	stop()
	require.Equal(t, map[string]int{"a": 20, "b": 20}, names)
	for i := 1; i < 40; i++ {
		require.GreaterOrEqual(t, at[i]-at[i-1], int64(200))
	}
	require.LessOrEqual(t, at[39]-at[0], int64(39*200+39*20))
}

// D01, OptimalBits/bull#1053: without a limit jobs run in order; with one they run in a random order.
func TestCaseD01OrderUnderALimit(t *testing.T) {
	c := open(t)
	c.hset(10, 200)
	c.gen(200)
	all := c.fleet(1, 1, 6*time.Second, nil)
	require.Len(t, all, 200)
	for i, s := range all {
		require.Equal(t, strconv.Itoa(i+1), s.Payload)
	}
	require.GreaterOrEqual(t, all[199].At-all[0].At, int64(19*200))
}

// E01, taskforcesh/bullmq#2713: one per ten minutes is changed to one per two; the workers sleep out the ten.
func TestCaseE01ChangedLimitWakesTheSleepers(t *testing.T) {
	c := open(t)
	c.emqworker("", "limits", "set", c.q.Name(), "1/60s")
	c.gen(10)
	var changed int64
	all := c.fleet(2, 1, 8*time.Second, func(begun time.Time) {
		<-time.After(1500*time.Millisecond - time.Since(begun))
		c.emqworker("", "limits", "set", c.q.Name(), "1/1s")
		changed = time.Now().UnixMilli()
	})
	var after []int64
	for _, s := range all[1:] {
		after = append(after, s.At-changed)
	}
	require.Equal(t, 1, starts(all, 0, changed-all[0].At))
	require.LessOrEqual(t, after[0], int64(1000+late))
	n := 0
	for _, at := range after {
		if at < 4900 {
			n++
		}
	}
	require.Equal(t, 4, n)
}

// F02, oban-bg/oban#476, riverqueue/river#730: postponing a job twenty times makes its first real error wait days.
func TestCaseF02DeferralsAreNoAttempts(t *testing.T) {
	c := open(t)
	id, err := c.q.Enqueue(ctx, queue.Job{MaxAttempts: 3})
	require.NoError(t, err)
	first := make(chan int, 10)
	stop := c.work(func(_ context.Context, job *worker.Job) error {
		switch {
		case job.Deferrals < 20:
			return worker.Defer(20 * time.Millisecond)
		case job.Attempt == 1:
			return errors.New("a real error")
		}
		return nil
	}, worker.Options{Backoff: func(n int) time.Duration { first <- n; return time.Hour }})
	require.Equal(t, 1, <-first, "the first step of the back-off, not the twenty-first")
	var job struct {
		Attempts  int    `json:"attempts"`
		Deferrals int    `json:"deferrals"`
		State     string `json:"state"`
		DelayedBy string `json:"delayed_by"`
	}
	require.Eventually(t, func() bool {
		require.NoError(t, json.Unmarshal([]byte(c.emqworker("", "job", "get", c.q.Name(), id, "--json")), &job))
		return job.State == "delayed"
	}, time.Minute, 50*time.Millisecond)
	stop()
	require.Equal(t, 1, job.Attempts)
	require.Equal(t, 20, job.Deferrals)
	require.Equal(t, "retry", job.DelayedBy)
}

// I01, collectiveidea/delayed_job#951, contribsys/faktory#268: each deploy costs the long jobs an attempt.
func TestCaseI01DeploysCostNoAttempt(t *testing.T) {
	c := open(t)
	c.gen(4)
	script := filepath.Join(t.TempDir(), "H")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho $EMQ_JOB_ID $EMQ_ATTEMPT >> \"$REC\"; sleep 30\n"), 0o700))
	var begun time.Time
	for deploy := range 6 {
		record := filepath.Join(t.TempDir(), "record")
		cmd := c.command("run", "-q", c.q.Name(), "-c", "4", "--grace", "200ms", "--lease", "30s", "--exec", script)
		cmd.Env = append(cmd.Env, "REC="+record)
		begun = time.Now()
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			lines, _ := os.ReadFile(record)
			return bytes.Count(lines, []byte(" 1\n")) == 4
		}, time.Minute, 5*time.Millisecond, "deploy %d: all four start with attempt 1", deploy)
		require.Less(t, time.Since(begun), 15*time.Second, "deploy %d", deploy)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
	}
	counts, err := c.q.Counts(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 4, counts.Wait)
	require.Zero(t, counts.Dead)
}

// J01, sidekiq/sidekiq#3952, resque/resque#739: a payload of a wrong encoding is mangled, refused with an id, or run for ever.
func TestCaseJ01PayloadsOfAnyBytes(t *testing.T) {
	c := open(t)
	random := make([]byte, 1<<20)
	_, _ = rand.Read(random)
	payloads := [][]byte{{}, []byte("\x00\r\n"), {0xff, 0xfe}, []byte("😀"), random, []byte(`{"n":12345678901234567890}`)}
	var mu sync.Mutex
	digests := map[[32]byte]bool{}
	var bad atomic.Int64
	stop := c.work(func(_ context.Context, job *worker.Job) error {
		if job.Name == "bad" {
			bad.Add(1)
			panic(fmt.Sprintf("cannot read %s", job.Payload))
		}
		mu.Lock()
		defer mu.Unlock()
		digests[sha256.Sum256(job.Payload)] = true
		return nil
	}, worker.Options{Backoff: func(int) time.Duration { return time.Millisecond }})
	for _, p := range payloads {
		_, err := c.q.Enqueue(ctx, queue.Job{Payload: p})
		require.NoError(t, err)
	}
	id, err := c.q.Enqueue(ctx, queue.Job{Name: "bad", Payload: random, MaxAttempts: 3})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		counts, err := c.q.Counts(ctx)
		require.NoError(t, err)
		return counts.Dead == 1 && counts.Wait+counts.Active+counts.Delayed == 0
	}, time.Minute, 10*time.Millisecond)
	stop()
	for _, p := range payloads {
		require.True(t, digests[sha256.Sum256(p)])
	}
	require.EqualValues(t, 3, bad.Load())
	s, err := c.q.Get(ctx, id)
	require.NoError(t, err)
	require.LessOrEqual(t, len(s.LastError), 8<<10)
	require.True(t, utf8.ValidString(s.LastError))
}
