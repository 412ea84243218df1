package lua_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/lua"
)

func TestF46CheckServer(t *testing.T) {
	t.Parallel()
	s := server(t, valkeyd.Options{})
	q := queueOn(t, dial(t, s), nil)
	check := func(c valkey.Client, allowEviction bool) error { return lua.CheckServer(t.Context(), c, allowEviction) }
	require.NoError(t, check(q.client, false))

	q.run("CONFIG SET maxmemory-policy allkeys-lru")
	err := check(q.client, false)
	require.ErrorIs(t, err, lua.ErrEvicts)
	require.ErrorContains(t, err, "maxmemory-policy is allkeys-lru")
	require.NoError(t, check(q.client, true))

	q.run("ACL SETUSER worker on nopass ~* +@all -info")
	o := s.Options()
	o.Username, o.Password = "worker", "any"
	worker, err := valkey.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(worker.Close)
	require.Error(t, worker.Do(t.Context(), worker.B().Info().Build()).Error())
	require.NoError(t, check(worker, false), "what the server does not tell is not checked")

	worker.Close()
	require.ErrorContains(t, check(worker, false), "emq: checking the server: ")
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"7.1.9": true, "6.2.14": true, "0.0.1": true, "7.2.0": false, "7.2.11": false, "7.10.0": false, "8.0.1": false, "10.0.0": false,
		"": false, "7": false, "x.y": false, "255.255.255": false, "7.2.0-rc1": false,
	} {
		assert.Equal(t, want, lua.Older(version, 7, 2), version)
	}
}
