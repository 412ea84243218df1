package lua

import (
	"context"

	"github.com/valkey-io/valkey-go"
)

type (
	limitArgs struct {
		Op        string `lua:"op"`
		Max       int64  `lua:"max"`
		Duration  string `lua:"duration"`
		Algorithm string `lua:"algorithm"`
		Burst     string `lua:"burst"`
		Reason    string `lua:"reason"`
	}
	pauseArgs struct {
		Paused string `lua:"paused"`
		Reason string `lua:"reason"`
	}
	drainArgs struct {
		Also  string `lua:"also"`
		Count int    `lua:"count"`
	}
	mendArgs struct {
		Fix string `lua:"fix"`
	}
)

type noArgs struct{}

var (
	limitScript   = bind[limitArgs]("limit", "set", "refused", "misconfigured", "corrupt")
	pauseScript   = bind[pauseArgs]("pause", "set", "misconfigured", "corrupt")
	runScript     = bind[noArgs]("run", "run", "misconfigured", "corrupt")
	redriveScript = bind[noArgs]("redrive", "redriven", "misconfigured", "corrupt")
	removeScript  = bind[noArgs]("remove", "removed", "misconfigured", "corrupt")
	drainScript   = bind[drainArgs]("drain", "drained", "misconfigured")
	mendScript    = bind[mendArgs]("mend", "mended", "misconfigured", "corrupt")
)

// LimitChange is a change of the queue's own limit: Op is set, lift or reset. Of set, empty texts keep what is set.
type LimitChange struct {
	Op        string
	Max       int64
	Duration  string // ms
	Algorithm string
	Burst     string
	Reason    string
}

// LimitTexts is a limit as it stands in meta, "" for a field that is not there.
type LimitTexts struct{ Max, Duration, Algorithm, Burst string }

// SetLimit changes the queue's own limit and returns what stood there before. It fails with a [*ConfigError] when the limit
// that would come of it is one that no script obeys; nothing was changed then.
func SetLimit(ctx context.Context, c valkey.Client, keys Keys, change LimitChange) (before LimitTexts, err error) {
	r, err := limitScript.run(ctx, c, keys, limitArgs(change))
	if err != nil {
		return LimitTexts{}, err
	}
	if r.word == "refused" {
		return LimitTexts{}, &ConfigError{Key: keys.Meta(), Field: r.text(0), Value: r.text(1)}
	}
	return LimitTexts{r.text(1), r.text(2), r.text(3), r.text(4)}, nil
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

// A Suspect may be wrong: the job Name, the line of the bucket Name, or the lease Name (id|token), which has a place in Bucket or, if that
// is empty, words among the leases. Kind is job, line or lease.
type Suspect struct{ Kind, Name, Bucket string }

// Mend judges suspects and, if fix, puts right those that are wrong. The answers are what was done, or would be: restored (the job stood
// nowhere), listed (no claim looked at the line), unlisted (the line is empty), counted (the line was counted wrong), dropped (the lease
// has no active job); fine, or unknown for a job without a record.
func Mend(ctx context.Context, c valkey.Client, keys Keys, fix bool, suspects []Suspect) ([]string, error) {
	args := mendArgs{"0"}
	if fix {
		args.Fix = "1"
	}
	var rest []string
	for _, s := range suspects {
		rest = append(rest, s.Kind, s.Name, s.Bucket)
	}
	r, err := mendScript.run(ctx, c, keys, args, rest...)
	return r.texts(0), err
}
