package metrics_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/metrics"
)

func TestCounts(t *testing.T) {
	t.Parallel()
	client := emqtest.Client(t)
	q := newQueue(t, client)
	c, err := metrics.ReadCounts(t.Context(), client, q.name)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), c.At, 5*time.Second)
	c.At = time.Time{}
	assert.Zero(t, c)

	q.do("RPUSH", q.Prefix()+"wait:1", "a")
	q.do("RPUSH", q.Prefix()+"wait:4", "b", "c")
	q.do("ZADD", q.Prefix()+"wait:back", "1", "d")
	q.do("ZADD", q.Prefix()+"active", "1", "e|t", "2", "f|t")
	q.do("ZADD", q.Prefix()+"delayed", "1", "g", "2", "h", "3", "i")
	q.do("ZADD", q.Prefix()+"delayed:sent", "1", "g")
	q.do("ZADD", q.Prefix()+"dead", "1", "j")
	q.do("ZADD", q.Prefix()+"completed", "1", "gone", "99999999999999", "k", "99999999999999", "l")
	q.do("HSET", q.Meta(), "paused", "1")
	c, err = metrics.ReadCounts(t.Context(), client, q.name)
	require.NoError(t, err)
	c.At = time.Time{}
	assert.Equal(t, metrics.Counts{Wait: 4, Active: 2, Delayed: 3, SentBack: 1, Dead: 1, Completed: 2, Paused: true}, c)
}
