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
// [Limiter.Peek] nothing. [Limiter.TakeAll] takes from several buckets together,
// of all or of none. [Limiter.Refund] gives units back, [Limiter.Reset] forgets
// the bucket, [Limiter.Wait] sleeps until the units are granted. Each is one
// script on the server, by the server's clock, so checking and spending cannot
// be torn apart; the claim of a queue spends the queue's own limit by the same
// rule and the same script text. Package
// [github.com/echomq/emq/limiter/httplimit] tells HTTP clients.
//
// # Which algorithm
//
//	Algorithm             for                                           most in one window  memory of a key
//	FixedWindow           quotas (2,000 a day); other runtimes can       2·Max-1             a number
//	                      read it; the default
//	SlidingLog            few units that must never be exceeded in any   Max                 10 to 100 bytes a unit
//	                      span: logins, codes sent
//	SlidingWindowCounter  many keys, no burst where windows meet, and    2·Max-1, Max when   a short string
//	                      a small error does not matter                  calls are even
//	TokenBucket           calls to an API that tolerates bursts: after   Burst+Max-1         a short string
//	                      a pause Burst at once, then an even Max
//	LeakyBucket           what must come evenly however it arrives: a    Max                 a short string
//	                      burst queues, and Decision.Delay spreads it
//
// All count a unit for one Window, in whole milliseconds, half-open: one that
// counts at 0 is free again at exactly Window. Rates are exact: a token bucket
// of 7 a second that is asked each ms admits 7 in each second, not 6.99 or 7.05.
//
// # Decisions
//
// A denial is a [Decision], not an error. RetryAfter is exact: the least wait
// after which the same call is allowed if nobody else calls; [Never] when the
// cost is above the limit's [Limit.Capacity]. A denied call spends nothing,
// unless CountDenied says so, and neither does one for 0 units. A limit of 0
// does not limit.
//
// A limit belongs to the call, not to the bucket: when it changes, what was used
// stays used and what is allowed changes at once. A token bucket whose Burst was
// lowered is empty at most, never in debt; what a leaky bucket has let in still
// leaves in turn. Only the algorithm cannot change under a key: another one
// finds the state corrupt until it has run out, or until a Reset.
//
// # Clocks and accidents
//
// When the server's clock steps back nothing is granted that would not have
// been: time stands still for a step of up to one Window, and a longer one makes
// the units count from now on. A key that lost its TTL counts, and gets it back
// from the next call that takes or is denied. A key that holds anything else is
// a [*lua.CorruptError] until it is reset; it never counts as no units. Where
// two fixed windows meet, up to 2·Max-1 units can fall into a span shorter than
// one window, or 2·Max if they are Aligned.
//
// [Model] is every algorithm without a server, for tests and simulation.
//
// # When the store is down
//
// Each call is answered within Options.Timeout, from the first one on, as
// Options.OnError says: with an error that wraps [ErrUnavailable], or a Decision
// that says [FailedOpen] or [FailedClosed]. Options.Observe is told in each case.
// After a time-out or a broken connection nothing is sent again: the units may
// have been spent, so the limit holds and the caller may get less, never more.
package limiter
