package claim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/meter"
	"github.com/echomq/emq/queue"
)

// Defaults and bounds of [Options].
const (
	DefaultLease       = 30 * time.Second
	DefaultMaxReclaims = 3
	MaxBatch           = 1000 // jobs of one claim, settle or extend
	maxReclaims        = 15   // what a record can count
)

// Options of a [Claimer]. The zero value means the defaults.
type Options struct {
	// Lease is how long a claimed job belongs to its claimer unless extended; [DefaultLease] when 0, at least 100 ms, in whole
	// milliseconds. All workers of a queue should use the same.
	Lease time.Duration
	// MaxReclaims is how many leases of one job may run out before the job is dead: it may be what kills its workers.
	// [DefaultMaxReclaims] when 0, at most 15.
	MaxReclaims int
	// AllowEviction accepts a server whose maxmemory-policy may evict keys; see queue.Options.
	AllowEviction bool
	// Meter gets counts and durations; nil for none.
	Meter *meter.Meter
}

// Claimer claims jobs of one queue and settles them. It is safe for concurrent use. Make one with [New]; most programs use
// package worker, which owns one.
type Claimer struct {
	client  valkey.Client
	keys    lua.Keys
	opts    Options
	meter   *meter.Queue
	process string // names this claimer to the server, which remembers its last settle
	nonce   atomic.Int64
	made    time.Time

	settling sync.Mutex // one settle at a time: the server remembers only the last
	sequence int64      // of the last settle; owned by settling
}

// New returns a claimer for the queue of that name. Nothing is sent yet. It fails with [queue.ErrBadName] and refuses
// nonsense in the options. The caller makes and closes the client.
func New(client valkey.Client, name string, opts Options) (*Claimer, error) {
	keys, err := lua.ForQueue(name)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, errors.New("claim: client is nil; make one with valkey.NewClient")
	}
	if opts.Lease == 0 {
		opts.Lease = DefaultLease
	}
	if opts.MaxReclaims == 0 {
		opts.MaxReclaims = DefaultMaxReclaims
	}
	switch {
	case opts.Lease < 100*time.Millisecond || opts.Lease > 24*time.Hour || opts.Lease%time.Millisecond != 0:
		return nil, fmt.Errorf("claim: Lease is %v; want whole milliseconds from 100ms to 24h", opts.Lease)
	case opts.MaxReclaims < 0 || opts.MaxReclaims > maxReclaims:
		return nil, fmt.Errorf("claim: MaxReclaims is %d; want 1 to %d, or 0 for %d", opts.MaxReclaims, maxReclaims, DefaultMaxReclaims)
	}
	process, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("claim: naming this process: %w", err)
	}
	return &Claimer{client: client, keys: keys, opts: opts, meter: opts.Meter.Queue(name), process: process.String(), made: time.Now()}, nil
}

// Queue is the queue's name.
func (c *Claimer) Queue() string { return c.keys.Queue() }

// Lease is how long a claimed job belongs to this claimer unless extended.
func (c *Claimer) Lease() time.Duration { return c.opts.Lease }

// Check refuses a server on which the queue cannot keep its promises, with [queue.ErrServerTooOld] or [queue.ErrEvicts], and a user who
// may not run all that claims and settles run, with [queue.ErrNoAccess].
func (c *Claimer) Check(ctx context.Context) error {
	if err := lua.CheckServer(ctx, c.client, c.opts.AllowEviction); err != nil {
		return err
	}
	return lua.CheckAccess(ctx, c.client, c.keys, []string{"claim", "settle", "extend", "look"}, "BLPOP")
}

// Job is a claimed job: what was enqueued, and the lease under which it may be worked on.
type Job struct {
	queue.Job
	Queue      string
	Attempt    int       // 1 for the first; deferrals, hand-backs and lost leases do not count
	Deferrals  int       // times it was sent back or deferred before
	Reclaims   int       // leases of it that ran out since a handler last returned from it
	Suspect    bool      // one more and it is dead: a claim grants nothing after it, so that fewer other jobs are lost with it
	EnqueuedAt time.Time // by the server's clock
	ClaimedAt  time.Time // by the server's clock

	token    string
	started  time.Time // before the claim was sent, by this process's monotonic clock
	mu       sync.Mutex
	leaseEnd time.Time        // by the same clock, earlier than the server's; owned by mu
	result   []byte           // owned by mu
	costs    map[string]int64 // real ones; owned by mu
}

// Token names this lease of the job. It is new with each claim, so a store that the handler writes to can refuse an earlier one.
func (j *Job) Token() string { return j.token }

// SetResult keeps result with the completed job for its Retain; without Retain it is dropped. The handler's last call counts. It
// fails with [ErrResultTooLarge], and then leaves what was set before.
func (j *Job) SetResult(result []byte) error {
	if len(result) > MaxResult {
		return fmt.Errorf("emq: job %s: %w: %d bytes; at most %d are allowed", j.ID, ErrResultTooLarge, len(result), MaxResult)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result = result
	return nil
}

// SetCost says what the job really cost in a unit, in place of what it reserved. When the job is settled, in whatever way, the
// difference is given back to the budget that it was taken from, as far as that still runs, or charged to it, even beyond its
// max. The last call for a unit counts. It fails for a name outside the allow-list ([queue.ErrBadName]) and for a cost that is
// negative or above [queue.MaxCost].
func (j *Job) SetCost(unit string, cost int64) error {
	if err := lua.CheckName("cost name", unit); err != nil {
		return err
	}
	if cost < 0 || cost > queue.MaxCost {
		return fmt.Errorf("emq: job %s: real cost %s is %d; want 0 to %d", j.ID, unit, cost, int64(queue.MaxCost))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.costs == nil {
		j.costs = map[string]int64{}
	}
	j.costs[unit] = cost
	return nil
}

// realCosts are those that were set.
func (j *Job) realCosts() map[string]int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.costs)
}

