package wire_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/faults/wire"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/queue"
)

func TestParse(t *testing.T) {
	t.Parallel()
	p, err := wire.Parse("settle:reply:2:cut")
	require.NoError(t, err)
	assert.Equal(t, wire.Point{Script: "settle", Moment: wire.Reply, N: 2, Act: wire.Cut}, p)
	for _, bad := range []string{"", "settle", "none:send:1:kill", "settle:later:1:kill", "settle:send:0:kill", "settle:send:x:kill", "settle:send:1:sing"} {
		_, err := wire.Parse(bad)
		assert.ErrorContains(t, err, "is no point", bad)
	}
}

// The n-th call fails, before the server has it or after the server ran it; those before and after do not.
func TestCut(t *testing.T) {
	t.Parallel()
	for moment, left := range map[string]int64{wire.Send: 3, wire.Reply: 2} {
		name := emqtest.Queue(t)
		q, err := queue.New(emqtest.Client(t), name, queue.Options{})
		require.NoError(t, err)
		_, err = q.EnqueueMany(t.Context(), make([]queue.Job, 4))
		require.NoError(t, err)
		plain := emqtest.Client(t)
		require.NoError(t, plain.Do(t.Context(), plain.B().ScriptLoad().Script(lua.Source("claim")).Build()).Error())
		options, err := valkey.ParseURL(emqtest.URL(t))
		require.NoError(t, err)
		options.DisableRetry = true
		wire.Point{Script: "claim", Moment: moment, N: 2, Act: wire.Cut}.Wrap(&options)
		client, err := valkey.NewClient(options)
		require.NoError(t, err)
		c, err := claim.New(client, name, claim.Options{})
		require.NoError(t, err)
		b, err := c.Claim(t.Context(), 1)
		require.NoError(t, err)
		require.Len(t, b.Jobs, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err = c.Claim(ctx, 1)
		cancel()
		require.Error(t, err)
		n, err := q.Counts(t.Context())
		require.NoError(t, err)
		assert.Equal(t, left, n.Wait, moment)
		require.Eventually(t, func() bool { _, err := c.Claim(t.Context(), 1); return err == nil }, time.Minute, 10*time.Millisecond)
		client.Close()
	}
}
