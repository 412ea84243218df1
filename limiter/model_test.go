package limiter_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
)

var (
	seed  = flag.Uint64("limiter.seed", 0, "seed of the random tests; 0 for a new one")
	calls = flag.Int("limiter.calls", 5_000, "calls that the model test makes for each algorithm")
)

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// random is a source that a failed test can be run again with.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("again with -limiter.seed %d -limiter.calls %d", from, *calls)
	return rand.New(rand.NewPCG(from, 0))
}

// TestModelAgreesWithTheServer makes random calls, with all that can befall a key and a clock between them, and compares
// each answer and what it left in the key with the model's.
func TestModelAgreesWithTheServer(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			l, clock, client := onVirtualClock(t)
			w := &world{t: t, r: random(t), client: client, now: start}
			w.limit = limiter.Limit{Algorithm: algorithm, Max: 5, Window: time.Second}
			seen := map[string]int{} // how often each kind of answer was seen
			for i := range *calls {
				switch w.r.IntN(10) {
				case 0:
					w.put()
				case 1:
					w.configure()
				default:
					w.move()
				}
				clock.Set(w.now)
				op := pick(w.r, "take", "take", "take", "upto", "upto", "peek", "refund", "refund", "reset")
				if op == "reset" && w.r.IntN(4) > 0 {
					op = "take"
				}
				n := pick(w.r, 0, 1, 1, 1, 2, 3, w.r.Int64N(12), w.limit.Capacity(), limiter.Most, -1)
				before := fmt.Sprintf("call %d: key %s, now %d, limit %v, %s %d", i, stateOf(&w.model, w.now), w.now, w.limit, op, n)

				got, gotErr := call(t, l, key, w.limit, op, n)
				want, wantErr := callModel(t, &w.model, w.now, w.limit, op, n)
				if got != want || answerOf(t, got, gotErr).Error != answerOf(t, want, wantErr).Error {
					t.Fatalf("%s\nserver %+v, %v\nmodel  %+v, %v", before, got, gotErr, want, wantErr)
				}
				require.Equal(t, stateOf(&w.model, w.now), serverState(t, client, limiter.DefaultPrefix+key), before)

				w.end = w.now + max(want.RetryAfter, want.ResetAfter).Milliseconds()
				if want.RetryAfter > 0 && w.r.IntN(2) == 0 {
					w.end = w.now + want.RetryAfter.Milliseconds()
				}
				if wantErr != nil {
					seen[answerOf(t, want, wantErr).Error]++
				} else {
					seen[fmt.Sprintf("%s %t %d", op, want.Allowed, min(max(want.RetryAfter, -1), 1))]++
				}
			}
			t.Log(seen)
			for _, kind := range []string{"corrupt_state", "invalid_argument", "invalid_config", "take true 0", "take false -1",
				"take false 1", "upto true 0", "upto false 1", "peek true 0", "peek false -1", "peek false 1", "refund true 0"} {
				require.Positive(t, seen[kind], "too few calls, or the test does not reach %s", kind)
			}
		})
	}
}

const (
	key   = "k"
	start = int64(1_800_000_000_000)
)

// world is a key, its model, and what befalls them.
type world struct {
	t      *testing.T
	r      *rand.Rand
	client valkey.Client
	model  limiter.Model
	limit  limiter.Limit
	now    int64
	end    int64 // ms at which the last answer's times end
}

func (w *world) window() int64 {
	if w.limit.Window == 0 {
		return 1000
	}
	return w.limit.Window.Milliseconds()
}

// move moves the clock, mostly on, and often to where something ends.
func (w *world) move() {
	window := w.window()
	_, _, end := w.model.State(w.now)
	w.now += pick(w.r, 0, 1, 2, 10, w.r.Int64N(1500), window, window-w.now%window, -1, -w.r.Int64N(1500), -w.r.Int64N(20_000), -window)
	if end > 0 && w.r.IntN(6) == 0 {
		w.now = end + pick[int64](w.r, -1, 0, 1)
	}
	if w.end > 0 && w.r.IntN(3) == 0 {
		w.now = w.end + pick[int64](w.r, -1, 0, 0, 1)
	}
	if w.now < start/2 || w.now > 2*start { // the test's clock ends in 2262
		w.now = start
	}
}

