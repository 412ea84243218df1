package faults

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
)

// previous is the version before: workers of it and of this one must be able to share a queue. It stands for the next layout's N-1 when
// that comes, and moves with each release.
const previous = "484b2e3cf37b"

// program builds emqworker, of this version or of an earlier one.
func program(t *testing.T, revision string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	run := func(dir, name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %v: %s", name, args, out)
	}
	source := root
	if revision != "" {
		source = t.TempDir()
		archive := exec.Command("git", "archive", revision)
		archive.Dir = root
		var errs bytes.Buffer
		archive.Stderr = &errs
		text, err := archive.Output()
		require.NoError(t, err, "this row needs a clone with its history: %s", errs.String())
		tar := exec.Command("tar", "x")
		tar.Dir, tar.Stdin = source, bytes.NewReader(text)
		require.NoError(t, tar.Run())
	}
	path := filepath.Join(t.TempDir(), "emqworker")
	run(source, "go", "build", "-o", path, "./cmd/emqworker")
	return path
}

// Workers of the version before and of this one run on one queue, then those of this one go: nothing is lost, no limit broken.
func TestF92RollingDeploy(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds two programs; make faults runs it")
	}
	t.Parallel()
	before, now := program(t, previous), program(t, "")
	s := newScene(t, valkeyd.Options{})
	_, err := s.SetLimit(t.Context(), limiter.Limit{Max: 40, Window: 200 * time.Millisecond}, "")
	require.NoError(t, err)
	worker := func(path string) *exec.Cmd {
		cmd := exec.Command(path, "run", "-q", s.Name(), "--log", "-c", "5", "--lease", "2s")
		cmd.Env = append(os.Environ(), "VALKEY_URL="+s.server.URL())
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}
	add := func(n int) { s.add(make([]string, n)...) }
	add(100)
	worker(before)
	until(t, "the one before works", func() bool { n, err := s.Counts(t.Context()); return err == nil && n.Completed > 20 })
	news := []*exec.Cmd{worker(now), worker(now)}
	add(300)
	until(t, "both work", func() bool { n, err := s.Counts(t.Context()); return err == nil && n.Completed > 250 })
	add(200)
	_ = news[0].Process.Kill() // one does not even say goodbye
	_ = news[1].Process.Signal(syscall.SIGTERM)
	s.empty() // by the one before: it was rolled back
	n, err := s.Counts(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 600, n.Completed)
	r := s.judged()
	settled := map[string]bool{}
	for _, e := range s.audit() {
		if e["op"] == "settle" {
			settled[strings.Split(e["process"], ":")[0]] = true
		}
	}
	assert.GreaterOrEqual(t, len(settled), 2, "both versions did some of it")
	s.figure("versions %s and this one: %d jobs completed, %d grants, none over or under", previous[:7], n.Completed, r.Granted)
}
