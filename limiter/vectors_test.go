package limiter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

// vectors is a file of testdata: what each call must answer, to the millisecond.
type vectors struct {
	Base      int64 `json:"base_ms"`
	Algorithm string
	Vectors   []struct {
		ID, Desc string
		Config   config
		Limits   []struct {
			Algorithm string
			Config    config
		}
		Steps []step
	}
}

type config struct {
	Limit       *int64
	Window      *int64 `json:"window_ms"`
	Burst       *int64
	Capacity    *int64
	Aligned     bool
	CountDenied bool `json:"count_denied"`
}

// set changes what the other configuration names.
func (c *config) set(other config) {
	for _, f := range []struct {
		field **int64
		value *int64
	}{{&c.Limit, other.Limit}, {&c.Window, other.Window}, {&c.Burst, other.Burst}, {&c.Capacity, other.Capacity}} {
		if f.value != nil {
			*f.field = f.value
		}
	}
}

// text is the configuration as Parse reads it.
func (c config) text(algorithm string) string {
	s := fmt.Sprintf("%d/%dms %s", *c.Limit, *c.Window, algorithm)
	for _, burst := range []*int64{c.Burst, c.Capacity} {
		if burst != nil {
			s += fmt.Sprintf(" burst=%d", *burst)
		}
	}
	if c.Aligned {
		s += " aligned"
	}
	if c.CountDenied {
		s += " count_denied"
	}
	return s
}

type step struct {
	T      int64  // ms after the base
	Op     string // take, upto, peek, refund, reset; config sets Set, state puts Value into the key
	N      int64
	Set    config
	Kind   string // "wrongtype": a key of another type
	Value  json.RawMessage
	TTL    any `json:"pttl_ms"` // ms or "none"
	Expect answer
}

type answer struct {
	Error     string
	Allowed   bool
	Granted   int64
	Limit     int64
	Remaining int64
	Retry     int64 `json:"retry_after_ms"`
	Reset     int64 `json:"reset_after_ms"`
	Delay     int64 `json:"delay_ms"`
	DeniedBy  []int `json:"denied_by"`
}

// answerOf writes a decision or an error as the vectors do.
func answerOf(t *testing.T, d limiter.Decision, err error) answer {
	t.Helper()
	var corrupt *lua.CorruptError
	if err != nil {
		assert.Zero(t, d)
	}
	switch {
	case err == nil:
		retry := d.RetryAfter.Milliseconds()
		if d.RetryAfter == limiter.Never {
			retry = -1
		}
		return answer{"", d.Allowed, d.Granted, d.Limit, d.Remaining, retry, d.ResetAfter.Milliseconds(), d.Delay.Milliseconds(), nil}
	case errors.Is(err, limiter.ErrBadLimit):
		return answer{Error: "invalid_config"}
	case errors.Is(err, limiter.ErrBadCost):
		return answer{Error: "invalid_argument"}
	case errors.As(err, &corrupt):
		return answer{Error: "corrupt_state"}
	}
	return answer{Error: err.Error()}
}

func load(t *testing.T, path string, file any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, file))
}

func TestVectors(t *testing.T) {
	t.Parallel()
	l, clock, client := onVirtualClock(t)
	for _, algorithm := range algorithms {
		var file vectors
		load(t, "testdata/"+string(algorithm)+".json", &file)
		require.NotEmpty(t, file.Vectors)
		require.Equal(t, string(algorithm), file.Algorithm)
		for _, v := range file.Vectors {
			t.Run(v.ID, func(t *testing.T) {
				var model limiter.Model
				config := v.Config
				for i, s := range v.Steps {
					now := file.Base + s.T
					limit, err := limiter.Parse(config.text(file.Algorithm))
					switch s.Op {
					case "config":
						config.set(s.Set)
						continue
					case "state":
						clock.Set(now)
						s.put(t, now, limit, client, limiter.DefaultPrefix+v.ID, &model)
						continue
					}
					clock.Set(now)
					where := fmt.Sprintf("%s, step %d: @%d %s %d", v.Desc, i, s.T, s.Op, s.N)
					if err != nil {
						require.Equal(t, s.Expect, answerOf(t, limiter.Decision{}, err), where)
						continue
					}
					d, err := call(t, l, v.ID, limit, s.Op, s.N)
					require.Equal(t, s.Expect, answerOf(t, d, err), "limiter: %s: %v", where, err)
					if err == nil && s.Op != "reset" && limit.Max != 0 {
						require.Equal(t, time.UnixMilli(now), d.At, where)
					}
					d, err = callModel(t, &model, now, limit, s.Op, s.N)
					require.Equal(t, s.Expect, answerOf(t, d, err), "model: %s: %v", where, err)
				}
			})
		}
	}
}

