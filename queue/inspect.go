package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/echomq/emq/lua"
)

// State is where a job is.
type State string

// The states. See the state diagram in the README.
const (
	Wait      State = "wait"      // may be claimed, in order of its place
	Active    State = "active"    // claimed, under a lease
	Delayed   State = "delayed"   // until its due time, or until the limit that sent it back lets it run
	Dead      State = "dead"      // given up; kept until it is redriven or deleted
	Completed State = "completed" // done; kept only when asked, for its Retain
)

// DelayedBy says what a delayed job waits for.
type DelayedBy string

// The causes of delay.
const (
	ByDelay DelayedBy = "delay" // its own Delay or At
	ByRetry DelayedBy = "retry" // the back-off after a failed attempt
	ByDefer DelayedBy = "defer" // its handler deferred it
	ByLimit DelayedBy = "limit" // a limit, or a close, sent it back; it keeps its place
)

// Blocker says which limit, and for which key value, refused a job.
type Blocker = lua.Blocker

// Reason says why a job is dead, or that its last attempt failed.
type Reason string

// The reasons.
const (
	ReasonRetry        Reason = "retry"         // not dead: the last attempt failed and another follows
	ReasonAttempts     Reason = "attempts"      // it used up its attempts
	ReasonLost         Reason = "lost"          // too many workers were lost with it: a poison job
	ReasonDeadLettered Reason = "dead_lettered" // its handler gave it up
	ReasonMissing      Reason = "missing"       // the server lost its record
	ReasonNeverFits    Reason = "never_fits"    // its cost is more than a limit ever grants at once
)

// Status is one job as it stands.
type Status struct {
	Job
	State      State
	Attempts   int       // attempts spent; a running attempt is not counted before it ends
	Deferrals  int       // times it was sent back by a limit or deferred by its handler
	Reclaims   int       // times its lease ran out since a handler last returned from it
	EnqueuedAt time.Time // by the server's clock, as all times here
	DueAt      time.Time // Delayed: when it is due
	DelayedBy  DelayedBy // Delayed: what it waits for
	Line       *Blocker  // Delayed, ByLimit: in whose line it stands; nil for a limit that every job falls under
	LeaseEnd   time.Time // Active: when its lease ends unless it is extended
	DiedAt     time.Time // Dead
	KeptUntil  time.Time // Completed
	Reason     Reason    // Dead, or ReasonRetry
	LastError  string    // the last failure, valid UTF-8 of at most 8 KiB
	Result     []byte    // Completed: what the handler left
}

// Get looks at one job. It fails with [ErrNotFound] when there is none, and [ErrBadName].
func (q *Queue) Get(ctx context.Context, id string) (Status, error) {
	if err := lua.CheckName("job id", id); err != nil {
		return Status{}, err
	}
	found, ok, err := lua.ReadJob(ctx, q.client, q.keys, id)
	if err != nil {
		return Status{}, err
	}
	if !ok {
		return Status{}, fmt.Errorf("emq: job %s: %w in queue %s", id, ErrNotFound, q.Name())
	}
	return status(found)
}

// Bounds of a page of jobs.
const (
	maxPage   = 1000
	maxOffset = 10_000
)

// List reads one page of the jobs in a state: waiting ones in the order of their claims, others by the time that goes with
// their state. count is at most 1,000, offset at most 10,000. Payloads of more than about 16 KB are cut short; [Queue.Get]
// has them whole.
func (q *Queue) List(ctx context.Context, state State, offset, count int) ([]Status, error) {
	switch {
	case !slices.Contains([]State{Wait, Active, Delayed, Dead, Completed}, state):
		return nil, fmt.Errorf("emq: listing jobs: state %q is unknown; want wait, active, delayed, dead or completed", state)
	case count < 1 || count > maxPage:
		return nil, fmt.Errorf("emq: listing jobs: count is %d; want 1 to %d", count, maxPage)
	case offset < 0 || offset > maxOffset:
		return nil, fmt.Errorf("emq: listing jobs: offset is %d; want 0 to %d", offset, maxOffset)
	}
	page, err := lua.ReadPage(ctx, q.client, q.keys, string(state), offset, count)
	if err != nil {
		return nil, err
	}
	jobs := make([]Status, 0, len(page))
	for _, found := range page {
		s, err := status(found)
		if err != nil {
			s = Status{Job: Job{ID: found.ID}, State: state, Reason: ReasonMissing, LastError: err.Error()}
		}
		jobs = append(jobs, s)
	}
	return jobs, nil
}

func status(f lua.Found) (Status, error) {
	r, err := lua.ParseRecord(f.Record)
	if err != nil {
		return Status{}, fmt.Errorf("job %s: %w", f.ID, err)
	}
	s := Status{
		Job: FromRecord(f.ID, r), State: State(f.State), Attempts: r.Attempts, Deferrals: r.Deferrals, Reclaims: r.Reclaims,
		EnqueuedAt: r.Enqueued, Result: []byte(f.Result),
	}
	switch s.State {
	case Delayed:
		s.DueAt, s.DelayedBy, s.Line = f.At, DelayedBy(f.By), f.Line
	case Active:
		s.LeaseEnd = f.At
	case Dead:
		s.DiedAt = f.At
	case Completed:
		s.KeptUntil = f.At
	}
	if reason, text, ok := strings.Cut(f.Failure, "\n"); ok {
		s.Reason, s.LastError = Reason(reason), text
	}
	if s.State == Delayed && s.DelayedBy == "" {
		switch {
		case s.Reason == ReasonRetry:
			s.DelayedBy = ByRetry
		case s.Deferrals > 0:
			s.DelayedBy = ByDefer
		default:
			s.DelayedBy = ByDelay
		}
	}
	return s, nil
}

// FromRecord is the job that a stored record describes; the claim side builds on it.
func FromRecord(id string, r lua.Record) Job {
	h := r.Header
	job := Job{
		ID: id, Name: h.Name, Payload: r.Payload, Priority: Priority(r.Priority), Keys: h.Keys, Cost: h.Cost,
		MaxAttempts: h.MaxAttempts, Timeout: h.Timeout, StartBy: h.StartBy, Retain: h.Retain,
		traceParent: h.TraceParent, traceState: h.TraceState,
	}
	if job.MaxAttempts == 0 {
		job.MaxAttempts = DefaultMaxAttempts
	}
	return job
}

// TraceContext is the W3C trace context that the job carries from its enqueue; empty when there was none.
func (j *Job) TraceContext() (traceparent, tracestate string) { return j.traceParent, j.traceState }

// Counts is how many jobs are in each state at one moment.
type Counts struct {
	At        time.Time // the server's clock
	Wait      int64
	Active    int64
	Delayed   int64 // all delayed jobs …
	SentBack  int64 // … and those of them that a limit sent back
	Dead      int64
	Completed int64
	Paused    bool
}

// Counts counts the jobs by state.
func (q *Queue) Counts(ctx context.Context) (Counts, error) {
	c, err := lua.ReadCounts(ctx, q.client, q.keys)
	return Counts{c.Now, c.Wait, c.Active, c.Delayed, c.Sent, c.Dead, c.Completed, c.Paused}, err
}