// LeaseEnd is when the lease ends at the latest by this process's clock, a little before it does by the server's.
func (j *Job) LeaseEnd() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.leaseEnd
}

// SinceClaim is how long ago the claim was sent.
func (j *Job) SinceClaim() time.Duration { return time.Since(j.started) }

// Batch is what one claim answered. To be refused or to find nothing is an answer, not an error.
type Batch struct {
	Jobs []*Job
	// Limited: a limit that every job falls under refuses, and jobs wait for it. RetryAfter is when it grants again.
	Limited    bool
	RetryAfter time.Duration
	// SentBack are the jobs that limits refused: one for a limit that every job falls under, and those that joined the line of a
	// bucket. They are delayed now and keep their places.
	SentBack []SentBack
	// Paused: the queue is paused; nothing is handed out.
	Paused bool
	// More: the claim stopped at its own bounds; ask again at once.
	More bool
	// Next is how long to wait before a claim can find anything new, unless woken; 0 at once, -1 when nothing is known to come.
	Next time.Duration
	// Again: the caller should claim again as soon as it has use for jobs; else there is nothing until it is woken or a timer says so.
	Again bool
	// Timers are what a claimer that watches does by itself; see [Claimer.Watch].
	Timers Timers
	// At is the server's clock.
	At time.Time
	// Reclaimed counts leases that had run out and whose jobs went back to wait; Died counts jobs that went to dead.
	Reclaimed, Died int
}

// SentBack is a job that a limit refused, and how long until it may be granted.
type SentBack struct {
	ID         string
	By         queue.Blocker
	RetryAfter time.Duration
}

// Claim brings back what is due, then takes up to k jobs, k at most [MaxBatch], and spends the queue's budget for them, all in
// one step of the server. With k 0 it only brings back, and wakes another worker if there is work.
//
// It fails with a [*queue.ConfigError] or [*queue.CorruptError] when the limit cannot be obeyed: then nothing was handed out. It is
// never repeated by itself. After a time-out or a broken connection jobs may have been claimed without anyone knowing; they
// come back when their leases end, and the budget they took stays spent.
func (c *Claimer) Claim(ctx context.Context, k int) (Batch, error) {
	return c.claim(ctx, "", k)
}

// claim is Claim by a process that watches over the queue; "" for one that does not.
func (c *Claimer) claim(ctx context.Context, watcher string, k int) (Batch, error) {
	if k < 0 || k > MaxBatch {
		return Batch{}, fmt.Errorf("claim: k is %d; want 0 to %d", k, MaxBatch)
	}
	start := time.Now()
	nonce := c.name() + strconv.FormatInt(c.nonce.Add(1), 36)
	got, err := lua.Claim(ctx, c.client, c.keys, watcher, nonce, k, c.opts.Lease, c.opts.MaxReclaims)
	c.meter.Claimed(len(got.IDs), time.Since(start), err)
	if err != nil {
		return Batch{}, err
	}
	b := Batch{
		Limited: got.Retry > 0, RetryAfter: got.Retry, Paused: got.Word == "paused", More: got.More,
		Next: got.Next, Again: got.Again, Timers: Timers(got.Timers), At: got.Now, Reclaimed: got.Reclaimed, Died: got.Died,
	}
	var unreadable []lua.Settlement
	for i, id := range got.IDs {
		record, err := lua.ParseRecord(got.Records[i])
		if err != nil {
			unreadable = append(unreadable, lua.Settlement{Outcome: lua.DeadLetter, ID: id, Token: got.Token, Text: string(queue.ReasonMissing) + "\n" + err.Error()})
			continue
		}
		job := &Job{
			Job: queue.FromRecord(id, record), Queue: c.Queue(), Attempt: record.Attempts + 1, Deferrals: record.Deferrals,
			Reclaims: record.Reclaims, Suspect: record.Reclaims > 0 && record.Reclaims >= c.opts.MaxReclaims-1, EnqueuedAt: record.Enqueued, ClaimedAt: got.Now,
			token: got.Token, started: start, leaseEnd: start.Add(c.opts.Lease),
		}
		b.Jobs = append(b.Jobs, job)
		c.meter.QueueTime(got.Now.Sub(record.Enqueued))
	}
	if got.Limited {
		c.meter.Admitted(len(got.IDs))
	} else {
		c.meter.Unlimited(len(got.IDs))
	}
	for _, s := range got.SentBack {
		b.SentBack = append(b.SentBack, SentBack(s))
		c.meter.RateLimitHit(s.RetryAfter)
	}
	c.meter.Reclaimed(b.Reclaimed)
	if len(unreadable) > 0 {
		// Where this fails they come back by lease and are met again.
		settling, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _ = c.send(settling, unreadable)
	}
	return b, nil
}
