// Package limiter judges calls by rate limits that all processes share in a
// Valkey server, apart from any queue.
//
// A [Limit] is a rule, a key names a bucket, and a [Limiter] decides:
//
//	l, err := limiter.New(client, limiter.Options{})
//	d, err := l.Take(ctx, "user:7", limiter.PerMinute(100), 1)
//	if err == nil && !d.Allowed {
//		// 429; d.RetryAfter is when the same call is allowed
//	}
//
// [Limiter.Take] takes all units or none, [Limiter.TakeUpTo] what remains,
// [Limiter.Peek] nothing. [Limiter.Refund] gives units back, [Limiter.Reset]
// forgets the bucket, [Limiter.Wait] sleeps until the units are granted. Each
// is one script on the server, by the server's clock, so checking and spending
// cannot be torn apart; the claim of a queue spends the queue's own limit by
// the same rule and the same script text.
//
// # Decisions
//
// A denial is a [Decision], not an error. RetryAfter is exact: the least wait
// after which the same call is allowed if nobody else calls; [Never] when the
// cost is above the limit. A denied call spends nothing, and neither does one
// for 0 units. A limit of 0 does not limit. A limit belongs to the call, not to
// the bucket: when it changes, what was used stays used and what is allowed
// changes at once.
//
// # The fixed window
//
// A window opens with the first unit granted and ends one Window later; the
// bucket is a plain counter whose TTL is the window, as EchoMQ keeps it. A
// counter without TTL, or with one longer than the window, is mended by the next
// call that takes or is denied; when the server's clock steps back nothing is
// granted that would not have been. Where two windows meet, up to 2·Max-1 units
// can fall into a span shorter than one window. [Window] is the same rule without
// a server, for tests and simulation.
//
// # When the store is down
//
// Each call is answered within Options.Timeout, from the first one on, as
// Options.OnError says: with an error that wraps [ErrUnavailable], or a Decision
// that says [FailedOpen] or [FailedClosed]. Options.Observe is told in each case.
// After a time-out or a broken connection nothing is sent again: the units may
// have been spent, so the limit holds and the caller may get less, never more.
package limiter
