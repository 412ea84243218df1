package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/meter"
)

// Bounds of one enqueue call; larger ones are cut.
const (
	batchJobs  = 1000
	batchBytes = 4 << 20
)

// Options of a [Queue]. The zero value is right for most.
type Options struct {
	// MaxPayload is the largest payload in bytes; [DefaultMaxPayload] when 0. Claims read payloads within their script, so
	// keep large bodies elsewhere and enqueue where they are.
	MaxPayload int
	// AllowEviction accepts a server whose maxmemory-policy may evict keys. Then a limit may admit up to its max again, and a
	// job may be lost, at each eviction.
	AllowEviction bool
	// Meter gets counts, durations and spans; nil for none.
	Meter *meter.Meter
}

// Queue is the producer's and the operator's side of one queue. It is safe for concurrent use and holds no connection of its
// own. Make one with [New].
type Queue struct {
	client  valkey.Client
	keys    lua.Keys
	opts    Options
	meter   *meter.Queue
	checked atomic.Bool // the server was checked and the queue's name noted
	allowed sync.Map    // scripts whose commands the user may run
	singles gatherer    // of Enqueue
}

// New returns the queue of that name, which exists from its first job on. The caller makes and closes the client. Nothing is
// sent yet: the server is checked at the first enqueue. It fails with [ErrBadName] for a name outside the allow-list and
// refuses nonsense in the options.
func New(client valkey.Client, name string, opts Options) (*Queue, error) {
	keys, err := lua.ForQueue(name)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, errors.New("queue: client is nil; make one with valkey.NewClient")
	}
	if opts.MaxPayload < 0 || opts.MaxPayload > 512<<20 {
		return nil, fmt.Errorf("queue: MaxPayload is %d; want 0 (for %d) to 512 MiB", opts.MaxPayload, DefaultMaxPayload)
	}
	if opts.MaxPayload == 0 {
		opts.MaxPayload = DefaultMaxPayload
	}
	q := &Queue{client: client, keys: keys, opts: opts, meter: opts.Meter.Queue(name)}
	q.singles.send, q.singles.enough = q.call, 6
	return q, nil
}

// Name is the queue's name.
func (q *Queue) Name() string { return q.keys.Queue() }

// Enqueue puts one job in and returns its id. Of goroutines that enqueue at the same time some share a call, with an answer each. When it returns without error the job is handed to a handler at least once, as
// far as the server keeps the write. It fails with [ErrBadName], [ErrBadJob] or [ErrPayloadTooLarge] before anything is sent,
// with [ErrDuplicate] (and the id) when the id exists, with [ErrStoreFull] or [ErrUnavailable] when nothing was stored. After
// a time-out or a broken connection the job may or may not be stored; call again with the same ID to be sure.
func (q *Queue) Enqueue(ctx context.Context, job Job) (id string, err error) {
	answers, err := q.EnqueueMany(ctx, []Job{job})
	if len(answers) == 1 {
		return answers[0].ID, answers[0].Err
	}
	var bad *IndexError
	if errors.As(err, &bad) {
		err = bad.Err
	}
	return "", err
}

// Answer is what became of one job of [Queue.EnqueueMany].
type Answer struct {
	ID  string // as given, or the new one
	Err error  // nil: enqueued. ErrDuplicate: the id exists. ErrTooHeavy: no budget could ever grant it. Else the failure of the call that carried it
}

// EnqueueMany puts jobs in, in order, cut into calls of at most 1,000 jobs or 4 MiB. A job that cannot be enqueued as it is
// refuses the whole call before anything is sent, with an [*IndexError]. Duplicates and jobs too heavy are those jobs' own answers,
// not an error. When a call fails, the answers of its jobs and of those after it carry the error, which is returned too; jobs
// of earlier calls stay enqueued.
func (q *Queue) EnqueueMany(ctx context.Context, jobs []Job) ([]Answer, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	ready := slices.Clone(jobs)
	for i := range ready {
		if err := ready[i].check(q.opts.MaxPayload); err != nil {
			return nil, &IndexError{i, err}
		}
		if ready[i].ID == "" {
			id, err := uuid.NewV7()
			if err != nil {
				return nil, fmt.Errorf("emq: making a job id: %w", err)
			}
			ready[i].ID = id.String()
		}
	}
	if err := q.check(ctx, "enqueue"); err != nil {
		return nil, err
	}
	ctx, end := q.meter.StartEnqueue(ctx, len(ready))
	answers, err := q.send(ctx, ready)
	end(err)
	return answers, err
}

