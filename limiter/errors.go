package limiter

import "errors"

// What can go wrong, for errors.Is. A denial is not an error. A bucket that cannot be read is a [*lua.CorruptError] with its
// key, whatever [OnError] says; [Limiter.Reset] heals it.
var (
	// ErrBadLimit is wrapped by every error about a limit that cannot be set.
	ErrBadLimit = errors.New("bad limit")
	// ErrBadCost is wrapped when the number of units is negative or above [Most]. Nothing was sent.
	ErrBadCost = errors.New("bad cost")
	// ErrBadBuckets is wrapped by [Limiter.TakeAll] when there are no buckets, more than [MaxBuckets], or two of one key.
	ErrBadBuckets = errors.New("bad buckets")
	// ErrCrossSlot is wrapped by [Limiter.TakeAll] when the keys do not lie in one slot of a cluster. Nothing was sent.
	ErrCrossSlot = errors.New("keys in different slots")
	// ErrNeverFits is wrapped by [Limiter.Wait] when more units are asked for than the limit can ever grant at once.
	ErrNeverFits = errors.New("never fits")
	// ErrUnavailable is wrapped, beside what happened, when the store gave no decision. After a time-out or a broken connection
	// the units may have been spent all the same; the call is never sent again.
	ErrUnavailable = errors.New("store unavailable")
)