// put puts the step's state into the key and the model.
func (s step) put(t *testing.T, now int64, limit limiter.Limit, client valkey.Client, key string, model *limiter.Model) {
	t.Helper()
	end := int64(limiter.NoEnd)
	if ttl, ok := s.TTL.(float64); ok {
		end = now + int64(ttl)
	}
	window := limit.Window.Milliseconds()
	var value string
	switch {
	case s.Kind == "wrongtype" && limit.Algorithm == limiter.SlidingLog:
		value = "another type"
	case s.Kind == "wrongtype":
		putLog(t, client, key, []int64{now}, end, model)
		return
	case json.Unmarshal(s.Value, &value) == nil:
	case limit.Algorithm == limiter.SlidingLog:
		var times []int64
		require.NoError(t, json.Unmarshal(s.Value, &times))
		for i := range times {
			times[i] += now
		}
		putLog(t, client, key, times, end, model)
		return
	case limit.Algorithm == limiter.SlidingWindowCounter:
		var state struct{ Cur, Prev, Idx int64 }
		require.NoError(t, json.Unmarshal(s.Value, &state))
		value = fmt.Sprint(window, now/window+state.Idx, state.Cur, state.Prev)
	default:
		var state struct {
			Used int64 `json:"used_tokens"`
			TS   int64
		}
		require.NoError(t, json.Unmarshal(s.Value, &state))
		q := window / gcd(limit.Max, window)
		value = fmt.Sprint(q, state.Used*q, now+state.TS)
	}
	put(t, client, key, value, end, model)
}

func gcd(a, b int64) int64 {
	if b == 0 {
		return a
	}
	return gcd(b, a%b)
}

func put(t *testing.T, client valkey.Client, key, value string, end int64, model *limiter.Model) {
	t.Helper()
	model.Put(value, end)
	send(t, client, "SET", key, value)
	expireAt(t, client, key, end)
}

func putLog(t *testing.T, client valkey.Client, key string, times []int64, end int64, model *limiter.Model) {
	t.Helper()
	model.PutLog(times, end)
	send(t, client, "DEL", key)
	_, times, _ = model.State(0)
	add := []string{"ZADD", key}
	for i, time := range times {
		add = append(add, strconv.FormatInt(time, 10), fmt.Sprintf("%016d", i+1))
	}
	send(t, client, add...)
	expireAt(t, client, key, end)
}

func expireAt(t *testing.T, client valkey.Client, key string, end int64) {
	t.Helper()
	if end != limiter.NoEnd {
		send(t, client, "PEXPIREAT", key, strconv.FormatInt(end, 10))
	}
}

// stateOf is the key that a model stands for, as "value@end".
func stateOf(m *limiter.Model, now int64) string {
	value, times, end := m.State(now)
	switch {
	case end == 0:
		return "none"
	case times != nil:
		value = fmt.Sprint(times)
	}
	return fmt.Sprintf("%s@%d", value, end)
}

var member = regexp.MustCompile(`^\d{16}$`)

// serverState is the same of a key. The members of a log must be in order of their times.
func serverState(t *testing.T, client valkey.Client, key string) string {
	t.Helper()
	b := client.B()
	replies := client.DoMulti(t.Context(), b.Get().Key(key).Build(), b.Zrange().Key(key).Min("0").Max("-1").Withscores().Build(),
		b.Pexpiretime().Key(key).Build())
	end, err := replies[2].AsInt64()
	require.NoError(t, err)
	value, err := replies[0].ToString()
	switch {
	case valkey.IsValkeyNil(err):
		return "none"
	case err != nil:
		scores, err := replies[1].AsZScores()
		require.NoError(t, err)
		times := make([]string, len(scores))
		for i, s := range scores {
			if !member.MatchString(s.Member) || i > 0 && scores[i-1].Member >= s.Member {
				t.Fatalf("member %q after %v", s.Member, scores[:i])
			}
			times[i] = strconv.FormatFloat(s.Score, 'f', -1, 64)
		}
		value = "[" + strings.Join(times, " ") + "]"
	}
	return fmt.Sprintf("%s@%d", value, end)
}

func call(t *testing.T, l *limiter.Limiter, key string, limit limiter.Limit, op string, n int64) (limiter.Decision, error) {
	t.Helper()
	switch op {
	case "take":
		return l.Take(t.Context(), key, limit, n)
	case "upto":
		return l.TakeUpTo(t.Context(), key, limit, n)
	case "peek":
		return l.Peek(t.Context(), key, limit, n)
	case "refund":
		return l.Refund(t.Context(), key, limit, n)
	case "reset":
		return limiter.Decision{}, l.Reset(t.Context(), key)
	}
	t.Fatalf("unknown call %q", op)
	return limiter.Decision{}, nil
}

func callModel(t *testing.T, m *limiter.Model, now int64, limit limiter.Limit, op string, n int64) (limiter.Decision, error) {
	t.Helper()
	switch op {
	case "take":
		return m.Take(now, limit, n)
	case "upto":
		return m.TakeUpTo(now, limit, n)
	case "peek":
		return m.Peek(now, limit, n)
	case "refund":
		return m.Refund(now, limit, n)
	case "reset":
		m.Reset()
		return limiter.Decision{}, nil
	}
	t.Fatalf("unknown call %q", op)
	return limiter.Decision{}, nil
}
