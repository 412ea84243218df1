package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	assert.Equal(t, name+": unlimited\n", ok(t, "limits", "get", name))
	assert.Equal(t, name+": 60/1m0s, was unlimited\n", ok(t, "limits", "set", name, "60/1m"))
	assert.Equal(t, name+": 3/1m0s, was 60/1m0s\n", ok(t, "limits", "set", name, "3/1m", "--reason", "plan"))
	reason, err := emqtest.Client(t).Do(t.Context(), emqtest.Client(t).B().Hget().Key("emq:{"+name+"}:meta").Field("limit_reason").Build()).ToString()
	require.NoError(t, err)
	assert.Equal(t, "plan", reason)

	ok(t, "enqueue", name, "a")
	ok(t, "enqueue", name, "b")
	ok(t, "enqueue", name, "c")
	claimer, err := claim.New(emqtest.Client(t), name, claim.Options{})
	require.NoError(t, err)
	_, err = claimer.Claim(t.Context(), 2)
	require.NoError(t, err)
	b := decode[budgetJSON](t, ok(t, "limits", "get", name, "--json"))
	assert.InDelta(t, time.Now().UnixMilli(), b.AtMS, 5000)
	assert.InDelta(t, 60_000, b.ResetAfterMS, 5000)
	b.AtMS, b.ResetAfterMS = 0, 0
	assert.Equal(t, budgetJSON{Queue: name, Configured: true, Algorithm: "fixed_window", Max: 3, WindowMS: 60_000, Used: 2, Remaining: 1}, b)

	_, err = claimer.Claim(t.Context(), 5)
	require.NoError(t, err)
	_, err = q.Pause(t.Context(), "")
	require.NoError(t, err)
	assert.Regexp(t, name+`: 3/1m0s, 3 used, 0 remaining, window ends in \S+, refuses now, paused\n`, ok(t, "limits", "get", name))

	ok(t, "limits", "reset", name)
	assert.EqualValues(t, 3, decode[budgetJSON](t, ok(t, "limits", "get", name, "--json")).Remaining)
	assert.Equal(t, name+": 3/1m0s token_bucket burst=5, was 3/1m0s\n", ok(t, "limits", "set", name, "3/1m", "--algorithm", "token_bucket", "--burst", "5"))
	assert.Equal(t, name+": 4/1m0s token_bucket burst=5, was 3/1m0s token_bucket burst=5\n", ok(t, "limits", "set", name, "4/1m"))
	assert.EqualValues(t, 5, decode[budgetJSON](t, ok(t, "limits", "get", name, "--json")).Remaining)
	ok(t, "limits", "set", name, "3/1m", "--algorithm", "fixed_window")

	c := decode[changeJSON](t, ok(t, "limits", "unset", name, "--json"))
	assert.Equal(t, changeJSON{Queue: name, WasMax: 3, WasWindowMS: 60_000}, c)
	b = decode[budgetJSON](t, ok(t, "limits", "get", name, "--json"))
	assert.False(t, b.Configured)
	assert.EqualValues(t, -1, b.Remaining)
}

func TestBrokenLimit(t *testing.T) {
	t.Parallel()
	q, name := newTestQueue(t)
	client := emqtest.Client(t)
	require.NoError(t, client.Do(t.Context(), client.B().Hset().Key("emq:{"+name+"}:meta").FieldValue().FieldValue("max", "many").Build()).Error())
	_, err := q.Limit(t.Context())
	require.Error(t, err)

	for _, flags := range [][]string{nil, {"--json"}} {
		a := emq(t, append([]string{"limits", "get", name}, flags...)...)
		assert.Equal(t, exitFailure, a.code)
		contains(t, a.stderr, "max", `"many"`)
		if flags != nil {
			contains(t, decode[map[string]string](t, a.stdout)["broken"], "max", `"many"`)
		}
	}
	s := decode[[]statsJSON](t, ok(t, "stats", name, "--json"))
	contains(t, s[0].Broken, "max", `"many"`)
	contains(t, ok(t, "stats", name), "broken: ", `"many"`)
	ok(t, "limits", "set", name, "5/1s")
	assert.Empty(t, decode[[]statsJSON](t, ok(t, "stats", name, "--json"))[0].Broken)
}
