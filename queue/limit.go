package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

// Concurrency is the algorithm of a limit on jobs in flight: Max of them hold a lease at a time. It is for limits by name alone, has
// no window and no unit.
const Concurrency limiter.Algorithm = "concurrency"

// NamedLimit is a limit by name, one of any number that a queue may have: a claim hands out a job only if all limits that it falls under
// grant what it costs, and then spends them all.
type NamedLimit struct {
	// Name names the limit, 1 to 128 of A-Z a-z 0-9 . _ -.
	Name string
	// Limit is the rule of each of its buckets. Of a [Concurrency] limit it is Max alone. A [limiter.LeakyBucket] has a burst of 1.
	// What is left out when an existing limit is set keeps its value; when it is new, the default of [limiter.Limit].
	limiter.Limit
	// By is the name of a job key: each of its values has a bucket of its own, and a job without the key is not judged. Empty: one
	// bucket for the queue. It stays as it was first set, and so do Unit and Algorithm.
	By string
	// Unit is the name of a cost: a job spends as much as its cost of that name, and nothing without one. Empty: each job spends 1.
	Unit string
	// Overrides are rules for single key values, in place of Max, Window and Burst. A Max of 0 lifts the limit for that value. Set
	// again, they are added to those that are there.
	Overrides map[string]limiter.Limit
	// Shadow: the limit refuses nothing and counts what it would have refused. Nil keeps what is set, false at first; a limit that
	// was read has it.
	Shadow *bool
}

// String is the limit in words: "100/1m0s token_bucket by model of tokens, shadow".
func (l NamedLimit) String() string {
	s := l.Limit.String()
	if l.Algorithm == Concurrency {
		s = strconv.FormatInt(l.Max, 10) + " " + string(Concurrency)
	}
	if l.By != "" {
		s += " by " + l.By
	}
	if l.Unit != "" {
		s += " of " + l.Unit
	}
	if l.Shadow != nil && *l.Shadow {
		s += ", shadow"
	}
	return s
}

// SetNamedLimit sets or changes a limit by name; the reason is kept beside it. What was used stays used and what is allowed changes with
// the next claim; the jobs in its lines are judged anew, and workers that slept are woken. A [Concurrency] limit counts the leases
// that exist. It returns the limit before, the zero NamedLimit for a new one; set again, that one brings back what it was, but not that it
// had no Burst, nor its overrides. It fails with [ErrBadName], or with an error wrapping [limiter.ErrBadLimit] that names the field,
// its value and what would be right; nothing was changed then.
func (q *Queue) SetNamedLimit(ctx context.Context, limit NamedLimit, reason string) (before NamedLimit, err error) {
	change, err := limit.change()
	if err != nil {
		return NamedLimit{}, err
	}
	change.Op, change.Reason = "set", reason
	before, _, err = q.named(ctx, change)
	return before, err
}

// DropOverride takes away the rule that a limit has for one key value. It fails with [ErrNoLimit] when there is no such limit.
func (q *Queue) DropOverride(ctx context.Context, name, value, reason string) error {
	if err := lua.CheckName("limit name", name); err != nil {
		return err
	}
	if _, err := q.NamedLimit(ctx, name); err != nil {
		return err
	}
	_, _, err := q.named(ctx, lua.NamedChange{Op: "set", Name: name, Values: []lua.NamedValue{{Value: value}}, Reason: reason})
	return err
}

// RemoveNamedLimit removes a limit by name and returns it. Jobs in its lines go on and are granted freely. It fails with [ErrNoLimit] when
// there is none of that name.
func (q *Queue) RemoveNamedLimit(ctx context.Context, name, reason string) (before NamedLimit, err error) {
	return q.known(ctx, lua.NamedChange{Op: "unset", Name: name, Reason: reason})
}

// ResetNamedLimit makes the budget of a limit by name whole at once, or that of the given key values alone. It heals a bucket that holds
// what it should not. It fails with [ErrNoLimit] when there is none of that name, and for a [Concurrency] limit.
func (q *Queue) ResetNamedLimit(ctx context.Context, name, reason string, values ...string) error {
	if len(values) == 0 {
		_, err := q.known(ctx, lua.NamedChange{Op: "reset", Name: name, Reason: reason})
		return err
	}
	for _, value := range values {
		if _, err := q.known(ctx, lua.NamedChange{Op: "reset", Name: name, Reason: reason, Values: []lua.NamedValue{{Value: value}}}); err != nil {
			return err
		}
	}
	return nil
}

