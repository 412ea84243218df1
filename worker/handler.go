package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/echomq/emq/claim"
)

// Job is what a handler gets: the claimed job.
type Job = claim.Job

// Handler runs one job. Returning nil completes it. An error spends the attempt and lets the job wait for the next, until its
// attempts are used up; a panic is an error too. [RetryIn], [Defer], [RateLimited] and [DeadLetter] return other ends.
//
// ctx ends when the job's time-out is over, when its lease is lost, and at shutdown after the grace; context.Cause tells which
// ([context.DeadlineExceeded], [claim.ErrLeaseLost], [ErrStopping]). A job can run more than once, so make handlers idempotent.
type Handler func(ctx context.Context, job *Job) error

// Middleware wraps a handler: it may look at the job before and at the error after.
type Middleware func(Handler) Handler

// Chain wraps h so that the first middleware is the outermost.
func Chain(h Handler, middleware ...Middleware) Handler {
	for i := len(middleware) - 1; i >= 0; i-- {
		h = middleware[i](h)
	}
	return h
}

// Mux runs each job by the handler of its name. Names that it does not have are deferred for UnknownDelay without spending an
// attempt, since a newer worker may know them; the zero value defers for 30 s.
type Mux struct {
	Handlers     map[string]Handler
	UnknownDelay time.Duration
}

// Handle runs job by the handler of its name.
func (m Mux) Handle(ctx context.Context, job *Job) error {
	if h, known := m.Handlers[job.Name]; known {
		return h(ctx, job)
	}
	delay := m.UnknownDelay
	if delay == 0 {
		delay = 30 * time.Second
	}
	return &deferral{delay, fmt.Errorf("no handler for job name %q", job.Name)}
}

// Typed runs jobs whose payload is the JSON of a T. A payload that is not goes to dead: another attempt would not help.
func Typed[T any](h func(ctx context.Context, value T, job *Job) error) Handler {
	return func(ctx context.Context, job *Job) error {
		var value T
		if err := json.Unmarshal(job.Payload, &value); err != nil {
			return DeadLetter(fmt.Errorf("payload is no %T: %w", value, err))
		}
		return h(ctx, value, job)
	}
}

// ErrStopping is the cause of a handler's context at shutdown, once the grace is over. What the handler then returns as an
// error hands the job back without spending the attempt.
var ErrStopping = errors.New("worker is stopping")

type deferral struct {
	wait time.Duration
	why  error
}

func (d *deferral) Error() string {
	if d.why != nil {
		return fmt.Sprintf("deferred for %v: %v", d.wait, d.why)
	}
	return fmt.Sprintf("deferred for %v", d.wait)
}

// Defer, returned by a handler, lets the job wait for d without spending the attempt.
func Defer(d time.Duration) error { return &deferral{wait: d} }

type retry struct {
	wait time.Duration
	err  error
}

func (r *retry) Error() string {
	if r.err == nil {
		return fmt.Sprintf("to be tried again in %v", r.wait)
	}
	return r.err.Error()
}
func (r *retry) Unwrap() error { return r.err }

// RetryIn, returned by a handler, spends the attempt as any error does, but lets the job wait for d instead of [Options].Backoff.
func RetryIn(d time.Duration, err error) error { return &retry{d, err} }

type rateLimited struct {
	wait time.Duration
	key  string
	err  error
}

func (r *rateLimited) Error() string {
	text := fmt.Sprintf("rate limited for %v", r.wait)
	if r.err != nil {
		text += ": " + r.err.Error()
	}
	return text
}
func (r *rateLimited) Unwrap() error { return r.err }

// RateLimitedOption narrows or explains a [RateLimited].
type RateLimitedOption func(*rateLimited)

// Key closes only the jobs that have the job's value of that key, such as the model or the tenant whose limit was met.
func Key(name string) RateLimitedOption { return func(r *rateLimited) { r.key = name } }

// Because keeps the text of err as the reason of the close.
func Because(err error) RateLimitedOption { return func(r *rateLimited) { r.err = err } }

// RateLimited, returned by a handler that met an upstream's own limit (429 with Retry-After), closes the queue for d: no job of it is
// handed out until then by any worker. The job keeps its place and its attempt. With [Key] only the jobs of a key value are
// closed.
func RateLimited(d time.Duration, options ...RateLimitedOption) error {
	r := &rateLimited{wait: d}
	for _, o := range options {
		o(r)
	}
	return r
}

type deadLetter struct{ err error }

func (d *deadLetter) Error() string {
	if d.err == nil {
		return "dead-lettered"
	}
	return d.err.Error()
}
func (d *deadLetter) Unwrap() error { return d.err }

// DeadLetter, returned by a handler, gives the job up at once, whatever attempts are left.
func DeadLetter(err error) error { return &deadLetter{err} }
