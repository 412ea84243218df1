package claim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

// costVectors is a file of vectors of one algorithm; package limiter runs all of them.
type costVectors struct {
	Base      int64 `json:"base_ms"`
	Algorithm limiter.Algorithm
	Vectors   []struct {
		ID, Desc string
		Config   vectorConfig
		Steps    []vectorStep
	}
}

type vectorConfig struct {
	Limit       *int64
	Window      *int64 `json:"window_ms"`
	Burst       *int64
	Capacity    *int64
	Aligned     bool
	CountDenied bool `json:"count_denied"`
}

func (c *vectorConfig) set(other vectorConfig) {
	for _, f := range []struct{ field, value **int64 }{{&c.Limit, &other.Limit}, {&c.Window, &other.Window}, {&c.Burst, &other.Burst}} {
		if *f.value != nil {
			*f.field = *f.value
		}
	}
}

type vectorStep struct {
	T      int64
	Op     string
	N      int64
	Set    vectorConfig
	Kind   string
	Value  json.RawMessage
	TTL    any `json:"pttl_ms"`
	Expect struct {
		Error              string
		Allowed            bool
		Granted, Remaining int64
		Retry              int64 `json:"retry_after_ms"`
		Reset              int64 `json:"reset_after_ms"`
	}
}

// Each take of the algorithms' vectors as a job of that cost, and each upto as a claim of so many jobs of cost 1, under a limit by
// cost. Left out is what no claim can do: the options of package limiter alone, leaky buckets that hold more than one, costs of 0 and
// costs that can never be granted; a vector ends where it refunds.
func TestCostVectors(t *testing.T) {
	t.Parallel()
	q, c, clock, client := clocked(t)
	ctx := t.Context()
	calls := 0
	for _, algorithm := range []string{"fixed_window", "sliding_log", "sliding_window_counter", "token_bucket", "leaky_bucket"} {
		text, err := os.ReadFile("../limiter/testdata/" + algorithm + ".json")
		require.NoError(t, err)
		var file costVectors
		require.NoError(t, json.Unmarshal(text, &file))
		clock.Set(file.Base)
		for _, v := range file.Vectors {
			config, name := v.Config, v.ID
			if config.Aligned || config.CountDenied || config.Capacity != nil && *config.Capacity > 1 {
				continue
			}
			set := func() error {
				l := queue.NamedLimit{Name: name, Unit: "u", Limit: limiter.Limit{Algorithm: file.Algorithm, Max: *config.Limit, Window: ms(*config.Window)}}
				if config.Burst != nil {
					l.Burst = *config.Burst
				}
				if l.Max == 0 {
					if _, err := q.RemoveNamedLimit(ctx, name, ""); !errors.Is(err, queue.ErrNoLimit) {
						return err
					}
					return nil
				}
				_, err := q.SetNamedLimit(ctx, l, "")
				return err
			}
			bad := set()
			key := "emq:{" + q.Name() + "}:limiter:" + name
			for i, s := range v.Steps {
				where := fmt.Sprintf("%s step %d: %s: @%d %s %d", v.ID, i, v.Desc, s.T, s.Op, s.N)
				now := file.Base + s.T
				clock.Set(now)
				if s.Op == "refund" {
					break
				}
				switch s.Op {
				case "config":
					config.set(s.Set)
					bad = set()
					continue
				case "state":
					putState(t, client, key, file.Algorithm, now, config, s)
					continue
				case "reset":
					require.NoError(t, q.ResetNamedLimit(ctx, name, ""), where)
					continue
				}
				if *config.Window == 0 {
					continue // which is left out here, and keeps the value that is set
				}
				if s.Expect.Error == "invalid_config" {
					require.ErrorIs(t, bad, limiter.ErrBadLimit, where)
					continue
				}
				require.NoError(t, bad, where)
				if s.Op == "peek" || s.N <= 0 || s.Expect.Error == "invalid_argument" || s.Expect.Retry < 0 && s.Expect.Error == "" || *config.Limit == 0 {
					continue
				}
				calls++
				jobs := []queue.Job{{ID: "cost", Cost: map[string]int64{"u": s.N}}}
				k := 1
				if s.Op == "upto" {
					k = int(s.N)
					jobs = make([]queue.Job, k)
					for j := range jobs {
						jobs[j] = queue.Job{ID: "j" + strconv.Itoa(j), Cost: map[string]int64{"u": 1}}
					}
				}
				_, err := q.EnqueueMany(ctx, jobs)
				require.NoError(t, err, where)
				b, err := c.Claim(ctx, k)
				if s.Expect.Error != "" {
					var corrupt *lua.CorruptError
					require.ErrorAs(t, err, &corrupt, where)
					require.Equal(t, key, corrupt.Key)
				} else {
					require.NoError(t, err, where)
					want := s.Expect.Granted
					if s.Op == "take" {
						want = min(1, want)
					}
					require.EqualValues(t, want, len(b.Jobs), where)
					if len(b.Jobs) == 0 {
						require.NotEmpty(t, b.SentBack, where)
						require.Equal(t, s.Expect.Retry, b.SentBack[0].RetryAfter.Milliseconds(), where)
					}
					all, err := metrics.Budgets(ctx, client, q.Name(), 0)
					require.NoError(t, err, where)
					at := slices.IndexFunc(all.Limits, func(l metrics.Limit) bool { return l.Name == name })
					require.Equal(t, s.Expect.Remaining, all.Limits[at].Buckets[0].Remaining, where)
					require.Equal(t, s.Expect.Reset, all.Limits[at].Buckets[0].ResetAfter.Milliseconds(), where)
				}
				var done []claim.Outcome
				for _, j := range b.Jobs {
					done = append(done, claim.Complete(j))
				}
				_, err = c.Settle(ctx, done)
				require.NoError(t, err, where)
				_, err = q.Drain(ctx, true)
				require.NoError(t, err, where)
			}
			if _, err := q.RemoveNamedLimit(ctx, name, ""); err != nil {
				require.ErrorIs(t, err, queue.ErrNoLimit)
			}
		}
	}
	require.Greater(t, calls, 200)
	t.Logf("%d claims", calls)
}