// send puts jobs in that have their ids.
func (q *Queue) send(ctx context.Context, jobs []Job) ([]Answer, error) {
	var traceParent, traceState string
	if q.meter != nil {
		traceParent, traceState = meter.Inject(ctx)
	}
	for i := range jobs {
		jobs[i].traceParent, jobs[i].traceState = traceParent, traceState
	}
	if len(jobs) == 1 {
		enqueued, err := q.singles.enqueue(ctx, jobs[0].stored())
		return []Answer{q.answer(jobs[0].ID, enqueued, err)}, err
	}
	next, stop := make(chan []lua.NewJob), make(chan struct{})
	defer close(stop)
	go func() { // makes up a call while the one before is under way
		defer close(next)
		for call := range calls(jobs) {
			select {
			case next <- call:
			case <-stop:
				return
			}
		}
	}()
	answers := make([]Answer, 0, len(jobs))
	for call := range next {
		enqueued, err := q.call(ctx, call)
		if err != nil {
			for _, left := range jobs[len(answers):] {
				answers = append(answers, q.answer(left.ID, lua.Enqueued{}, err))
			}
			return answers, err
		}
		for i, job := range call {
			answers = append(answers, q.answer(job.ID, enqueued[i], nil))
		}
	}
	return answers, nil
}

// calls cuts jobs into calls.
func calls(jobs []Job) iter.Seq[[]lua.NewJob] {
	return func(yield func([]lua.NewJob) bool) {
		call, size := make([]lua.NewJob, 0, min(len(jobs), batchJobs)), 0
		for i := range jobs {
			job := jobs[i].stored()
			if len(call) == batchJobs || len(call) > 0 && size+len(job.Body) > batchBytes {
				if !yield(call) {
					return
				}
				call, size = make([]lua.NewJob, 0, min(len(jobs)-i, batchJobs)), 0
			}
			call, size = append(call, job), size+len(job.Body)
		}
		yield(call)
	}
}

// answer says what became of a job.
func (q *Queue) answer(id string, enqueued lua.Enqueued, err error) Answer {
	switch heavy := enqueued.Heavy; {
	case err != nil:
	case enqueued.Duplicate:
		err = fmt.Errorf("emq: job %s: %w in queue %s; nothing was changed", id, ErrDuplicate, q.Name())
	case heavy != nil:
		err = fmt.Errorf("emq: job %s: %w: its cost %s=%d is above %d, the most that limit %s of queue %s ever grants at once; nothing was stored",
			id, ErrTooHeavy, heavy.Unit, heavy.Cost, heavy.Most, heavy.Limit, q.Name())
	}
	return Answer{ID: id, Err: err}
}

// call sends the jobs of one call.
func (q *Queue) call(ctx context.Context, jobs []lua.NewJob) ([]lua.Enqueued, error) {
	start := time.Now()
	enqueued, err := lua.Enqueue(ctx, q.client, q.keys, jobs)
	q.meter.Sent(ctx, len(jobs), time.Since(start), err)
	return enqueued, err
}

// check looks at the server and notes the queue's name, once, and asks whether the user may run a script.
func (q *Queue) check(ctx context.Context, script string) error {
	if !q.checked.Load() {
		if err := lua.CheckServer(ctx, q.client, q.opts.AllowEviction); err != nil {
			return err
		}
		if err := q.may(ctx, script); err != nil {
			return err
		}
		// The name is for listings only: a failure (no memory, no permission) is told by the call itself.
		_ = q.client.Do(ctx, q.client.B().Sadd().Key(lua.Queues).Member(q.Name()).Build()).Error()
		q.checked.Store(true)
	}
	return q.may(ctx, script)
}

// may asks, once for each script, whether the user of the connection may run all its commands: one that is refused in the middle would end
// half done.
func (q *Queue) may(ctx context.Context, script string) error {
	if _, known := q.allowed.Load(script); known {
		return nil
	}
	if err := lua.CheckAccess(ctx, q.client, q.keys, []string{script}); err != nil {
		return err
	}
	q.allowed.Store(script, true)
	return nil
}

// Names lists the known queues: those that some process enqueued to.
func Names(ctx context.Context, client valkey.Client) ([]string, error) {
	names, err := client.Do(ctx, client.B().Smembers().Key(lua.Queues).Build()).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("emq: listing queues: %w", err)
	}
	return names, nil
}

// IndexError says which job made [Queue.EnqueueMany] refuse its call; nothing was sent.
type IndexError struct {
	Index int
	Err   error
}

func (e *IndexError) Error() string { return "job " + strconv.Itoa(e.Index) + ": " + e.Err.Error() }

// Unwrap is what is wrong with the job.
func (e *IndexError) Unwrap() error { return e.Err }