// NamedLimit is a limit by name as it is set, without its overrides. It fails with [ErrNoLimit] when there is none of that name.
func (q *Queue) NamedLimit(ctx context.Context, name string) (NamedLimit, error) {
	rules, err := q.NamedLimits(ctx)
	if err != nil {
		return NamedLimit{}, err
	}
	i := slices.IndexFunc(rules, func(r NamedLimit) bool { return r.Name == name })
	if i < 0 {
		return NamedLimit{}, fmt.Errorf("emq: limit %s: %w in queue %s", name, ErrNoLimit, q.Name())
	}
	return rules[i], nil
}

// NamedLimits are the limits by name as they are set, in the order of their names, without their overrides.
func (q *Queue) NamedLimits(ctx context.Context) ([]NamedLimit, error) {
	words, err := q.client.Do(ctx, q.client.B().Hgetall().Key(q.keys.Limits()).Build()).AsStrMap()
	if err != nil {
		return nil, fmt.Errorf("emq: reading limits: %w", err)
	}
	var rules []NamedLimit
	for _, name := range slices.Sorted(maps.Keys(words)) {
		rules = append(rules, parseNamed(name, words[name]))
	}
	return rules, nil
}

func (q *Queue) known(ctx context.Context, change lua.NamedChange) (NamedLimit, error) {
	if err := lua.CheckName("limit name", change.Name); err != nil {
		return NamedLimit{}, err
	}
	before, known, err := q.named(ctx, change)
	if err == nil && !known {
		err = fmt.Errorf("emq: limit %s: %w in queue %s", change.Name, ErrNoLimit, q.Name())
	}
	return before, err
}

func (q *Queue) named(ctx context.Context, change lua.NamedChange) (before NamedLimit, known bool, err error) {
	if err := q.check(ctx, "named"); err != nil {
		return NamedLimit{}, false, err
	}
	change.Reason = cutText(change.Reason, maxReason)
	words, known, err := lua.SetNamed(ctx, q.client, q.keys, change)
	if refused := new(lua.NamedError); errors.As(err, &refused) {
		err = fmt.Errorf("emq: %w: %w", limiter.ErrBadLimit, err)
	}
	if err != nil || words == "" {
		return NamedLimit{}, known, err
	}
	return parseNamed(change.Name, words), known, nil
}

// change checks what can be checked without the limit that is set.
func (r NamedLimit) change() (lua.NamedChange, error) {
	c := lua.NamedChange{Name: r.Name, Algorithm: string(r.Algorithm), By: r.By, Unit: r.Unit}
	bad := func(format string, args ...any) (lua.NamedChange, error) {
		return c, fmt.Errorf("emq: %w: limit %s: "+format, append([]any{limiter.ErrBadLimit, r.Name}, args...)...)
	}
	if err := lua.CheckName("limit name", r.Name); err != nil {
		return c, err
	}
	for what, name := range map[string]string{"key name": r.By, "cost name": r.Unit} {
		if name != "" {
			if err := lua.CheckName(what, name); err != nil {
				return c, err
			}
		}
	}
	if err := checkPart(r.Limit); err != nil {
		return c, badPart("limit "+r.Name, err)
	}
	c.Max, c.Window, c.Burst = texts(r.Limit)
	if r.Algorithm == Concurrency && (r.Window != 0 || r.Burst != 0 || r.Unit != "") {
		return bad("window %v, burst %d, unit %q; want none: it counts jobs in flight", r.Window, r.Burst, r.Unit)
	}
	if r.Shadow != nil {
		c.Mode = map[bool]string{true: "shadow", false: "live"}[*r.Shadow]
	}
	if len(r.Overrides) > maxOverrides {
		return bad("%d overrides; at most %d are set at once", len(r.Overrides), maxOverrides)
	}
	for _, value := range slices.Sorted(maps.Keys(r.Overrides)) {
		o := r.Overrides[value]
		switch {
		case len(value) > MaxKeyValue || !utf8.ValidString(value):
			return bad("key value of an override has %d bytes; want valid UTF-8 of at most %d", len(value), MaxKeyValue)
		case o.Algorithm != "" && o.Algorithm != r.Algorithm:
			return bad("the override for %q has algorithm %s; want none: it is the limit's", value, o.Algorithm)
		}
		if o.Max == 0 && o.Window != 0 {
			return bad("the override for %q has a max of 0 beside a window of %v; want a max, or none of them to lift the limit for it", value, o.Window)
		}
		if o.Max == 0 && o.Burst != 0 {
			return bad("the override for %q has a max of 0 beside a burst of %d; want a max, or none of them to lift the limit for it", value, o.Burst)
		}
		o.Algorithm = r.Algorithm
		if err := checkPart(o); err != nil {
			return c, badPart(fmt.Sprintf("limit %s, override for %q", r.Name, value), err)
		}
		v := lua.NamedValue{Value: value}
		v.Max, v.Window, v.Burst = texts(o)
		if v.Max == "" {
			v.Max = "0"
		}
		c.Values = append(c.Values, v)
	}
	return c, nil
}