// putState puts the state of a step into the bucket's key.
func putState(t *testing.T, client valkey.Client, key string, algorithm limiter.Algorithm, now int64, config vectorConfig, s vectorStep) {
	t.Helper()
	do := func(args ...string) {
		require.NoError(t, client.Do(t.Context(), client.B().Arbitrary(args...).Build()).Error())
	}
	do("DEL", key)
	window := *config.Window
	var text string
	switch {
	case s.Kind == "wrongtype" && algorithm == limiter.SlidingLog:
		do("SET", key, "another type")
	case s.Kind == "wrongtype":
		do("ZADD", key, "1", "x")
	case json.Unmarshal(s.Value, &text) == nil:
		do("SET", key, text)
	case algorithm == limiter.SlidingLog:
		var times []int64
		require.NoError(t, json.Unmarshal(s.Value, &times))
		for i, at := range times {
			do("ZADD", key, strconv.FormatInt(now+at, 10), fmt.Sprintf("%016d", i+1))
		}
	case algorithm == limiter.SlidingWindowCounter:
		var state struct{ Cur, Prev, Idx int64 }
		require.NoError(t, json.Unmarshal(s.Value, &state))
		do("SET", key, fmt.Sprint(window, now/window+state.Idx, state.Cur, state.Prev))
	default:
		var state struct {
			Used int64 `json:"used_tokens"`
			TS   int64
		}
		require.NoError(t, json.Unmarshal(s.Value, &state))
		q := window / gcd(*config.Limit, window)
		do("SET", key, fmt.Sprint(q, state.Used*q, now+state.TS))
	}
	if ttl, ok := s.TTL.(float64); ok {
		do("PEXPIREAT", key, strconv.FormatInt(now+int64(ttl), 10))
	}
}

func gcd(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
