package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// What an operator does is asked for before it is done: a user without a command of its script is told so, and nothing was changed.
func TestF32OperatorWithoutACommand(t *testing.T) {
	t.Parallel()
	owner, ctx := emqtest.Client(t), t.Context()
	name := emqtest.Queue(t)
	require.NoError(t, owner.Do(ctx, owner.B().Arbitrary("ACL", "SETUSER", name, "on", ">x", "~*", "&*", "+@all", "-hset", "-zadd", "-rename", "-rpush", "-unlink", "-hdel").Build()).Error())
	t.Cleanup(func() {
		_ = owner.Do(context.Background(), owner.B().Arbitrary("ACL", "DELUSER", name).Build()).Error()
	})
	options, err := valkey.ParseURL(emqtest.URL(t))
	require.NoError(t, err)
	options.Username, options.Password = name, "x"
	client, err := valkey.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	all, err := queue.New(owner, name, queue.Options{})
	require.NoError(t, err)
	_, err = all.Enqueue(ctx, queue.Job{ID: "a", Delay: time.Hour})
	require.NoError(t, err)
	_, err = all.Pause(ctx, "")
	require.NoError(t, err)
	q, err := queue.New(client, name, queue.Options{})
	require.NoError(t, err)
	for what, do := range map[string]func() error{
		"enqueue": func() error { _, err := q.Enqueue(ctx, queue.Job{}); return err },
		"limit":   func() error { _, err := q.SetLimit(ctx, limiter.PerSecond(1), ""); return err },
		"reset":   func() error { return q.ResetLimit(ctx, "") },
		"named": func() error {
			_, err := q.SetNamedLimit(ctx, queue.NamedLimit{Name: "x", Limit: limiter.PerSecond(1)}, "")
			return err
		},
		"close":     func() error { _, err := q.Close(ctx, time.Second, ""); return err },
		"reopen":    func() error { return q.Reopen(ctx, "") },
		"pause":     func() error { _, err := q.Pause(ctx, ""); return err },
		"resume":    func() error { _, err := q.Resume(ctx, ""); return err },
		"run":       func() error { return q.RunNow(ctx, "a") },
		"redrive":   func() error { return q.Redrive(ctx, "a") },
		"delete":    func() error { return q.Delete(ctx, "a") },
		"all dead":  func() error { _, err := q.RedriveDead(ctx, ""); return err },
		"dead gone": func() error { _, err := q.DeleteDead(ctx, ""); return err },
		"drain":     func() error { _, err := q.Drain(ctx, true); return err },
	} {
		assert.ErrorIs(t, do(), queue.ErrNoAccess, what)
	}
	s, err := all.Get(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, queue.Delayed, s.State)
	n, err := q.Counts(ctx)
	require.NoError(t, err)
	assert.True(t, n.Paused)
}
