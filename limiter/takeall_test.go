package limiter_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

func takeAll(t *testing.T, l *limiter.Limiter, op string, buckets []limiter.Bucket, n int64) (limiter.Joint, error) {
	t.Helper()
	if op == "upto" {
		return l.TakeAllUpTo(t.Context(), buckets, n)
	}
	return l.TakeAll(t.Context(), buckets, n)
}

func TestVectorsOfSeveralBuckets(t *testing.T) {
	t.Parallel()
	var file vectors
	load(t, "testdata/multi.json", &file)
	require.NotEmpty(t, file.Vectors)
	l, clock, _ := onVirtualClock(t)
	for _, v := range file.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			var buckets []limiter.Bucket
			var models []*limiter.Model
			var limits []limiter.Limit
			for i, member := range v.Limits {
				limit, err := limiter.Parse(member.Config.text(member.Algorithm))
				require.NoError(t, err)
				buckets = append(buckets, limiter.Bucket{Key: "{" + v.ID + "}" + strconv.Itoa(i), Limit: limit})
				models, limits = append(models, new(limiter.Model)), append(limits, limit)
			}
			for i, s := range v.Steps {
				now := file.Base + s.T
				clock.Set(now)
				got, err := takeAll(t, l, s.Op, buckets, s.N)
				require.NoError(t, err)
				want, err := limiter.TakeAllOfModels(now, s.Op == "upto", models, limits, s.N)
				require.NoError(t, err)
				for _, joint := range []limiter.Joint{got, want} {
					a := answerOf(t, joint.Decision, nil)
					a.Reset = 0 // the vectors do not say
					a.DeniedBy = append([]int{}, joint.DeniedBy()...)
					require.Equal(t, s.Expect, a, "%s, step %d: @%d %s %d", v.Desc, i, s.T, s.Op, s.N)
				}
			}
		})
	}
}

// Random buckets of all algorithms, taken from together, agree with the models, and one alone with a single call.
func TestModelsAgreeOnSeveralBuckets(t *testing.T) {
	t.Parallel()
	r := random(t)
	l, clock, client := onVirtualClock(t)
	denied, granted := 0, 0
	for round := range *calls / 50 {
		var buckets []limiter.Bucket
		var models []*limiter.Model
		var limits []limiter.Limit
		for i := range 1 + r.IntN(5) {
			limit := randomLimit(r, pick(r, algorithms...))
			limit.CountDenied = limit.Algorithm == limiter.FixedWindow && r.IntN(4) == 0
			if r.IntN(6) == 0 {
				limit = limiter.Limit{}
			}
			buckets = append(buckets, limiter.Bucket{Key: fmt.Sprintf("{%d}%d", round, i), Limit: limit})
			models, limits = append(models, new(limiter.Model)), append(limits, limit)
		}
		limits[0] = randomLimit(r, pick(r, algorithms...)) // without one, nobody is asked
		buckets[0].Limit = limits[0]
		now := start
		for range 10 {
			now += pick(r, 0, 1, r.Int64N(20), r.Int64N(200), -r.Int64N(100))
			clock.Set(now)
			op, n := pick(r, "take", "upto"), r.Int64N(8)
			got, err := takeAll(t, l, op, buckets, n)
			require.NoError(t, err)
			want, err := limiter.TakeAllOfModels(now, op == "upto", models, limits, n)
			require.NoError(t, err)
			require.Equal(t, want, got, "%v: %s %d", limits, op, n)
			for i, b := range buckets {
				require.Equal(t, stateOf(models[i], now), serverState(t, client, limiter.DefaultPrefix+b.Key))
			}
			if got.Allowed {
				granted++
			} else {
				denied++
			}
		}
	}
	t.Logf("%d granted, %d denied", granted, denied)
	require.Positive(t, granted)
	require.Positive(t, denied)
}

