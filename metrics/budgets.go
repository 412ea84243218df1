package metrics

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

// All is every limit of a queue at one moment, as the claim judges them.
type All struct {
	// At is the server's clock when this was true.
	At time.Time
	// Paused: the queue hands out nothing, whatever its limits say. PauseReason is why.
	Paused      bool
	PauseReason string
	// Limits are the queue's own limit, if it has one, and those by name in the order of their names.
	Limits []Limit
	// Closed is what grants nothing until a time, though no limit need refuse it.
	Closed []Closed
}

// Limit is one limit and its buckets.
type Limit struct {
	// Name is empty for the queue's own limit.
	Name string
	// Algorithm, Max, Window and Burst are the rule; those of a limit on jobs in flight are concurrency and Max.
	limiter.Limit
	// By is the name of the key whose values have a bucket each; empty for one bucket. Unit is the name of the cost that is spent; empty
	// when each job spends 1.
	By, Unit string
	// Shadow: it refuses nothing. Refused is how many jobs it would have refused.
	Shadow  bool
	Refused int64
	// ChangedAt is when the limit was last changed, zero if it was set by another runtime; Reason is what was given as the reason.
	ChangedAt time.Time
	Reason    string
	// Waiting is how many jobs it sent back that wait for it, in Lines of its key values.
	Waiting int64
	Lines   int64
	// Buckets are its bucket, or of a limit by key those with most jobs waiting and those that were asked for.
	Buckets []Bucket
}

// Bucket is the state that a limit keeps, for the queue or for one key value.
type Bucket struct {
	// Value is the key value; empty for a limit without key.
	Value string
	// Max, Window and Burst are its rule: the limit's, or those of the key value's override. Max 0 is no limit.
	Max    int64
	Window time.Duration
	Burst  int64
	// Used is the number of units spent that count now. It is above Max when Max was lowered or a handler settled more than it had
	// reserved.
	Used int64
	// Remaining is the number of units that may be spent now, never negative; -1 is without limit.
	Remaining int64
	// RetryAfter is how long until one more unit is granted; 0 when it would be granted now. For jobs in flight it is when the first
	// lease ends at the latest.
	RetryAfter time.Duration
	// ResetAfter is how long until the whole budget is free if nobody spends.
	ResetAfter time.Duration
	// Waiting is how many jobs stand in its line.
	Waiting int64
}

// Closed is the queue (Key is empty), or the jobs whose Key has the Value, closed until a time.
type Closed struct {
	Key, Value string
	Until      time.Time
	Reason     string
	Waiting    int64 // jobs that were sent back by it
}

// KeyValue names a bucket of a limit by key.
type KeyValue = lua.ValueOf

// MostTop is the largest top of [Budgets].
const MostTop = 1000

// Budgets reads all limits of a queue. Of each limit by key it reads the top buckets by jobs waiting, at most [MostTop], and those
// that also names.
func Budgets(ctx context.Context, client valkey.Client, queue string, top int, also ...KeyValue) (All, error) {
	keys, err := lua.ForQueue(queue)
	if err != nil {
		return All{}, err
	}
	if top < 0 || top > MostTop || len(also) > MostTop {
		return All{}, fmt.Errorf("emq: reading budgets: top is %d and %d key values are named; want at most %d of each", top, len(also), MostTop)
	}
	for _, v := range also {
		if !utf8.ValidString(v.Value) || len(v.Value) > 256 {
			return All{}, fmt.Errorf("emq: reading budgets: key value for limit %s has %d bytes; want valid UTF-8 of at most 256", v.Limit, len(v.Value))
		}
	}
	b, err := lua.ReadBudgets(ctx, client, keys, top, also)
	if err != nil {
		return All{}, err
	}
	all := All{At: b.Now, Paused: b.Paused, PauseReason: b.Why}
	for _, l := range b.Limits {
		limit := Limit{
			Name: l.Name, Limit: limiter.Limit{Algorithm: limiter.Algorithm(l.Algorithm), Max: l.Max, Window: l.Window, Burst: l.Burst},
			By: l.By, Unit: l.Unit, Shadow: l.Shadow, Refused: l.Refused, ChangedAt: l.At, Reason: l.Reason, Waiting: l.Lined, Lines: l.Lines,
		}
		concurrent := l.Algorithm == "concurrency"
		if concurrent {
			limit.Window = 0
		}
		for _, s := range l.Buckets {
			bucket := Bucket{
				Value: s.Value, Max: s.Max, Window: s.Window, Burst: s.Burst, Used: s.Used, Remaining: s.Free, RetryAfter: s.Retry,
				ResetAfter: s.Reset, Waiting: s.Lined,
			}
			if concurrent {
				bucket.Window = 0
			}
			limit.Buckets = append(limit.Buckets, bucket)
		}
		all.Limits = append(all.Limits, limit)
	}
	for _, c := range b.Closed {
		all.Closed = append(all.Closed, Closed{c.Key, c.Value, c.Until, c.Reason, c.Lined})
	}
	return all, nil
}
