package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/valkeyd"
)

const canary = "c4nary"

// commands is a command line of each kind that connects.
var commands = []string{
	"run -q q --log", "enqueue q x", "limits get q", "limits set q 1/1s", "limits unset q", "stats", "job get q a", "job ls q",
	"job run q a", "job redrive q --all", "job rm q a", "queue ls", "queue pause q", "queue resume q", "queue drain q --confirm=q",
	"demo", "demo-worker -q q", "verify --for 1s", "verify-worker -q q --ledger x", "serve --addr 127.0.0.1:0", "doctor q", "run -q q --http https://example.org",
	"limits ls q", "limits check q", "limits reset q", "limits close q --for 1s", "limits reopen q", "job explain q a",
}

// noServer are commands that connect to none.
var noServer = []string{"version"}

// The list has every command.
func TestCommandsAreListed(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() && !slices.Contains(noServer, path(cmd)) {
			assert.True(t, slices.ContainsFunc(commands, func(c string) bool { return strings.HasPrefix(c+" ", path(cmd)+" ") }), path(cmd))
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&app{}))
}

func TestNoErrorShowsThePassword(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{TCP: true, Args: []string{"--requirepass", "another"}})
	require.NoError(t, err)
	defer server.Stop()
	host := strings.TrimPrefix(server.URL(), "valkey://")
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(canary+"\n"), 0o600))

	for _, url := range []string{
		"valkey://:" + canary + "@" + host, "valkey://user:" + canary + "@" + host, "valkey://" + canary + ":" + canary + "@" + host,
		"valkey://:" + canary + "@127.0.0.1:1", "valkeys://:" + canary + "@" + host, "unix://:" + canary + "@/nonesuch",
		"valkey://:" + canary + "@:bad", "valkey://:" + canary + "/x@" + host, "valkey://:1/" + canary + "@" + host,
		"valkey://:%zz" + canary + "@" + host, "valkey://:1#" + canary + "@" + host, "valkey://" + canary + " @" + host,
		canary + "://" + host, canary + "@" + host, ":" + canary, "valkey://:" + canary + "@" + host + "?skip_verify=1",
		"valkey://:" + canary + "@" + host + "?db=x", "valkey://:" + canary + "@" + host + "/1/2",
	} {
		a := bare("", "stats", "--url", url)
		assert.Contains(t, []int{exitUsage, exitUnreachable}, a.code, "%s: %s", url, a.stderr)
		assert.NotContains(t, a.stdout+a.stderr, canary, url)
	}
	for _, command := range commands {
		for _, server := range [][]string{{"--url", "valkey://:" + canary + "@" + host}, {"--url", server.URL(), "--password-file", file}} {
			a := bare("", append(strings.Fields(command), server...)...)
			assert.Equal(t, exitUnreachable, a.code, "%s: %s", command, a.stderr)
			assert.NotContains(t, a.stdout+a.stderr, canary, command)
		}
	}
}

func TestPasswordFile(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{Args: []string{"--requirepass", canary}})
	require.NoError(t, err)
	defer server.Stop()
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(canary+"\n"), 0o600))
	a := bare("", "stats", "--url", server.URL(), "--password-file", file)
	assert.Equal(t, 0, a.code, a.stderr)
	a = bare("", "stats", "--url", server.URL())
	assert.Equal(t, exitUnreachable, a.code)
	assert.Contains(t, a.stderr, "NOAUTH")
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	for _, url := range []string{"valkey://127.0.0.1:1", "unix:///nonesuch", "valkey://" + silent.Addr().String()} {
		begin := time.Now()
		a := bare("", "run", "-q", "q", "--log", "--url", url)
		assert.Equal(t, exitUnreachable, a.code, a.stderr)
		assert.Contains(t, a.stderr, "cannot reach Valkey at "+url[strings.Index(url, "//")+2:])
		assert.Less(t, time.Since(begin), 5*time.Second)
	}
}

func TestServerOfTheEnvironment(t *testing.T) {
	t.Parallel()
	p := startWith(t, []string{"VALKEY_URL=", "REDIS_URL=" + emqtest.URL(t)}, "queue", "ls")
	assert.Equal(t, 0, p.wait(t))
	assert.Contains(t, p.stderr.String(), "taking the server of REDIS_URL")

	p = startWith(t, []string{"VALKEY_URL=" + emqtest.URL(t), "REDIS_URL=unix:///nonesuch"}, "queue", "ls")
	assert.Equal(t, 0, p.wait(t))
	assert.Empty(t, p.stderr.String())

	p = startWith(t, []string{"VALKEY_URL=unix:///nonesuch"}, "queue", "ls", "--url", emqtest.URL(t))
	assert.Equal(t, 0, p.wait(t), p.stderr.String())
}

func TestTLSTowardsAPlainServerIsHintedAt(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{TCP: true})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	a := emq(t, "stats", "--url", strings.Replace(server.URL(), "valkey://", "valkeys://", 1))
	assert.Equal(t, exitUnreachable, a.code)
	assert.Contains(t, a.stderr, "does the server speak it on this port?")
}
