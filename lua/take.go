package lua

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"
)

// Rule is the limit by which a bucket is judged, as take.lua and takeall.lua read it. They take it on trust.
type Rule struct {
	Algorithm string
	Max       int64 // 0: unlimited, the key is not touched
	Window    time.Duration
	Burst     int64  // of token_bucket (0: Max) and leaky_bucket (0: 1)
	Options   string // words: aligned, count_denied
}

// Bucket is a key and its rule.
type Bucket struct {
	Key string
	Rule
}

// Taken is what a bucket said.
type Taken struct {
	Now       time.Time
	Allowed   bool
	Granted   int64
	Remaining int64         // -1: unlimited
	Retry     time.Duration // -1: never
	Reset     time.Duration
	Delay     time.Duration // leaky_bucket: until the first of the units leaves
}

type (
	takeArgs struct {
		Op        string `lua:"op"`
		N         int64  `lua:"n"`
		Algorithm string `lua:"algorithm"`
		Max       int64  `lua:"max"`
		Window    int64  `lua:"window"`
		Burst     int64  `lua:"burst"`
		Options   string `lua:"options"`
	}
	takeAllArgs struct {
		Op string `lua:"op"`
		N  int64  `lua:"n"`
	}
)

var (
	takeScript    = bind[takeArgs]("take", "decision", "corrupt")
	takeAllScript = bind[takeAllArgs]("takeall", "decision", "corrupt")
)

// Take spends, looks at or gives back n units of a bucket: op is take, upto, peek, refund or reset. It fails with a
// [*CorruptError] when the key holds no state of the bucket's algorithm.
func Take(ctx context.Context, c valkey.Client, op string, b Bucket, n int64) (Taken, error) {
	args := takeArgs{op, n, b.Algorithm, b.Max, b.Window.Milliseconds(), b.Burst, b.Options}
	r, err := takeScript.call(ctx, c, []string{b.Key}, args, nil)
	if err != nil {
		return Taken{}, explainBuckets(err, []Bucket{b})
	}
	return Taken{time.UnixMilli(r.number(0)), r.number(1) == 1, r.number(2), r.number(3), span(r, 4), span(r, 5), span(r, 6)}, nil
}

// TakeAll spends n units of each bucket or of none; op is take or upto. The keys are different and in one slot. Beside the
// answer for all (the least that remains, the longest of each time) it returns what each bucket alone said: it did not
// allow when its Retry is not 0. It fails as [Take] does.
func TakeAll(ctx context.Context, c valkey.Client, op string, buckets []Bucket, n int64) (all Taken, each []Taken, err error) {
	keys, rest := make([]string, len(buckets)), make([]string, 0, 5*len(buckets))
	for i, b := range buckets {
		keys[i] = b.Key
		rest = append(rest, b.Algorithm, strconv.FormatInt(b.Max, 10), strconv.FormatInt(b.Window.Milliseconds(), 10),
			strconv.FormatInt(b.Burst, 10), b.Options)
	}
	r, err := takeAllScript.call(ctx, c, keys, takeAllArgs{op, n}, rest)
	if err != nil {
		return Taken{}, nil, explainBuckets(err, buckets)
	}
	now := time.UnixMilli(r.number(0))
	all = Taken{now, r.number(1) == 1, r.number(2), r.number(3), span(r, 4), span(r, 5), span(r, 6)}
	for i := range buckets {
		at := 7 + 4*i
		wait := span(r, at)
		each = append(each, Taken{now, wait == 0, all.Granted, r.number(at + 1), wait, span(r, at+2), span(r, at+3)})
	}
	return all, each, nil
}

// span is the value at i, which counts ms, as a duration: -1 when it is negative, and the longest there is when it is longer.
func span(r reply, i int) time.Duration {
	ms := r.number(i)
	if ms < 0 {
		return -1
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// explainBuckets says what a bucket's key should hold, which depends on its algorithm.
func explainBuckets(err error, buckets []Bucket) error {
	var corrupt *CorruptError
	if errors.As(err, &corrupt) && corrupt.Type == "" {
		for _, b := range buckets {
			if b.Key == corrupt.Key && b.Algorithm != "fixed_window" {
				corrupt.Want = "what " + b.Algorithm + " writes"
			}
		}
	}
	return err
}
