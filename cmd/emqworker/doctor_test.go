package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/internal/doctor"
	"github.com/echomq/emq/internal/valkeyd"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	at := func(code int, args ...string) answer {
		t.Helper()
		a := bare("", append([]string{"doctor", "--url", server.URL()}, args...)...)
		require.Equal(t, code, a.code, a.stdout+a.stderr)
		return a
	}
	require.Equal(t, 0, bare("", "enqueue", "mail", "x", "--url", server.URL()).code)
	assert.Contains(t, at(0, "mail").stdout, "mail: places")
	at(1, "mail", "--strict") // it keeps no append-only file
	require.NoError(t, client.Do(t.Context(), client.B().Set().Key("emq:{mail}:limiter").Value("3").Build()).Error())
	assert.Contains(t, at(1, "mail").stdout, "-> --fix: PEXPIRE emq:{mail}:limiter 1000 NX")
	var findings []doctor.Finding
	require.NoError(t, json.Unmarshal([]byte(at(1, "--all", "--json").stdout), &findings))
	assert.NotEmpty(t, findings)
	at(0, "--all", "--fix")
	at(0, "--all")
	assert.Equal(t, exitUsage, bare("", "doctor", "a b", "--url", server.URL()).code)
}
