package metrics

import (
	"context"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

// Budget is a queue's own limit at one moment.
type Budget struct {
	// Configured: the queue has a limit. Without one Max, Used, Window, ResetAfter and RetryAfter are 0 and Remaining is -1.
	Configured bool
	// Algorithm is the rule by which the budget fills and empties.
	Algorithm limiter.Algorithm
	// Max is the number of units that a window grants.
	Max int64
	// Burst is what a token bucket holds; 0 is its default, Max.
	Burst int64
	// Used is the number of units spent that count now. It is above Max when Max was lowered, or when another runtime
	// stopped the queue by the largest integer, 9007199254740991.
	Used int64
	// Remaining is the number of units that claims may spend now, never negative; -1 is without limit.
	Remaining int64
	// Window is the length of a window.
	Window time.Duration
	// ResetAfter is how long until the whole budget is free if nobody spends: what is left of a running fixed window; 0 when it
	// is.
	ResetAfter time.Duration
	// RetryAfter is how long until one more unit is granted; 0 when it would be granted now.
	RetryAfter time.Duration
	// Limited: the limit refuses now.
	Limited bool
	// Paused: the queue hands out nothing, whatever its limit says.
	Paused bool
	// At is the server's clock when this was true.
	At time.Time
}

// ReadBudget reads a queue's own limit.
func ReadBudget(ctx context.Context, client valkey.Client, queue string) (Budget, error) {
	r, err := read(ctx, client, queue, 0)
	if err != nil {
		return Budget{}, err
	}
	if r.Max == 0 {
		return Budget{Remaining: -1, Paused: r.Paused, At: r.Now}, nil
	}
	return Budget{
		Configured: true, Algorithm: limiter.Algorithm(r.Algorithm), Max: r.Max, Burst: r.Burst, Used: r.Used, Remaining: r.Free,
		Window: r.Window, ResetAfter: r.Reset, RetryAfter: r.Retry, Limited: r.Free == 0, Paused: r.Paused, At: r.Now,
	}, nil
}

// RateLimitTTL is how long a queue's limit still refuses: what is left of the window when its counter has reached max, else 0. With max 0 the queue's own cap is meant. It fails with [limiter.ErrBadLimit] for a max that no queue can have.
func RateLimitTTL(ctx context.Context, client valkey.Client, queue string, max int64) (time.Duration, error) {
	if err := (limiter.Limit{Max: max}).Validate(); err != nil {
		return 0, err
	}
	r, err := read(ctx, client, queue, max)
	return r.Retry, err
}

// GlobalRateLimit is a queue's own cap: the number of units that a window grants; 0 when none is configured.
func GlobalRateLimit(ctx context.Context, client valkey.Client, queue string) (int64, error) {
	b, err := ReadBudget(ctx, client, queue)
	return b.Max, err
}

// read reads the queue's own limit; a max above 0 stands in for its cap.
func read(ctx context.Context, client valkey.Client, queue string, max int64) (lua.Budget, error) {
	keys, err := lua.ForQueue(queue)
	if err != nil {
		return lua.Budget{}, err
	}
	return lua.ReadBudget(ctx, client, keys, strconv.FormatInt(max, 10))
}
