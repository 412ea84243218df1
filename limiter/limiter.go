package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
)

// Defaults of [Options], and the longest key.
const (
	DefaultPrefix  = "emq:limiter:"
	DefaultTimeout = 50 * time.Millisecond
	DefaultJitter  = 50 * time.Millisecond
	MaxKey         = 512 // bytes, without the prefix
)

// OnError is what a [Limiter] answers when the store gives no decision.
type OnError int

// The answers. Refund and Reset, which decide nothing, always return the error.
const (
	ReturnError OnError = iota // an error that wraps [ErrUnavailable]
	FailOpen                   // allowed, unless the cost is above the limit; the Decision says [FailedOpen]
	FailClosed                 // denied; the Decision says [FailedClosed]
)

// Options of a [Limiter]. The zero value is right for most.
type Options struct {
	// Prefix stands before each key; [DefaultPrefix] when empty.
	Prefix string
	// Timeout bounds each call to the store, connecting included; [DefaultTimeout] when 0. Wait has it for each of its tries.
	Timeout time.Duration
	// OnError is the answer when the store gives no decision within Timeout; [ReturnError] when 0.
	OnError OnError
	// Observe is told each time the store gives no decision, with the key as it was given and an error that wraps
	// [ErrUnavailable], before the call returns; nil for nobody. It may be called by several goroutines at once.
	Observe func(key string, err error)
	// Jitter is the most that Wait adds at random to a wait, so that those who wait for one bucket do not all come back at
	// once: up to a tenth of the wait and up to Jitter. [DefaultJitter] when 0, none when negative.
	Jitter time.Duration
}

// Limiter judges keys by limits, in a store that all processes share. It is safe for concurrent use. Make one with [New] or
// [NewLazy].
type Limiter struct {
	opts Options
	conn *connection
}

// New returns a limiter on a client that the caller makes and closes. Nothing is sent yet. It refuses nonsense in the options.
func New(client valkey.Client, opts Options) (*Limiter, error) {
	if client == nil {
		return nil, errors.New("limiter: client is nil; make one with valkey.NewClient, or use NewLazy")
	}
	return newLimiter(&connection{client: client}, opts)
}

// NewLazy returns a limiter that connects at its first call, so that a store which is down is answered by Options.OnError
// within Options.Timeout and not by the constructor. Until dial succeeds each call tries anew, at most one at a time; a dial
// that takes longer than Timeout goes on for later calls. [Limiter.Close] closes the client. It refuses nonsense in the options.
func NewLazy(dial func() (valkey.Client, error), opts Options) (*Limiter, error) {
	if dial == nil {
		return nil, errors.New("limiter: dial is nil; give a function that returns valkey.NewClient's client")
	}
	return newLimiter(&connection{dial: dial}, opts)
}

func newLimiter(conn *connection, opts Options) (*Limiter, error) {
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	if opts.Timeout < 0 {
		return nil, fmt.Errorf("limiter: Timeout is %v; want 0 (for %v) or more", opts.Timeout, DefaultTimeout)
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.OnError < ReturnError || opts.OnError > FailClosed {
		return nil, fmt.Errorf("limiter: OnError is %d; want ReturnError, FailOpen or FailClosed", opts.OnError)
	}
	if opts.Jitter == 0 {
		opts.Jitter = DefaultJitter
	}
	return &Limiter{opts, conn}, nil
}

// Close closes the client that dial made, also one that is still being made; calls then fail as if the store were down. It does
// nothing to a client given to [New].
func (l *Limiter) Close() { l.conn.close() }

// Take takes n units of the bucket at key, or none: Allowed says which. The key is any text of 1 to [MaxKey] bytes; in a
// cluster, keys with the same {hashtag} lie together.
//
// It fails with [ErrBadLimit], [ErrBadCost] or [lua.ErrBadName] before anything is sent, with a [*lua.CorruptError] when the
// key holds what is no bucket, with ctx's error when ctx ends first, and with [ErrUnavailable] if Options.OnError says so.
func (l *Limiter) Take(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.decide(ctx, opTake, key, limit, n)
}

// TakeUpTo takes as many units as remain, at most n, in one step; none left is a denial. It fails as [Limiter.Take] does.
func (l *Limiter) TakeUpTo(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.decide(ctx, opTakeUpTo, key, limit, n)
}

// Peek answers as [Limiter.Take] would, takes nothing and changes nothing. It fails as Take does.
func (l *Limiter) Peek(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.decide(ctx, opPeek, key, limit, n)
}

// Refund gives back up to n units, never more than were taken and still count: to the window that runs, whose end stays; the
// newest of a log; those of the current window of a counter, then of the one before. It fails as [Limiter.Take] does, but with
// [ErrUnavailable] whatever Options.OnError says.
func (l *Limiter) Refund(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	return l.decide(ctx, opRefund, key, limit, n)
}

// Reset forgets what was taken of the bucket at key, and heals one that is corrupt. It fails with [lua.ErrBadName], with
// ctx's error, or with [ErrUnavailable] whatever Options.OnError says.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.decide(ctx, opReset, key, Limit{}, 0)
	return err
}