func (w *world) configure() {
	r, l := w.r, &w.limit
	ms := pick[int64](r, 0, 1, 2, 7, 10, 1000, 1000, 1024, 1331, 5000, 86_400_000, 604_800_001)
	l.Window = time.Duration(ms) * time.Millisecond
	l.Max = pick(r, l.Max, l.Max, -1, 0, 1, 2, 3, 5, 7, 10, 13, 5000, limiter.Most, limiter.Most/max(1, ms))
	l.Burst, l.Aligned, l.CountDenied = 0, false, false
	switch l.Algorithm {
	case limiter.FixedWindow:
		l.Aligned = r.IntN(3) == 0
		l.CountDenied = r.IntN(3) == 0
	case limiter.SlidingLog:
		l.Max = pick(r, l.Max, 1, 3, 5, 12)
		l.CountDenied = r.IntN(3) == 0
	case limiter.TokenBucket, limiter.LeakyBucket:
		l.Burst = pick(r, 0, 1, 2, 5, 7, 11, 5000, limiter.Most/max(1, ms))
	}
	if l.Max > 1 {
		l.Max -= pick[int64](r, 0, 0, 0, 1)
	}
}

// put puts into the key what another runtime, an operator or a crash may have left there.
func (w *world) put() {
	r, window := w.r, w.window()
	end := w.now + pick(r, 1, 2, window, 1+window, 2*window, 1+r.Int64N(5000), 100_000)
	if r.IntN(4) == 0 {
		end = limiter.NoEnd
	}
	full := limiter.DefaultPrefix + key
	garbage := []string{"", "abc", "05", " 5 ", "2.5", "1e3", "nan", "0x5", "+1", "-0", "-3", "99999999999999999999", "5 5", "1 1 1 1 1",
		"1 1  1", "1 1 1 ", "1 1 1 1 ", "01 1 1 1", "1 01 1", "1 1 -1", "1 1 1 -1", "0 1 1", "0 1 1 1", "1000 9007199254740 1 1",
		"9007199254740992 1 1", "1 9007199254740992 1 1", "1 1 1\n"}
	if r.IntN(8) == 0 || w.limit.Algorithm == limiter.FixedWindow && r.IntN(3) == 0 {
		put(w.t, w.client, full, pick(r, garbage...), end, &w.model)
		return
	}
	number := func(most int64) int64 { return pick(r, 0, 1, r.Int64N(most+1), r.Int64N(2*most+1)) }
	switch isLog := w.limit.Algorithm == limiter.SlidingLog; {
	case isLog || r.IntN(8) == 0: // a log in the key of another algorithm is of the wrong type
		times := make([]int64, 1+r.IntN(15))
		for i := range times {
			times[i] = w.now - window + r.Int64N(pick(r, 2, window+2, 3*window+2)) - pick(r, 0, 0, window)
		}
		putLog(w.t, w.client, full, times, end, &w.model)
	case w.limit.Algorithm == limiter.FixedWindow:
		value := pick(r, "0", "1", "2", "5", "9", "-3", "9007199254740990", "9007199254740991", "-9007199254740991")
		put(w.t, w.client, full, value, end, &w.model)
	case w.limit.Algorithm == limiter.SlidingWindowCounter:
		stored := pick(r, window, window, window, 500, 1000, 2000, 1+r.Int64N(3000))
		index := max(0, w.now/stored+pick[int64](r, -3, -2, -1, -1, 0, 0, 0, 1, 2, 1+r.Int64N(50)))
		most := pick(r, max(0, w.limit.Max), max(0, w.limit.Max), 10, limiter.Most/2)
		put(w.t, w.client, full, fmt.Sprint(stored, index, number(most), number(most)), end, &w.model)
	default:
		q := pick(r, window/gcd(max(1, w.limit.Max), window), window/gcd(max(1, w.limit.Max), window), 1, 200, 1000, 1+r.Int64N(limiter.Most))
		used := pick(r, number(min(limiter.Most/2, 10*q)), number(limiter.Most/2))
		at := w.now + pick(r, 0, 1, -1, -r.Int64N(2*window), r.Int64N(3*window), window, window+1)
		put(w.t, w.client, full, fmt.Sprint(q, used, at), end, &w.model)
	}
}
