package emqtest_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
)

// childEnv makes the test binary a child of one of its tests: it runs only
// TestChild, which does what the variable says.
const childEnv = "EMQTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "bare" {
		os.Exit(m.Run())
	}
	os.Exit(emqtest.Run(m))
}

func TestChild(t *testing.T) {
	switch os.Getenv(childEnv) {
	case "":
		return // not a child
	case "leak":
		go func() { select {} }()
	case "start":
		client, _ := emqtest.Start()
		require.NoError(t, ping(t, client))
	case "panic":
		emqtest.Client(t)
		fmt.Println("url", emqtest.URL(t))
		panic("a test panics")
	}
	require.NoError(t, ping(t, emqtest.Client(t)))
	fmt.Println("url", emqtest.URL(t))
}

// child runs TestChild in a process of its own and returns what it printed
// and the URL it used.
func child(t *testing.T, mode string, env ...string) (out, url string, err error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(append(os.Environ(), childEnv+"="+mode), env...)
	text, err := cmd.CombinedOutput()
	if m := regexp.MustCompile(`(?m)^url (\S+)$`).FindSubmatch(text); m != nil {
		url = string(m[1])
	}
	return string(text), url, err
}

func ping(t *testing.T, c valkey.Client) error {
	return c.Do(t.Context(), c.B().Ping().Build()).Error()
}

func requireGone(t *testing.T, url string) {
	t.Helper()
	path, ok := strings.CutPrefix(url, "unix://")
	require.True(t, ok, "%q is no private server", url)
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, time.Minute, 5*time.Millisecond)
	os.RemoveAll(strings.TrimSuffix(path, "/valkey.sock")) // left by a binary that could not clean up
}

func TestOneServerForAllTests(t *testing.T) {
	t.Parallel()
	c := emqtest.Client(t)
	assert.Same(t, c, emqtest.Client(t))
	started, url := emqtest.Start()
	assert.Same(t, c, started)
	assert.Equal(t, emqtest.URL(t), url)
	require.NoError(t, ping(t, c))
	own, err := valkey.NewClient(valkey.MustParseURL(emqtest.URL(t)))
	require.NoError(t, err)
	defer own.Close()
	require.NoError(t, ping(t, own))
}

func TestServerEndsWithTheBinary(t *testing.T) {
	t.Parallel()
	for mode, passes := range map[string]bool{"run": true, "bare": true, "start": true, "panic": false} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			out, url, err := child(t, mode, "EMQ_TEST_VALKEY=")
			assert.Equal(t, passes, err == nil, out)
			requireGone(t, url)
		})
	}
}

func TestURLOfAServerThatRuns(t *testing.T) {
	t.Parallel()
	out, url, err := child(t, "run", "EMQ_TEST_VALKEY="+emqtest.URL(t), "EMQ_TEST_VALKEY_SERVER=/nonexistent")
	require.NoError(t, err, out)
	assert.Equal(t, emqtest.URL(t), url)
	require.NoError(t, ping(t, emqtest.Client(t)), "left running")
}

func TestNoServerFailsTheTest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ env, want string }{
		{"EMQ_TEST_VALKEY_SERVER=/nonexistent", "make valkey"},
		{"EMQ_TEST_VALKEY=nonsense", "EMQ_TEST_VALKEY"},
		{"EMQ_TEST_VALKEY=unix:///nonexistent", "no connection to unix:///nonexistent"},
	} {
		out, _, err := child(t, "run", "EMQ_TEST_VALKEY=", c.env)
		require.Error(t, err, out)
		assert.Contains(t, out, "--- FAIL: TestChild")
		assert.Contains(t, out, c.want)
		out, _, err = child(t, "start", "EMQ_TEST_VALKEY=", c.env)
		require.Error(t, err, out)
		assert.Contains(t, out, "panic: emqtest: ")
		assert.Contains(t, out, c.want)
	}
}

func TestLeakedGoroutineFailsTheRun(t *testing.T) {
	t.Parallel()
	out, url, err := child(t, "leak", "EMQ_TEST_VALKEY=")
	require.Error(t, err)
	assert.Contains(t, out, "left goroutines behind")
	assert.Contains(t, out, "TestChild")
	requireGone(t, url)
}

func TestQueueNames(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	seen := map[string]bool{}
	for _, sub := range []string{"plain", "{curly}:and colon/ü", strings.Repeat("long", 50)} {
		t.Run(sub, func(t *testing.T) {
			for range 100 {
				q := emqtest.Queue(t)
				require.Regexp(t, name, q)
				require.True(t, strings.HasPrefix(q, "TestQueueNames-"), q)
				require.LessOrEqual(t, len(q), 53)
				require.False(t, seen[q])
				seen[q] = true
			}
		})
	}
}
