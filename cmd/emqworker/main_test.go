package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
)

// mainEnv makes the test binary emqworker itself, for tests that need a process.
const mainEnv = "EMQWORKER_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
	}
	os.Exit(emqtest.Run(m))
}

const within = time.Minute // for what a test waits for

// answer is what one command line did.
type answer struct {
	stdout, stderr string
	code           int
}

// emq runs a command line in this process on the tests' server.
func emq(t *testing.T, args ...string) answer {
	t.Helper()
	return emqIn(t, "", args...)
}

// emqIn does so with text on standard input.
func emqIn(t *testing.T, stdin string, args ...string) answer {
	t.Helper()
	return bare(stdin, append([]string{"--url", emqtest.URL(t)}, args...)...)
}

// bare runs a command line as it is.
func bare(stdin string, args ...string) answer {
	var out, err buffer
	code := execute(args, strings.NewReader(stdin), &out, &err)
	return answer{out.String(), err.String(), code}
}

// ok runs a command line that must succeed and returns what it printed.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	a := emq(t, args...)
	require.Equal(t, 0, a.code, a.stderr)
	return a.stdout
}

// decode reads what a command printed with --json.
func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// lines are the lines of text.
func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

func newTestQueue(t *testing.T) (*queue.Queue, string) {
	t.Helper()
	name := emqtest.Queue(t)
	q, err := queue.New(emqtest.Client(t), name, queue.Options{})
	require.NoError(t, err)
	return q, name
}

// counts is what a queue holds, in short.
func counts(t *testing.T, q *queue.Queue) (wait, active, delayed, dead int64) {
	t.Helper()
	n, err := q.Counts(t.Context())
	require.NoError(t, err)
	return n.Wait, n.Active, n.Delayed, n.Dead
}

// process is emqworker as a process of its own.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr buffer
	ended          chan struct{}
}

// start starts emqworker on the tests' server.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWith(t, []string{"VALKEY_URL=" + emqtest.URL(t)}, args...)
}

func startWith(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), mainEnv+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// wait waits for the end and returns the exit code.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(6 * within):
		t.Fatalf("%v does not end: %s", p.cmd.Args, p.stderr.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// buffer is a bytes.Buffer that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// script writes a shell script and returns its path.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700))
	return path
}

// eventually polls until a condition holds.
func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, within, 10*time.Millisecond, what)
}

// contains asserts that text has all parts.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		assert.Contains(t, text, part)
	}
}