const maxOverrides = 500

// badPart says of which limit err speaks.
func badPart(what string, err error) error {
	return fmt.Errorf("emq: %s: %w%s", what, limiter.ErrBadLimit, strings.TrimPrefix(err.Error(), "emq: "+limiter.ErrBadLimit.Error()))
}

// checkPart refuses a limit of which parts may be left out when the parts that are there make no sense.
func checkPart(l limiter.Limit) error {
	if l.Aligned || l.CountDenied {
		return fmt.Errorf("emq: %w: aligned and count_denied are options of package limiter alone; want false", limiter.ErrBadLimit)
	}
	if l.Algorithm == limiter.LeakyBucket && l.Burst > 1 {
		return fmt.Errorf("emq: %w: a leaky_bucket hands out one job at a time; want a burst of 1 or none", limiter.ErrBadLimit)
	}
	if l.Algorithm == Concurrency {
		l.Algorithm = limiter.FixedWindow
	}
	// The script knows what is left out and judges the whole.
	if l.Algorithm == "" && l.Burst > 0 {
		l.Algorithm = limiter.TokenBucket
	}
	if l.Window == 0 {
		l.Window = time.Millisecond
	}
	if l.Max == 0 && l.Burst >= 0 {
		l.Max = 1
	}
	return l.Validate()
}

// texts are the parts of a limit as scripts read them, "" for what is left out.
func texts(l limiter.Limit) (max, window, burst string) {
	if l.Max != 0 {
		max = strconv.FormatInt(l.Max, 10)
	}
	if l.Window > 0 {
		window = strconv.FormatInt(l.Window.Milliseconds(), 10)
	}
	if l.Burst > 0 {
		burst = strconv.FormatInt(l.Burst, 10)
	}
	return max, window, burst
}

// parseNamed reads the words in which scripts keep a limit.
func parseNamed(name, words string) NamedLimit {
	w := lua.ParseNamed(words)
	r := NamedLimit{
		Name: name, Limit: limiter.Limit{Algorithm: limiter.Algorithm(w.Algorithm), Max: w.Max, Burst: w.Burst}, By: w.By, Unit: w.Unit, Shadow: &w.Shadow,
	}
	if r.Algorithm != Concurrency {
		r.Window = w.Window
	}
	return r
}

// Close lets no job of the queue be handed out for d, because what its jobs call refuses (429). Running jobs go on; what was spent
// stays spent, jobs keep their order, and no attempt is spent. A close never ends earlier than one before it. It needs no
// limit. The reason is kept. It returns until when the queue is closed.
func (q *Queue) Close(ctx context.Context, d time.Duration, reason string) (until time.Time, err error) {
	return q.close(ctx, "close", "", "", d, reason)
}

// CloseKey does for the jobs whose key has that value what [Queue.Close] does for all; others go on.
func (q *Queue) CloseKey(ctx context.Context, key, value string, d time.Duration, reason string) (until time.Time, err error) {
	if err := checkKey(key, value); err != nil {
		return time.Time{}, err
	}
	return q.close(ctx, "close", key, value, d, reason)
}

// Reopen ends a close of the queue before its time.
func (q *Queue) Reopen(ctx context.Context, reason string) error {
	_, err := q.close(ctx, "reopen", "", "", 0, reason)
	return err
}

// ReopenKey ends a close of a key value before its time.
func (q *Queue) ReopenKey(ctx context.Context, key, value, reason string) error {
	if err := checkKey(key, value); err != nil {
		return err
	}
	_, err := q.close(ctx, "reopen", key, value, 0, reason)
	return err
}

func (q *Queue) close(ctx context.Context, op, key, value string, d time.Duration, reason string) (time.Time, error) {
	if op == "close" && (d <= 0 || d > MaxDelay) {
		return time.Time{}, fmt.Errorf("emq: closing for %v; want more than 0 and at most ten years", d)
	}
	if err := q.check(ctx, "close"); err != nil {
		return time.Time{}, err
	}
	when := fmt.Sprintf("+%d", (d + time.Millisecond - 1).Milliseconds())
	_, until, err := lua.Close(ctx, q.client, q.keys, op, key, value, when, cutText(reason, maxReason))
	return until, err
}

func checkKey(key, value string) error {
	if err := lua.CheckName("key name", key); err != nil {
		return err
	}
	if len(value) > MaxKeyValue || !utf8.ValidString(value) {
		return fmt.Errorf("emq: value of key %s has %d bytes; want valid UTF-8 of at most %d", key, len(value), MaxKeyValue)
	}
	return nil
}
