package limiter

import (
	"fmt"
	"time"
)

// Never is the RetryAfter of a call that no waiting helps: it asks for more than the limit can ever grant at once.
const Never time.Duration = -1

// Source says where a [Decision] comes from.
type Source string

// The sources.
const (
	Store        Source = "store"         // decided by the rule (a limit of 0 needs no store for that)
	FailedOpen   Source = "failed open"   // the store gave no decision: allowed, see [FailOpen]
	FailedClosed Source = "failed closed" // the store gave no decision: denied, see [FailClosed]
)

// Decision is what a bucket answers. Its times are lengths of time, so no clock of the client is involved.
type Decision struct {
	// Allowed: the units were granted. For a peek: they would be. A refund, and a call for 0 units, is always allowed.
	Allowed bool
	// Granted is the number of units that the call spent.
	Granted int64
	// Limit is the limit's Max.
	Limit int64
	// Remaining is the number of units that would be granted now; -1 when the limit is 0, which is not limited, and 0 when
	// the store gave no decision.
	Remaining int64
	// RetryAfter is the least time after which the same call is allowed if nobody else calls: 0 when allowed, [Never], or
	// 1 ms and more. When the call failed closed it is the window, at most a second.
	RetryAfter time.Duration
	// ResetAfter is the least time after which Remaining is the limit's Capacity again if nobody calls; 0 when it is, or is
	// not known.
	ResetAfter time.Duration
	// Delay is how long the first unit granted by a [LeakyBucket] waits for its turn; those after it follow evenly, each
	// Window/Max later. Who sleeps for so long sends at an even rate. Always 0 for the other algorithms.
	Delay time.Duration
	// At is the store's clock when it decided; zero when it did not.
	At time.Time
	// Source says whether the store decided.
	Source Source
}

// The calls that a bucket answers; the names are those of the script take.
const (
	opTake     = "take"
	opTakeUpTo = "upto"
	opPeek     = "peek"
	opRefund   = "refund"
	opReset    = "reset"
)

// check refuses a call that no bucket could answer.
func check(limit Limit, n int64) error {
	if err := limit.Validate(); err != nil {
		return err
	}
	if n < 0 || n > Most {
		return fmt.Errorf("emq: %w: %d units; want 0 to %d", ErrBadCost, n, int64(Most))
	}
	return nil
}

// unlimited is the decision of a limit of 0: no state is read or written.
func unlimited(op string, n int64) Decision {
	d := Decision{Allowed: true, Remaining: -1, Source: Store}
	if op == opTake || op == opTakeUpTo {
		d.Granted = n
	}
	return d
}

// failed is the decision of a store that gave none.
func failed(source Source, op string, limit Limit, n int64) Decision {
	d := Decision{Limit: limit.Max, Source: source}
	switch {
	case op != opTakeUpTo && n > limit.Capacity():
		d.RetryAfter = Never
	case source == FailedClosed:
		d.RetryAfter = min(limit.window(), time.Second)
	default:
		d.Allowed = true
		if op != opPeek {
			d.Granted = n
		}
	}
	return d
}
