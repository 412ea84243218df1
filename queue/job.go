package queue

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/echomq/emq/lua"
)

// Bounds of a job.
const (
	DefaultMaxAttempts = 25
	DefaultMaxPayload  = 1 << 20                   // bytes
	MaxDelay           = 10 * 365 * 24 * time.Hour // ten years
	MinStartBy         = 100 * time.Millisecond    // less than a claim may take would never start
	MaxKeys            = 16                        // keys, and costs, of one job
	MaxKeyValue        = 256                       // bytes of a key's value
	MaxCost            = 1<<53 - 1
	maxAttempts        = 4095
)

// Priority orders jobs: a job of a lower number is claimed before any of a higher one.
type Priority int

// The priorities. The zero value means [Normal].
const (
	Urgent Priority = 1
	Normal Priority = 2
	Low    Priority = 3
	Lowest Priority = 4
)

// Job is a job to enqueue. Only the payload is usual; every zero field means its stated default.
type Job struct {
	// ID names the job, 1 to 128 of A-Z a-z 0-9 . _ -. Empty: a new UUIDv7. While a job of this id exists in any state, a
	// second one is refused with [ErrDuplicate].
	ID string
	// Name says which handler runs the job, by the same characters. Empty is a name too.
	Name string
	// Payload is opaque: the handler gets the bytes as they are.
	Payload []byte
	// Priority is [Normal] when 0.
	Priority Priority
	// Delay is how long the job is not claimed, by the server's clock. 0 or less: it may be claimed at once. At most
	// [MaxDelay].
	Delay time.Duration
	// At is the time before which the job is not claimed, in place of Delay. A time that has passed means at once.
	At time.Time
	// Keys are what limits by key look at: {"tenant": "acme", "model": "x"}. At most [MaxKeys], values of valid UTF-8 up to
	// [MaxKeyValue] bytes.
	Keys map[string]string
	// Cost is what the job spends from limits by unit: {"tokens": 1800}. Each from 0 to [MaxCost].
	Cost map[string]int64
	// MaxAttempts is how often the job is tried before it is dead; [DefaultMaxAttempts] when 0, at most 4,095.
	MaxAttempts int
	// Timeout ends the handler's context. 0: no time-out.
	Timeout time.Duration
	// StartBy is how long after its claim the handler may still be started; a worker that was stopped in between hands the
	// job back unrun. 0: no bound; at least [MinStartBy].
	StartBy time.Duration
	// Retain is how long the completed job and its result are kept. 0: it is removed when it completes.
	Retain time.Duration

	traceParent, traceState string
}

// check refuses what cannot be enqueued and fills in defaults.
func (j *Job) check(maxPayload int) error {
	if j.ID != "" {
		if err := lua.CheckName("job id", j.ID); err != nil {
			return err
		}
	}
	if j.Name != "" {
		if err := lua.CheckName("job name", j.Name); err != nil {
			return err
		}
	}
	if len(j.Payload) > maxPayload {
		return fmt.Errorf("%w: %d bytes; at most %d are allowed", ErrPayloadTooLarge, len(j.Payload), maxPayload)
	}
	if j.Priority == 0 {
		j.Priority = Normal
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrBadJob}, args...)...)
	}
	switch {
	case j.Priority < Urgent || j.Priority > Lowest:
		return bad("priority %d; want 1 (first) to 4", j.Priority)
	case j.Delay > MaxDelay:
		return bad("delay %v; at most ten years are allowed", j.Delay)
	case !j.At.IsZero() && j.Delay != 0:
		return bad("both Delay and At are set; want one of them")
	case time.Until(j.At) > MaxDelay:
		return bad("at %v; at most ten years ahead are allowed", j.At)
	case j.MaxAttempts < 0 || j.MaxAttempts > maxAttempts:
		return bad("max attempts %d; want 1 to %d, or 0 for %d", j.MaxAttempts, maxAttempts, DefaultMaxAttempts)
	case j.Timeout < 0 || j.Timeout > MaxDelay:
		return bad("time-out %v; want 0 (none) to ten years", j.Timeout)
	case j.StartBy != 0 && (j.StartBy < MinStartBy || j.StartBy > MaxDelay):
		return bad("start-by %v; want 0 (no bound), or %v to ten years", j.StartBy, MinStartBy)
	case j.Retain < 0 || j.Retain > MaxDelay:
		return bad("retain %v; want 0 (not kept) to ten years", j.Retain)
	case len(j.Keys) > MaxKeys:
		return bad("%d keys; at most %d are allowed", len(j.Keys), MaxKeys)
	case len(j.Cost) > MaxKeys:
		return bad("%d costs; at most %d are allowed", len(j.Cost), MaxKeys)
	}
	for name, value := range j.Keys {
		if err := lua.CheckName("key name", name); err != nil {
			return err
		}
		if len(value) > MaxKeyValue || !utf8.ValidString(value) {
			return bad("value of key %s has %d bytes; want valid UTF-8 of at most %d", name, len(value), MaxKeyValue)
		}
	}
	for unit, cost := range j.Cost {
		if err := lua.CheckName("cost name", unit); err != nil {
			return err
		}
		if cost < 0 || cost > MaxCost {
			return bad("cost %s is %d; want 0 to %d", unit, cost, int64(MaxCost))
		}
	}
	return nil
}

// stored is the job as it is stored.
func (j *Job) stored() lua.NewJob {
	return lua.NewJob{ID: j.ID, Priority: int(j.Priority), When: j.when(), Body: lua.Body(j.header(), j.Payload)}
}

// when is the due time as the enqueue script reads it.
func (j *Job) when() string {
	switch {
	case !j.At.IsZero():
		return fmt.Sprintf("@%d", max(0, j.At.UnixMilli()))
	case j.Delay > 0:
		return fmt.Sprintf("+%d", (j.Delay + time.Millisecond - 1).Milliseconds())
	}
	return ""
}

func (j *Job) header() lua.Header {
	return lua.Header{
		Name: j.Name, MaxAttempts: j.MaxAttempts, Timeout: j.Timeout, StartBy: j.StartBy, Retain: j.Retain,
		Keys: j.Keys, Cost: j.Cost, TraceParent: j.traceParent, TraceState: j.traceState,
	}
}
