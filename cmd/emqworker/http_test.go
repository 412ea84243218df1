package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRunHTTP(t *testing.T) {
	t.Parallel()
	_, name := newTestQueue(t)
	got := make(chan string, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Emq-Job-Id") + " " + string(body) + " " + r.Header.Get("Webhook-Signature")[:3]
	}))
	defer server.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600))
	ok(t, "enqueue", name, "--id", "a", "payload")
	ok(t, "run", "-q", name, "--drain", "--http", server.URL, "--http-private", "--http-secret-file", secret)
	assert.Equal(t, "a payload v1,", <-got)
}

func TestRunHTTPUsage(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("hunter2\n"), 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--log", "--http", "https://example.org"}, "want one of --log, --http and --exec"},
		{[]string{}, "want one of --log, --http and --exec"},
		{[]string{"--log", "--http-private"}, "--http-private needs --http"},
		{[]string{"--http", "http://example.org"}, "unencrypted"},
		{[]string{"--http", "https://127.0.0.1"}, "not of the public internet"},
		{[]string{"--http", "https://example.org", "x"}, "unexpected argument"},
		{[]string{"--http", "https://example.org", "--http-timeout", "-1s"}, "--http-timeout"},
		{[]string{"--http", "https://example.org", "--http-max-wait", "0"}, "--http-max-wait"},
		{[]string{"--http", "https://example.org", "--http-no-close", "--http-close-key", "model"}, "want one of --http-close-key and --http-no-close"},
		{[]string{"--http", "https://example.org", "--http-secret-file", secret}, "line 1 is no secret"},
		{[]string{"--http", "https://example.org", "--http-secret-file", secret + "x"}, "no such file"},
	} {
		r := emq(t, append([]string{"run", "-q", "q"}, c.args...)...)
		assert.Equal(t, 2, r.code, c.args)
		assert.Contains(t, r.stderr, c.want, c.args)
		assert.NotContains(t, r.stderr, "hunter2")
	}
}