// Wait takes n units, sleeping until they are granted: for RetryAfter and the jitter of the options, and again if others were
// faster. It returns the last decision. It fails as [Limiter.Take] does, with [ErrNeverFits] at once when n is more than the
// limit can ever grant, and with [context.DeadlineExceeded] at once when ctx ends before the units could be granted.
// The Delay of a [LeakyBucket] is left to the caller.
func (l *Limiter) Wait(ctx context.Context, key string, limit Limit, n int64) (Decision, error) {
	for {
		d, err := l.Take(ctx, key, limit, n)
		if err != nil || d.Allowed {
			return d, err
		}
		if d.RetryAfter == Never {
			return d, fmt.Errorf("emq: waiting for %d units of %q: %w: the limit is %v", n, key, ErrNeverFits, limit)
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < d.RetryAfter {
			return d, fmt.Errorf("emq: waiting for %d units of %q, which are %v away: %w", n, key, d.RetryAfter, context.DeadlineExceeded)
		}
		timer := time.NewTimer(d.RetryAfter + jitter(d.RetryAfter, l.opts.Jitter))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return d, fmt.Errorf("emq: waiting for %d units of %q: %w", n, key, ctx.Err())
		}
	}
}

// jitter is a random time up to a tenth of wait and up to most.
func jitter(wait, most time.Duration) time.Duration {
	if bound := min(wait/10, most); bound > 0 {
		return rand.N(bound + 1)
	}
	return 0
}

// bucket is the bucket of a key as the scripts know it.
func (l *Limiter) bucket(key string, limit Limit) (lua.Bucket, error) {
	if key == "" || len(key) > MaxKey {
		return lua.Bucket{}, fmt.Errorf("emq: %w: limiter key has %d bytes; want 1 to %d", lua.ErrBadName, len(key), MaxKey)
	}
	return lua.Bucket{Key: l.opts.Prefix + key, Rule: lua.Rule{
		Algorithm: string(limit.algorithm()), Max: limit.Max, Window: limit.window(), Burst: limit.Burst,
		Options: strings.Join(limit.options(), " "),
	}}, nil
}

func (l *Limiter) decide(ctx context.Context, op, key string, limit Limit, n int64) (Decision, error) {
	if err := check(limit, n); err != nil {
		return Decision{}, err
	}
	bucket, err := l.bucket(key, limit)
	if err != nil {
		return Decision{}, err
	}
	if limit.Max == 0 && op != opReset {
		return unlimited(op, n), nil
	}
	taken, err := ask(l, ctx, func(ctx context.Context, client valkey.Client) (lua.Taken, error) {
		return lua.Take(ctx, client, op, bucket, n)
	})
	if err == nil {
		return decision(limit, taken), nil
	}
	source, err := l.failed(ctx, op, key, err)
	if err != nil {
		return Decision{}, err
	}
	return failed(source, op, limit, n), nil
}

func decision(limit Limit, t lua.Taken) Decision {
	return Decision{
		Allowed: t.Allowed, Granted: t.Granted, Limit: limit.Max, Remaining: t.Remaining,
		RetryAfter: t.Retry, ResetAfter: t.Reset, Delay: t.Delay, At: t.Now, Source: Store,
	}
}

// failed is where the decision comes from after a call to the store failed, or the error that the caller gets.
func (l *Limiter) failed(ctx context.Context, op, key string, err error) (Source, error) {
	var corrupt *lua.CorruptError
	if errors.As(err, &corrupt) {
		return "", err
	}
	if ended := ended(ctx); ended != nil {
		return "", fmt.Errorf("emq: limiter %s of %q: %w", op, key, ended)
	}
	err = fmt.Errorf("emq: limiter %s of %q: %w: %w", op, key, ErrUnavailable, err)
	if l.opts.Observe != nil {
		l.opts.Observe(key, err)
	}
	switch {
	case op == opRefund || op == opReset:
	case l.opts.OnError == FailOpen:
		return FailedOpen, nil
	case l.opts.OnError == FailClosed:
		return FailedClosed, nil
	}
	return "", err
}

// ask calls a script and waits no longer than the time-out for its answer. The client alone does not promise that: it may
// sit in another call's attempt to connect.
func ask[T any](l *Limiter, ctx context.Context, script func(context.Context, valkey.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		var a answer
		var client valkey.Client
		if client, a.err = l.conn.get(ctx); a.err == nil {
			a.value, a.err = script(ctx, client)
		}
		answered <- a
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("no answer within %v: %w", l.opts.Timeout, ctx.Err())
	}
}

// ended is the error of the caller's context, if it ended. A connection's own deadline may strike just before the context's.
func ended(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
