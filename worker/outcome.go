package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/meter"
	"github.com/echomq/emq/queue"
)

// Backoff is how long a job waits after its n-th failed attempt, n from 1.
type Backoff func(n int) time.Duration

// Exponential doubles from first to most, each wait shortened by up to a fifth at random so that jobs that failed together do
// not come back together.
func Exponential(first, most time.Duration) Backoff {
	return func(n int) time.Duration {
		wait := most
		if n < 62 && first<<(n-1)>>(n-1) == first {
			wait = min(most, first<<(n-1))
		}
		return wait - time.Duration(rand.Int64N(int64(wait/5)+1))
	}
}

// DefaultBackoff waits 1 s, 2 s, 4 s … up to an hour, less jitter.
var DefaultBackoff = Exponential(time.Second, time.Hour)

// decide is what becomes of a job whose handler returned err; cause is why its context ended, nil if it had not.
func decide(job *Job, err, cause error, backoff Backoff) (claim.Outcome, meter.Outcome) {
	var d *deferral
	var limited *rateLimited
	var dead *deadLetter
	switch {
	case err == nil:
		return claim.Complete(job), meter.Completed
	case errors.As(err, &d):
		return claim.Defer(job, d.wait), meter.Deferred
	case errors.As(err, &limited):
		return claim.RateLimited(job, limited.wait, limited.key, limited.err), meter.Deferred
	case errors.As(err, &dead):
		return claim.DeadLetter(job, queue.ReasonDeadLettered, err), meter.Dead
	case errors.Is(cause, ErrStopping), errors.Is(cause, claim.ErrLeaseLost):
		// Nothing that the handler did: if the lease still lives after all, the attempt is not spent.
		return claim.HandBack(job), meter.HandedBack
	case job.Attempt >= job.MaxAttempts:
		return claim.DeadLetter(job, queue.ReasonAttempts, err), meter.Dead
	}
	var later *retry
	if errors.As(err, &later) {
		return claim.Retry(job, later.wait, err), meter.Retried
	}
	return claim.Retry(job, backoff(job.Attempt), err), meter.Retried
}

// panicError is a handler's panic as an error, with the stack of its goroutine.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string {
	return fmt.Sprintf("handler panicked: %v\n\n%s", p.value, p.stack)
}

// errGoexit is what a handler that ended its goroutine without returning is taken for.
var errGoexit = errors.New("handler ended its goroutine by runtime.Goexit without returning")

// ended is the cause of ctx's end, nil while it goes on.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}
