package limiter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
)

// MaxBuckets is how many buckets one call may take from.
const MaxBuckets = 100

// Bucket is a key and the limit that it is judged by.
type Bucket struct {
	Key   string
	Limit Limit
}

// Joint is the answer of several buckets together.
type Joint struct {
	// Decision is the answer for all: Remaining is the least of theirs, of those that limit; RetryAfter the longest wait of those
	// that deny, [Never] if one of them can never grant; ResetAfter and Delay are the longest; Limit is 0.
	Decision
	// Each is what each bucket alone says, in the order of the call: it denies if it is not Allowed.
	Each []Decision
}

// DeniedBy lists the buckets that deny, by their places in the call; none when all are Allowed.
func (j Joint) DeniedBy() []int {
	var places []int
	for i, d := range j.Each {
		if !d.Allowed {
			places = append(places, i)
		}
	}
	return places
}

// TakeAll takes n units of each bucket, or none of any when one denies. A limit of 0 grants all. All keys must lie in one slot of
// a cluster, also where the store is none: give them the same {hashtag}, which for the keys "{bot}:all" and "{bot}:chat:42" is
// "bot", or put it into Options.Prefix.
//
// It fails as [Limiter.Take] does, and before anything is sent with [ErrBadBuckets] and [ErrCrossSlot].
func (l *Limiter) TakeAll(ctx context.Context, buckets []Bucket, n int64) (Joint, error) {
	return l.decideAll(ctx, opTake, buckets, n)
}

// TakeAllUpTo takes as many units of each bucket as the one with the fewest has left, at most n; none left in one of them is a
// denial. It fails as [Limiter.TakeAll] does.
func (l *Limiter) TakeAllUpTo(ctx context.Context, buckets []Bucket, n int64) (Joint, error) {
	return l.decideAll(ctx, opTakeUpTo, buckets, n)
}

func (l *Limiter) decideAll(ctx context.Context, op string, buckets []Bucket, n int64) (Joint, error) {
	asked, err := l.checkAll(buckets, n)
	if err != nil {
		return Joint{}, err
	}
	if !slices.ContainsFunc(buckets, func(b Bucket) bool { return b.Limit.Max > 0 }) {
		return Joint{unlimited(op, n), slices.Repeat([]Decision{unlimited(op, n)}, len(buckets))}, nil
	}
	type answer struct {
		all  lua.Taken
		each []lua.Taken
	}
	a, err := ask(l, ctx, func(ctx context.Context, client valkey.Client) (a answer, err error) {
		a.all, a.each, err = lua.TakeAll(ctx, client, op, asked, n)
		return a, err
	})
	if err == nil {
		joint := Joint{Decision: decision(Limit{}, a.all)}
		for i, b := range buckets {
			joint.Each = append(joint.Each, decision(b.Limit, a.each[i]))
		}
		return joint, nil
	}
	source, err := l.failed(ctx, op, buckets[0].Key, err)
	if err != nil {
		return Joint{}, err
	}
	return failedAll(source, op, buckets, n), nil
}

// checkAll refuses a call that no buckets could answer, and returns them as the script knows them.
func (l *Limiter) checkAll(buckets []Bucket, n int64) ([]lua.Bucket, error) {
	if len(buckets) == 0 || len(buckets) > MaxBuckets {
		return nil, fmt.Errorf("emq: %w: %d of them; want 1 to %d", ErrBadBuckets, len(buckets), MaxBuckets)
	}
	places := map[string]int{}
	asked := make([]lua.Bucket, len(buckets))
	for i, b := range buckets {
		var err error
		if err = check(b.Limit, n); err == nil {
			asked[i], err = l.bucket(b.Key, b.Limit)
		}
		if err != nil {
			return nil, fmt.Errorf("bucket %d, %q: %w", i, b.Key, err)
		}
		if first, twice := places[b.Key]; twice {
			return nil, fmt.Errorf("emq: %w: %d and %d have the same key %q; want a key for each limit", ErrBadBuckets, first, i, b.Key)
		}
		places[b.Key] = i
		if first, slot := lua.Slot(asked[0].Key), lua.Slot(asked[i].Key); slot != first {
			return nil, fmt.Errorf("emq: %w: %q lies in slot %d and %q in slot %d; want the same {hashtag} in all keys, or in the prefix",
				ErrCrossSlot, asked[0].Key, first, asked[i].Key, slot)
		}
	}
	return asked, nil
}

// failedAll is the decision of a store that gave none.
func failedAll(source Source, op string, buckets []Bucket, n int64) Joint {
	var joint Joint
	joint.Allowed, joint.Source = true, source
	for _, b := range buckets {
		d := unlimited(op, n)
		if b.Limit.Max > 0 {
			d = failed(source, op, b.Limit, n)
		}
		joint.Each = append(joint.Each, d)
		joint.Allowed = joint.Allowed && d.Allowed
		joint.Granted = n
		joint.RetryAfter = longer(joint.RetryAfter, d.RetryAfter)
	}
	if !joint.Allowed {
		joint.Granted = 0
		for i := range joint.Each {
			joint.Each[i].Granted = 0
		}
	}
	return joint
}

// longer is the longer of two waits; Never is the longest.
func longer(a, b time.Duration) time.Duration {
	if a == Never || b == Never {
		return Never
	}
	return max(a, b)
}
