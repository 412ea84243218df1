package limiter_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
)

var (
	seed  = flag.Uint64("limiter.seed", 0, "seed of the model test; 0 for a new one")
	calls = flag.Int("limiter.calls", 20_000, "calls that the model test makes")
)

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// TestModelAgreesWithTheServer makes random calls, with all that can befall a key and a clock between them, and compares
// each answer and what it left in the key with the model's.
func TestModelAgreesWithTheServer(t *testing.T) {
	t.Parallel()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("again with -limiter.seed %d -limiter.calls %d", *seed, *calls)
	r := rand.New(rand.NewPCG(*seed, 0))
	l, clock, client := onVirtualClock(t)

	const key = "k"
	var (
		model limiter.Window
		value string // what stands in the key when that is no counter; "list" for a list
		now   = int64(1_800_000_000_000)
		limit = limiter.PerSecond(5)
		seen  = map[string]int{} // how often each kind of answer was seen
	)
	put := func() {
		value = pick(r, "0", "1", "2", "5", "9", "-3", "-0", "", "abc", "05", " 5 ", "2.5", "1e3", "nan", "0x5", "+1", "list",
			"9007199254740990", "9007199254740991", "9007199254740992", "-9007199254740991", "99999999999999999999")
		end := now + pick(r, 1, 2, max(1, limit.Window.Milliseconds()), 1+limit.Window.Milliseconds(), 1+r.Int64N(5000), 100_000)
		if r.IntN(4) == 0 {
			end = limiter.NoEnd
		}
		model.Put(value, end)
		send(t, client, "DEL", limiter.DefaultPrefix+key)
		if value == "list" {
			send(t, client, "RPUSH", limiter.DefaultPrefix+key, "x")
		} else {
			send(t, client, "SET", limiter.DefaultPrefix+key, value)
		}
		if end != limiter.NoEnd {
			send(t, client, "PEXPIREAT", limiter.DefaultPrefix+key, strconv.FormatInt(end, 10))
		}
	}
	move := func() {
		step := pick(r, 0, 1, 2, 10, r.Int64N(1500), limit.Window.Milliseconds(), -1, -r.Int64N(1500), -r.Int64N(20_000))
		if model.End > 0 && r.IntN(3) == 0 {
			step = model.End - now + pick[int64](r, -1, 0, 1) // the last ms, the end, and after
		}
		now += step
	}
	for i := range *calls {
		switch r.IntN(10) {
		case 0:
			put()
		case 1, 2:
			limit.Max = pick(r, limit.Max, 0, 1, 2, 5, 10, limiter.Most)
			limit.Window = pick[time.Duration](r, 0, 1, 2, 10, 1000, 1000, 5000) * time.Millisecond
		default:
			move()
		}
		clock.Set(now)
		op := pick(r, "take", "take", "take", "upto", "upto", "peek", "refund", "refund", "reset")
		if op == "reset" && r.IntN(4) > 0 {
			op = "take"
		}
		n := pick(r, 0, 1, 1, 1, 2, 3, r.Int64N(12), limit.Max, limiter.Most, -1)
		before := fmt.Sprintf("call %d: key %q, model %+v, now %d, limit %v, %s %d", i, value, model, now, limit, op, n)

		got, gotErr := call(t, l, key, limit, op, n)
		want, wantErr := callModel(t, &model, now, limit, op, n)
		if got != want || answerOf(t, got, gotErr) != answerOf(t, want, wantErr) {
			t.Fatalf("%s\nserver %+v, %v\nmodel  %+v, %v", before, got, gotErr, want, wantErr)
		}
		require.Equal(t, stateOf(&model, now, value), serverState(t, client, limiter.DefaultPrefix+key), before)

		if wantErr != nil {
			seen[answerOf(t, want, wantErr).Error]++
		} else {
			seen[fmt.Sprintf("%s %t %d", op, want.Allowed, min(max(want.RetryAfter, -1), 1))]++
		}
	}
	t.Log(seen)
	for _, kind := range []string{"corrupt_state", "invalid_argument", "take true 0", "take false -1", "take false 1",
		"upto true 0", "upto false 1", "peek true 0", "peek false -1", "peek false 1", "refund true 0"} {
		require.Positive(t, seen[kind], "too few calls, or the test does not reach %s", kind)
	}
}

// stateOf is the key that a model stands for, as "value@end". It looks at the model, as serverState does at the key, so that
// both drop a window that has ended.
func stateOf(w *limiter.Window, now int64, garbage string) string {
	count := strconv.FormatInt(w.Count, 10)
	if _, err := w.Peek(now, limiter.PerSecond(1), 0); err != nil {
		count = garbage
	}
	if w.End == 0 {
		return "none"
	}
	return fmt.Sprintf("%s@%d", count, w.End)
}

func serverState(t *testing.T, client valkey.Client, key string) string {
	t.Helper()
	replies := client.DoMulti(t.Context(), client.B().Get().Key(key).Build(), client.B().Pexpiretime().Key(key).Build())
	end, err := replies[1].AsInt64()
	require.NoError(t, err)
	value, err := replies[0].ToString()
	switch {
	case valkey.IsValkeyNil(err):
		return "none"
	case err != nil:
		value = "list"
	}
	return fmt.Sprintf("%s@%d", value, end)
}