func TestTakeAllRefusesNonsense(t *testing.T) {
	t.Parallel()
	client, tag := emqtest.Client(t), "{"+emqtest.Queue(t)+"}"
	l := newLimiter(t, client)
	many := make([]limiter.Bucket, limiter.MaxBuckets+1)
	for i := range many {
		many[i] = limiter.Bucket{Key: tag + strconv.Itoa(i), Limit: limiter.PerHour(1)}
	}
	for says, c := range map[string]struct {
		is      error
		buckets []limiter.Bucket
		n       int64
	}{
		"0 of them; want 1 to 100":    {limiter.ErrBadBuckets, nil, 1},
		"101 of them":                 {limiter.ErrBadBuckets, many, 1},
		"0 and 2 have the same key":   {limiter.ErrBadBuckets, []limiter.Bucket{many[0], many[1], many[0]}, 1},
		`bucket 1, "": emq: bad name`: {lua.ErrBadName, []limiter.Bucket{many[0], {Limit: limiter.PerHour(1)}}, 1},
		"max is -1":                   {limiter.ErrBadLimit, []limiter.Bucket{many[0], {Key: tag, Limit: limiter.PerHour(-1)}}, 1},
		"-1 units":                    {limiter.ErrBadCost, many[:2], -1},
		`:a" lies in slot 3542`:       {limiter.ErrCrossSlot, []limiter.Bucket{{"a", limiter.PerHour(1)}, {"b", limiter.PerHour(1)}}, 1},
	} {
		for _, op := range []string{"take", "upto"} {
			joint, err := takeAll(t, l, op, c.buckets, c.n)
			require.ErrorIs(t, err, c.is, says)
			require.ErrorContains(t, err, says)
			require.Zero(t, joint)
		}
	}
	joint, err := l.TakeAll(t.Context(), many[:limiter.MaxBuckets], 1)
	require.NoError(t, err)
	assert.True(t, joint.Allowed)
	joint, err = l.TakeAll(t.Context(), many[:limiter.MaxBuckets], 1)
	require.NoError(t, err)
	assert.Len(t, joint.DeniedBy(), limiter.MaxBuckets)
}

// A bucket that cannot be read is named, and nothing is taken of the others.
func TestTakeAllWithACorruptBucket(t *testing.T) {
	t.Parallel()
	client, tag := emqtest.Client(t), "{"+emqtest.Queue(t)+"}"
	l := newLimiter(t, client)
	buckets := []limiter.Bucket{{tag + "whole", limiter.PerHour(5)}}
	for _, algorithm := range algorithms {
		key := tag + string(algorithm)
		for _, spoil := range [][]string{{"SET", limiter.DefaultPrefix + key, "12x"}, {"RPUSH", limiter.DefaultPrefix + key, "x"}} {
			send(t, client, "DEL", limiter.DefaultPrefix+key)
			send(t, client, spoil...)
			_, err := l.TakeAll(t.Context(), append(buckets, limiter.Bucket{Key: key, Limit: limiter.Limit{Algorithm: algorithm, Max: 5}}), 1)
			var corrupt *lua.CorruptError
			require.ErrorAs(t, err, &corrupt)
			assert.Equal(t, limiter.DefaultPrefix+key, corrupt.Key)
		}
	}
	d, err := l.Peek(t.Context(), buckets[0].Key, buckets[0].Limit, 5)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
}

func TestTakeAllWithoutAStore(t *testing.T) {
	t.Parallel()
	dead := func() (valkey.Client, error) { return nil, errors.New("nobody there") }
	buckets := []limiter.Bucket{
		{"{a}1", limiter.Limit{}}, {"{a}2", limiter.PerSecond(5)}, {"{a}3", limiter.Limit{Algorithm: limiter.LeakyBucket, Max: 9, Window: 9 * time.Hour}},
	}
	type answer struct {
		allowed bool
		granted int64
		retry   time.Duration
		denied  int
	}
	for onError, want := range map[limiter.OnError]map[int64]answer{
		limiter.FailOpen:   {1: {true, 1, 0, 0}, 2: {false, 0, limiter.Never, 1}},
		limiter.FailClosed: {1: {false, 0, time.Second, 2}, 2: {false, 0, limiter.Never, 2}},
	} {
		var observed string
		l, err := limiter.NewLazy(dead, limiter.Options{OnError: onError, Observe: func(key string, err error) { observed = key }})
		require.NoError(t, err)
		for n, want := range want {
			got, err := l.TakeAll(t.Context(), buckets, n)
			require.NoError(t, err)
			assert.Equal(t, want, answer{got.Allowed, got.Granted, got.RetryAfter, len(got.DeniedBy())}, "%v %d", onError, n)
			assert.NotEqual(t, limiter.Store, got.Source)
			assert.Len(t, got.Each, 3)
			assert.Equal(t, "{a}1", observed)
		}
		unlimited, err := l.TakeAll(t.Context(), buckets[:1], 3)
		require.NoError(t, err, "needs no store")
		assert.Equal(t, limiter.Decision{Allowed: true, Granted: 3, Remaining: -1, Source: limiter.Store}, unlimited.Decision)
	}
	l, err := limiter.NewLazy(dead, limiter.Options{})
	require.NoError(t, err)
	_, err = l.TakeAll(t.Context(), buckets, 1)
	require.ErrorIs(t, err, limiter.ErrUnavailable)
}
