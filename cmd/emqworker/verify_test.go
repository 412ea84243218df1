package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
)

// verifyJSON runs verify and returns what it found.
func verifyJSON(t *testing.T, code int, args ...string) verifyResult {
	t.Helper()
	p := startWith(t, nil, append([]string{"verify", "--json"}, args...)...)
	require.Equal(t, code, p.wait(t), p.stdout.String()+p.stderr.String())
	var r verifyResult
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &r), p.stdout.String())
	return r
}

func TestVerifyHolds(t *testing.T) {
	t.Parallel()
	r := verifyJSON(t, 0, "--for", "5s", "--kill-every", "400ms", "--workers", "3")
	assert.Empty(t, r.Violations)
	assert.Equal(t, []int{0, 0, 0, 0, 0}, []int{r.Over, r.Under, r.Lost, r.RunTwice, r.Left})
	for what, n := range map[string]int{"kills": r.Kills + r.Stops, "windows": r.Windows, "admitted": r.Admitted, "completed": r.Completed, "sent back": r.SentBack} {
		assert.Positive(t, n, what)
	}
	assert.Equal(t, r.Enqueued, r.Completed+r.Dead, "all was drained")
}

// It runs on a server that is there, and leaves nothing behind.
func TestVerifyOnAServer(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{TCP: true})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	p := startWith(t, nil, "--url", server.URL(), "verify", "--for", "2s", "--kill-every", "0", "--workers", "2", "--seed", "7")
	require.Equal(t, 0, p.wait(t), p.stdout.String()+p.stderr.String())
	assert.Contains(t, p.stdout.String(), "Seed: 7.")
	assert.Contains(t, p.stdout.String(), "HELD: 0 kills and 0 stops")
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	keys, err := client.Do(t.Context(), client.B().Keys().Pattern("*").Build()).AsStrSlice()
	require.NoError(t, err)
	assert.Empty(t, keys)
}

// A signal ends it early, with what it found so far.
func TestVerifyEndsEarly(t *testing.T) {
	t.Parallel()
	p := startWith(t, nil, "verify", "--for", "1h", "--workers", "2", "--kill-every", "0")
	require.Eventually(t, func() bool { return strings.Contains(p.stdout.String(), "worker processes") }, time.Minute, 10*time.Millisecond)
	p.signal(t, syscall.SIGINT)
	require.Equal(t, 0, p.wait(t), p.stdout.String()+p.stderr.String())
	assert.Contains(t, p.stdout.String(), "HELD: ")
}

// A bug that is planted in a copy of the scripts is found.
func TestVerifyFindsPlantedBugs(t *testing.T) {
	t.Parallel()
	for name, bug := range map[string]struct {
		file, line, instead string
		over                bool
	}{
		"a spend that counts one for many": {"include/fixed_window.lua", "call('INCRBY', b.key, b.change == 1 and '1' or text(b.change))",
			"call('INCRBY', b.key, '1')", true},
		"a window that each claim prolongs": {"include/fixed_window.lua", "if b.repair then call('PEXPIRE', b.key, text(b.left)) end",
			"call('PEXPIRE', b.key, text(b.window))", false},
		"a spend for nothing": {"claim.lua", "if own.max > 0 then buckets.write(budget) end",
			"if own.max > 0 then buckets.spend(budget, 1) buckets.write(budget) end", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ok(t, "verify", "--write-scripts", dir)
			path := filepath.Join(dir, bug.file)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), bug.line))
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), bug.line, bug.instead, 1)), 0o600))
			r := verifyJSON(t, 1, "--scripts", dir, "--for", "4s", "--kill-every", "0", "--workers", "2")
			if bug.over {
				assert.Positive(t, r.Over)
			}
			assert.Positive(t, r.Over+r.Under) // a claim of one job that withholds it for another is over: that one is not the next in order
			require.NotEmpty(t, r.Violations)
			assert.Equal(t, "I8", r.Violations[0].Invariant)
		})
	}
}

func TestVerifyUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"verify", "--for", "1ms"}, "--for is 1ms"},
		{[]string{"verify", "--kill-every", "1ms"}, "--kill-every is 1ms"},
		{[]string{"verify", "--workers", "0"}, "--workers is 0"},
		{[]string{"--url", emqtest.URL(t), "verify", "--scripts", "x"}, "private server"},
		{[]string{"verify", "--scripts", t.TempDir()}, "--scripts"},
	} {
		r := emq(t, c.args...)
		assert.Equal(t, 2, r.code, c.args)
		assert.Contains(t, r.stderr, c.want, c.args)
	}
}
