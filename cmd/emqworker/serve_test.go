package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

func TestServeUsage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(file, []byte("ana:hunter2\n"), 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--addr", "0.0.0.0:0"}, "give --auth-file"},
		{[]string{"--addr", ":9464"}, "give --auth-file"},
		{[]string{"--addr", "[::]:9464"}, "give --auth-file"},
		{[]string{"--addr", "192.168.1.2:9464", "--allow-actions"}, "give --auth-file"},
		{[]string{"--addr", "example.org:80"}, "give --auth-file"},
		{[]string{"--addr", "9464"}, "is no address"},
		{[]string{"--auth-file", file}, "none of bcrypt"},
		{[]string{"--auth-file", file + "x"}, "no such file"},
		{[]string{"--base-path", "emq"}, "does not begin with /"},
	} {
		r := emq(t, append([]string{"serve"}, c.args...)...)
		assert.Equal(t, 2, r.code, c.args)
		assert.Contains(t, r.stderr, c.want, c.args)
		assert.NotContains(t, r.stderr, "hunter2")
	}
}

var servedAt = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// What the dashboard says of a paused queue is what stats says.
func TestServeAgreesWithStats(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	_, err := q.SetLimit(t.Context(), limiter.PerHour(100), "")
	require.NoError(t, err)
	_, err = q.EnqueueMany(t.Context(), make([]queue.Job, 7))
	require.NoError(t, err)
	_, err = q.Enqueue(t.Context(), queue.Job{Delay: time.Hour})
	require.NoError(t, err)
	_, err = q.Pause(t.Context(), "to look")
	require.NoError(t, err)
	p := startWith(t, []string{"VALKEY_URL=" + emqtest.URL(t)}, "serve", "--addr", "127.0.0.1:0")
	var base string
	require.Eventually(t, func() bool { base = servedAt.FindString(p.stderr.String()); return base != "" }, time.Minute, 10*time.Millisecond)
	read := func(path string, v any) {
		a, err := http.Get(base + path)
		require.NoError(t, err)
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		require.Equal(t, 200, a.StatusCode, string(body))
		require.NoError(t, json.Unmarshal(body, v))
	}
	var stats []statsJSON
	require.NoError(t, json.Unmarshal([]byte(ok(t, "stats", name, "--json")), &stats))
	var counts statsJSON
	read("/v1/queues/"+name+"/counts", &counts)
	var budgets struct {
		Limits []struct{ Buckets []statsJSON }
	}
	read("/v1/queues/"+name+"/budgets", &budgets)
	s, b := stats[0], budgets.Limits[0].Buckets[0]
	assert.Equal(t, []any{s.Wait, s.Active, s.Delayed, s.DelayedOwn, s.SentBack, s.Dead, s.Completed, s.Paused},
		[]any{counts.Wait, counts.Active, counts.Delayed, counts.DelayedOwn, counts.SentBack, counts.Dead, counts.Completed, counts.Paused})
	assert.Equal(t, []int64{s.Max, s.WindowMS, s.Used, s.Remaining}, []int64{b.Max, b.WindowMS, b.Used, b.Remaining})
	assert.Positive(t, counts.AtMS)
	http.DefaultClient.CloseIdleConnections()
	p.signal(t, syscall.SIGTERM)
	assert.Equal(t, 0, p.wait(t), p.stderr.String())
}
