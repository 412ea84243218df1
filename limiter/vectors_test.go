package limiter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

// vectors is a file of testdata: what each call must answer, to the millisecond.
type vectors struct {
	Base    int64 `json:"base_ms"`
	Vectors []struct {
		ID, Desc string
		Config   config
		Steps    []step
	}
}

type config struct {
	Limit  *int64 `json:"limit"`
	Window *int64 `json:"window_ms"`
}

type step struct {
	T      int64  // ms after the base
	Op     string // take, upto, peek, refund, reset; config sets Set, state puts Value with a TTL (0: none)
	N      int64
	Set    config
	Value  string
	TTL    int64 `json:"pttl_ms"`
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
		return answer{"", d.Allowed, d.Granted, d.Limit, d.Remaining, retry, d.ResetAfter.Milliseconds()}
	case errors.Is(err, limiter.ErrBadLimit):
		return answer{Error: "invalid_config"}
	case errors.Is(err, limiter.ErrBadCost):
		return answer{Error: "invalid_argument"}
	case errors.As(err, &corrupt):
		return answer{Error: "corrupt_state"}
	}
	return answer{Error: err.Error()}
}

func TestVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/fixed_window.json")
	require.NoError(t, err)
	var file vectors
	require.NoError(t, json.Unmarshal(text, &file))
	require.NotEmpty(t, file.Vectors)
	l, clock, client := onVirtualClock(t)

	for _, v := range file.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			var model limiter.Window
			max, window := *v.Config.Limit, *v.Config.Window
			for i, s := range v.Steps {
				now := file.Base + s.T
				switch s.Op {
				case "config":
					if s.Set.Limit != nil {
						max = *s.Set.Limit
					}
					if s.Set.Window != nil {
						window = *s.Set.Window
					}
					continue
				case "state":
					clock.Set(now)
					if s.TTL == 0 {
						send(t, client, "SET", limiter.DefaultPrefix+v.ID, s.Value)
						model.Put(s.Value, limiter.NoEnd)
					} else {
						send(t, client, "SET", limiter.DefaultPrefix+v.ID, s.Value, "PX", strconv.FormatInt(s.TTL, 10))
						model.Put(s.Value, now+s.TTL)
					}
					continue
				}
				clock.Set(now)
				where := fmt.Sprintf("%s, step %d: @%d %s %d", v.Desc, i, s.T, s.Op, s.N)
				limit, err := limiter.Parse(fmt.Sprintf("%d/%dms", max, window))
				if err != nil {
					require.Equal(t, s.Expect, answerOf(t, limiter.Decision{}, err), where)
					continue
				}
				d, err := call(t, l, v.ID, limit, s.Op, s.N)
				require.Equal(t, s.Expect, answerOf(t, d, err), "limiter: %s: %v", where, err)
				if err == nil && s.Op != "reset" && max != 0 {
					require.Equal(t, time.UnixMilli(now), d.At, where)
				}
				d, err = callModel(t, &model, now, limit, s.Op, s.N)
				require.Equal(t, s.Expect, answerOf(t, d, err), "model: %s: %v", where, err)
			}
		})
	}
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

func callModel(t *testing.T, w *limiter.Window, now int64, limit limiter.Limit, op string, n int64) (limiter.Decision, error) {
	t.Helper()
	switch op {
	case "take":
		return w.Take(now, limit, n)
	case "upto":
		return w.TakeUpTo(now, limit, n)
	case "peek":
		return w.Peek(now, limit, n)
	case "refund":
		return w.Refund(now, limit, n)
	case "reset":
		w.Reset()
		return limiter.Decision{}, nil
	}
	t.Fatalf("unknown call %q", op)
	return limiter.Decision{}, nil
}
