package lua

import (
	"context"
	"time"

	"github.com/valkey-io/valkey-go"
)

type (
	limitArgs struct {
		Max      int64  `lua:"max"`
		Duration string `lua:"duration"`
		Reason   string `lua:"reason"`
	}
	pauseArgs struct {
		Paused string `lua:"paused"`
		Reason string `lua:"reason"`
	}
	drainArgs struct {
		Also  string `lua:"also"`
		Count int    `lua:"count"`
	}
)

var (
	limitScript   = bind[limitArgs]("limit", "set", "misconfigured")
	pauseScript   = bind[pauseArgs]("pause", "set", "misconfigured")
	runScript     = bind[noArgs]("run", "run", "misconfigured", "corrupt")
	redriveScript = bind[noArgs]("redrive", "redriven", "misconfigured", "corrupt")
	removeScript  = bind[noArgs]("remove", "removed", "misconfigured")
	drainScript   = bind[drainArgs]("drain", "drained", "misconfigured")
)

// SetLimit sets the queue's own limit; max 0 lifts it, an empty duration keeps the window. It returns the texts that stood
// in meta before, "" for none.
func SetLimit(ctx context.Context, c valkey.Client, keys Keys, max int64, duration, reason string) (oldMax, oldDuration string, err error) {
	r, err := limitScript.run(ctx, c, keys, limitArgs{max, duration, reason})
	if err != nil {
		return "", "", err
	}
	return r.text(1), r.text(2), nil
}

// Pause stops the claim from granting, or lets it go on; was says whether it was paused before.
func Pause(ctx context.Context, c valkey.Client, keys Keys, paused bool, reason string) (was bool, err error) {
	flag := "0"
	if paused {
		flag = "1"
	}
	r, err := pauseScript.run(ctx, c, keys, pauseArgs{flag, reason})
	return r.number(0) == 1, err
}

// RunNow brings delayed jobs back. The answers are the state each id was found in; those found delayed were brought back.
func RunNow(ctx context.Context, c valkey.Client, keys Keys, ids []string) ([]string, error) {
	r, err := runScript.run(ctx, c, keys, noArgs{}, ids...)
	return r.texts(0), err
}

// Redrive brings dead jobs back. The answers are the state each id was found in; those found dead were brought back.
func Redrive(ctx context.Context, c valkey.Client, keys Keys, ids []string) ([]string, error) {
	r, err := redriveScript.run(ctx, c, keys, noArgs{}, ids...)
	return r.texts(0), err
}

// Remove deletes jobs. The answers are the state each id was found in; active ones stay.
func Remove(ctx context.Context, c valkey.Client, keys Keys, ids []string) ([]string, error) {
	r, err := removeScript.run(ctx, c, keys, noArgs{}, ids...)
	return r.texts(0), err
}

// Drain deletes up to count waiting jobs, and delayed ones too if asked; more says whether to call again.
func Drain(ctx context.Context, c valkey.Client, keys Keys, delayed bool, count int) (deleted int64, more bool, err error) {
	also := "0"
	if delayed {
		also = "1"
	}
	r, err := drainScript.run(ctx, c, keys, drainArgs{also, count})
	return r.number(0), r.number(1) == 1, err
}

type takeArgs struct {
	Op       string `lua:"op"`
	Max      int64  `lua:"max"`
	Duration int64  `lua:"duration"`
	N        int64  `lua:"n"`
}

var takeScript = bind[takeArgs]("take", "decision", "corrupt")

// Taken is what a bucket said.
type Taken struct {
	Now       time.Time
	Allowed   bool
	Granted   int64
	Remaining int64         // -1: unlimited
	Retry     time.Duration // -1: never
	Reset     time.Duration
}

// Take spends, looks at or gives back n units of the bucket at key: op is take, upto, peek, refund or reset.
func Take(ctx context.Context, c valkey.Client, key, op string, max int64, window time.Duration, n int64) (Taken, error) {
	r, err := takeScript.call(ctx, c, []string{key}, takeArgs{op, max, window.Milliseconds(), n}, nil)
	if err != nil {
		return Taken{}, err
	}
	t := Taken{time.UnixMilli(r.number(0)), r.number(1) == 1, r.number(2), r.number(3), r.ms(4), r.ms(5)}
	if t.Retry < 0 {
		t.Retry = -1
	}
	return t, nil
}
