package valkeyd

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"
)

// childEnv makes the test binary a process that starts a server, prints its
// directory, and waits to be killed.
const childEnv = "VALKEYD_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		s, err := Start(Options{})
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(s.temp + "\n")
		select {}
	}
	// A cluster client that is closed may look at its slots once more, a second later.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*call).DelayDo.func1"))
}

func start(t *testing.T, opts Options) *Server {
	t.Helper()
	s, err := Start(opts)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

func dial(t *testing.T, s *Server) valkey.Client {
	t.Helper()
	c, err := valkey.NewClient(s.Options())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func do(t *testing.T, c valkey.Client, args ...string) valkey.ValkeyResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := c.Do(ctx, c.B().Arbitrary(args...).Build())
	if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) {
		t.Fatalf("%v: %v", args, err)
	}
	return r
}

func text(t *testing.T, c valkey.Client, args ...string) string {
	t.Helper()
	s, err := do(t, c, args...).ToString()
	require.NoError(t, err)
	return s
}

func number(t *testing.T, c valkey.Client, args ...string) int64 {
	t.Helper()
	n, err := do(t, c, args...).AsInt64()
	require.NoError(t, err)
	return n
}

func setting(t *testing.T, c valkey.Client, name string) string {
	t.Helper()
	m, err := do(t, c, "CONFIG", "GET", name).AsStrMap()
	require.NoError(t, err)
	return m[name]
}

func TestStartOnUnixSocket(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	assert.True(t, strings.HasPrefix(s.URL(), "unix:///"), s.URL())
	assert.Less(t, len(s.socket()), maxSocket)

	c := dial(t, s)
	assert.Equal(t, "0", setting(t, c, "port"))
	assert.Equal(t, "", setting(t, c, "save"))
	assert.Equal(t, "no", setting(t, c, "appendonly"))
	assert.Equal(t, "noeviction", setting(t, c, "maxmemory-policy"))
	assert.Len(t, text(t, c, "DEBUG", "DIGEST"), 40)

	temp, pid := s.temp, s.Pid()
	s.Stop()
	s.Stop()
	assert.True(t, gone(pid))
	assert.NoDirExists(t, temp)
	assert.Error(t, s.Restart())
}

func TestStartOnTCP(t *testing.T) {
	t.Parallel()
	s := start(t, Options{TCP: true, Args: []string{"--maxclients", "77"}})
	assert.True(t, strings.HasPrefix(s.URL(), "valkey://127.0.0.1:"), s.URL())
	c := dial(t, s)
	assert.Equal(t, "127.0.0.1", setting(t, c, "bind"))
	assert.Equal(t, "77", setting(t, c, "maxclients"))
}

func TestStartCluster(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Cluster: true})
	c := dial(t, s)
	for _, key := range []string{"a", "b", "{q}c"} { // three slots
		do(t, c, "SET", key, "1")
	}
	assert.Contains(t, text(t, c, "CLUSTER", "INFO"), "cluster_slots_ok:16384")
	assert.EqualValues(t, 12739, number(t, c, "CLUSTER", "KEYSLOT", "123456789"))
	require.NoError(t, s.Restart())
	do(t, dial(t, s), "SET", "a", "1")
}

func TestDirAndRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, Options{Dir: dir, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	url, pid := s.URL(), s.Pid()
	do(t, dial(t, s), "SET", "k", "kept")
	s.Kill()
	s.Kill()
	assert.True(t, gone(pid))

	require.NoError(t, s.Restart())
	assert.Equal(t, url, s.URL())
	c := dial(t, s)
	assert.Equal(t, "kept", text(t, c, "GET", "k"))
	require.NoError(t, s.Restart(), "of a running server")
	c = dial(t, s)
	assert.Equal(t, "kept", text(t, c, "GET", "k"))
	s.Stop()
	assert.DirExists(t, dir)
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	c := dial(t, s)
	require.NoError(t, s.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Do(ctx, c.B().Ping().Build()).Error(), context.DeadlineExceeded)
	require.NoError(t, s.Resume())
	assert.Equal(t, "PONG", text(t, c, "PING"))

	require.NoError(t, s.Pause())
	began := time.Now()
	s.Stop()
	assert.Less(t, time.Since(began), stopWithin, "a paused server stops at once")
	assert.Error(t, s.Pause())
}

func TestFailedStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := Start(Options{Args: []string{"--no-such-setting", "1"}})
	require.ErrorContains(t, err, "no-such-setting")
	_, err = Start(Options{Dir: "/nonexistent"})
	require.ErrorContains(t, err, "/nonexistent")
}

func TestMissingServerNamesTheInstall(t *testing.T) {
	t.Setenv("EMQ_TEST_VALKEY_SERVER", "")
	t.Setenv("PATH", "")
	_, err := Start(Options{})
	require.ErrorIs(t, err, exec.ErrNotFound)
	assert.ErrorContains(t, err, "make valkey")
	assert.ErrorContains(t, err, "package valkey-server")

	t.Setenv("EMQ_TEST_VALKEY_SERVER", "/nonexistent/server")
	_, err = Find()
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "/nonexistent/server")
}

func TestLongSocketPathIsRefused(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", maxSocket))
	require.NoError(t, os.Mkdir(long, 0o700))
	t.Setenv("TMPDIR", long)
	_, err := Start(Options{})
	require.ErrorContains(t, err, "TMPDIR")
	left, err := os.ReadDir(long)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestServerDiesWithItsParent(t *testing.T) {
	t.Parallel()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	temp, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	s := &Server{temp: strings.TrimSpace(temp)}
	defer os.RemoveAll(s.temp)
	_, err = s.ask("PING")
	require.NoError(t, err)
	require.NoError(t, child.Process.Kill())
	child.Wait()
	require.Eventually(t, func() bool {
		_, err := s.ask("PING")
		return errors.Is(err, syscall.ECONNREFUSED)
	}, time.Minute, 5*time.Millisecond)
}
