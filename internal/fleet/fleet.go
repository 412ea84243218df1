package fleet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Start is one start of a handler in a fleet.
type Start struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
	Claimed int64  `json:"claimed_ms"`
	Pid     int    `json:"pid"`
}

// Fleet is a number of worker processes. Its methods may be called from any goroutine.
type Fleet struct {
	env       []string
	mu        sync.Mutex
	processes []*exec.Cmd
	waiting   sync.WaitGroup
	out, err  bytes.Buffer // owned by mu
	died      chan struct{}
}

// New starts worker processes of a queue; they are killed at the end of the test. Settings are words such as "FLEET_SLEEP=1s", how long a
// job takes; FLEET_SLOTS, its slots, 10 if not given; FLEET_LEASE, FLEET_GRACE; FLEET_MAX, a budget that each process keeps for itself.
func New(t *testing.T, url, queue string, processes int, settings ...string) *Fleet {
	t.Helper()
	f := &Fleet{env: append(settings, "FLEET_URL="+url, "FLEET_QUEUE="+queue), died: make(chan struct{}, 100)}
	for range processes {
		f.Add(t)
	}
	t.Cleanup(func() {
		f.mu.Lock()
		for _, p := range f.processes {
			_ = p.Process.Kill()
		}
		f.mu.Unlock()
		f.waiting.Wait()
	})
	return f
}

// Add starts one more process.
func (f *Fleet) Add(t *testing.T) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), f.env...)
	cmd.Stdout, cmd.Stderr = f.sink(&f.out), f.sink(&f.err)
	require.NoError(t, cmd.Start())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes = append(f.processes, cmd)
	f.waiting.Go(func() { _ = cmd.Wait(); f.died <- struct{}{} })
}

type sink struct {
	f  *Fleet
	to *bytes.Buffer
}

func (f *Fleet) sink(to *bytes.Buffer) sink { return sink{f, to} }

func (s sink) Write(p []byte) (int, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return s.to.Write(p)
}

// Supervise starts a process again each time one dies, until it is stopped.
func (f *Fleet) Supervise(t *testing.T) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-f.died:
				f.Add(t)
			}
		}
	}()
	return func() { close(quit); <-done }
}

// Kill kills the i-th process.
func (f *Fleet) Kill(i int) {
	f.mu.Lock()
	p := f.processes[i]
	f.processes = slices.Delete(f.processes, i, i+1)
	f.mu.Unlock()
	_ = p.Process.Kill()
}

// Stop lets all processes drain and waits for their ends.
func (f *Fleet) Stop() {
	f.mu.Lock()
	for _, p := range f.processes {
		_ = p.Process.Signal(syscall.SIGTERM)
	}
	f.mu.Unlock()
	f.waiting.Wait()
}

// Starts are the starts of handlers so far, in no order between processes.
func (f *Fleet) Starts() (starts []Start) {
	f.mu.Lock()
	defer f.mu.Unlock()
	scanner := bufio.NewScanner(bytes.NewReader(f.out.Bytes()))
	for scanner.Scan() {
		var s Start
		if json.Unmarshal(scanner.Bytes(), &s) == nil && s.ID != "" {
			starts = append(starts, s)
		}
	}
	return starts
}

// Log is what the processes wrote of errors.
func (f *Fleet) Log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err.String()
}

// Signal sends a signal to the i-th process.
func (f *Fleet) Signal(t *testing.T, i int, s syscall.Signal) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.NoError(t, f.processes[i].Process.Signal(s))
}
