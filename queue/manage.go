package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

// SetLimit sets or changes the queue's own limit, which every worker of the fleet shares; the reason is kept beside it. What is
// left out (Window, Algorithm, Burst) keeps the value that is set, else its default; a Burst that was never given follows Max. A
// LeakyBucket hands out one job each window/max. What was used stays used and what is allowed changes with the next claim; another
// algorithm starts whole. Workers that slept because of the old limit are woken. It returns the limit before, or an error
// wrapping [limiter.ErrBadLimit]; to lift the limit use [Queue.LiftLimit].
func (q *Queue) SetLimit(ctx context.Context, limit limiter.Limit, reason string) (before limiter.Limit, err error) {
	bad := func(text string) (limiter.Limit, error) {
		return limiter.Limit{}, fmt.Errorf("emq: %w: %s", limiter.ErrBadLimit, text)
	}
	switch {
	case limit.Max == 0:
		return bad("max is 0; lift the limit to let everything through, pause the queue to let nothing through")
	case limit.Aligned || limit.CountDenied:
		return bad("aligned and count_denied are options of package limiter alone; want false")
	case limit.Algorithm == limiter.LeakyBucket && limit.Burst > 1:
		return bad("a leaky_bucket hands out one job at a time; want a burst of 1 or none")
	}
	// The script knows what is left out and judges the whole.
	alone := limit
	if alone.Algorithm == "" && alone.Burst > 0 {
		alone.Algorithm = limiter.TokenBucket
	}
	if alone.Window == 0 {
		alone.Window = time.Millisecond
	}
	if err := alone.Validate(); err != nil {
		return limiter.Limit{}, err
	}
	change := lua.LimitChange{Op: "set", Max: limit.Max, Algorithm: string(limit.Algorithm), Reason: reason}
	if limit.Window > 0 {
		change.Duration = strconv.FormatInt(limit.Window.Milliseconds(), 10)
	}
	if limit.Burst > 0 {
		change.Burst = strconv.FormatInt(limit.Burst, 10)
	}
	return q.limit(ctx, change)
}

// LiftLimit takes the queue's own limit away and returns it. What was used goes on counting, so that a limit of the same
// algorithm set again soon finds it.
func (q *Queue) LiftLimit(ctx context.Context, reason string) (before limiter.Limit, err error) {
	return q.limit(ctx, lua.LimitChange{Op: "lift", Reason: reason})
}

// ResetLimit makes the budget of the queue's own limit whole at once. It heals a counter that holds what it should not.
func (q *Queue) ResetLimit(ctx context.Context, reason string) error {
	_, err := q.limit(ctx, lua.LimitChange{Op: "reset", Reason: reason})
	return err
}

func (q *Queue) limit(ctx context.Context, change lua.LimitChange) (limiter.Limit, error) {
	if err := q.check(ctx, "limit"); err != nil {
		return limiter.Limit{}, err
	}
	change.Reason = cutText(change.Reason, maxReason)
	before, err := lua.SetLimit(ctx, q.client, q.keys, change)
	if err != nil {
		if refused := new(ConfigError); errors.As(err, &refused) && refused.Field != "layout" {
			return limiter.Limit{}, fmt.Errorf("emq: %w: %w", limiter.ErrBadLimit, err)
		}
		return limiter.Limit{}, err
	}
	return limiter.FromMeta(before.Max, before.Duration, before.Algorithm, before.Burst), nil
}

// Limit is the queue's own limit as it is set; the zero Limit when there is none. It fails with a [*ConfigError] when the
// setting is one that no claim obeys.
func (q *Queue) Limit(ctx context.Context) (limiter.Limit, error) {
	b, err := lua.ReadBudget(ctx, q.client, q.keys, "")
	if err != nil || b.Max == 0 {
		return limiter.Limit{}, err
	}
	return limiter.Limit{Algorithm: limiter.Algorithm(b.Algorithm), Max: b.Max, Window: b.Window, Burst: b.Burst}, nil
}

// Pause stops claims from handing out jobs, until [Queue.Resume]. Running jobs go on; delayed jobs still fall due. The reason
// is kept. It says whether the queue was paused before.
func (q *Queue) Pause(ctx context.Context, reason string) (was bool, err error) {
	if err := q.check(ctx, "pause"); err != nil {
		return false, err
	}
	return lua.Pause(ctx, q.client, q.keys, true, cutText(reason, maxReason))
}

// Resume lets claims hand out jobs again and says whether the queue was paused.
func (q *Queue) Resume(ctx context.Context, reason string) (was bool, err error) {
	if err := q.may(ctx, "pause"); err != nil {
		return false, err
	}
	return lua.Pause(ctx, q.client, q.keys, false, cutText(reason, maxReason))
}

// RunNow brings a delayed job back before its time: one that a limit sent back to its own place, any other to the end of its
// priority. Limits still apply. It fails with [ErrNotFound], or [ErrWrongState] when the job is not delayed.
func (q *Queue) RunNow(ctx context.Context, id string) error {
	return q.one(ctx, id, Delayed, "run now", byID{"run", lua.RunNow})
}

// Redrive brings a dead job back to the end of its priority, with all its attempts. It fails with [ErrNotFound], or
// [ErrWrongState] when the job is not dead or its record is missing.
func (q *Queue) Redrive(ctx context.Context, id string) error {
	return q.one(ctx, id, Dead, "redrive", byID{"redrive", lua.Redrive})
}

// Delete removes a job in any state but active. It fails with [ErrNotFound], or [ErrWrongState] when the job is active.
func (q *Queue) Delete(ctx context.Context, id string) error {
	return q.one(ctx, id, "", "delete", byID{"remove", lua.Remove})
}

// byID is a script that does something to jobs.
type byID struct {
	script string
	do     func(ctx context.Context, c valkey.Client, keys lua.Keys, ids []string) ([]string, error)
}

func (q *Queue) one(ctx context.Context, id string, want State, verb string, do byID) error {
	if err := lua.CheckName("job id", id); err != nil {
		return err
	}
	if err := q.may(ctx, do.script); err != nil {
		return err
	}
	found, err := do.do(ctx, q.client, q.keys, []string{id})
	if err != nil {
		return err
	}
	switch {
	case found[0] == "unknown":
		return fmt.Errorf("emq: %s job %s: %w in queue %s", verb, id, ErrNotFound, q.Name())
	case want == "" && State(found[0]) == Active:
		return fmt.Errorf("emq: %s job %s: %w: it is active; wait until its lease ends", verb, id, ErrWrongState)
	case want != "" && State(found[0]) != want:
		return fmt.Errorf("emq: %s job %s: %w: it is %s; want %s", verb, id, ErrWrongState, found[0], want)
	}
	return nil
}

// RedriveDead brings back all jobs that are dead for a reason, or all dead jobs when reason is empty, and says how many. Jobs
// whose record is missing stay.
func (q *Queue) RedriveDead(ctx context.Context, reason Reason) (int64, error) {
	return q.eachDead(ctx, reason, byID{"redrive", lua.Redrive})
}

// DeleteDead deletes all jobs that are dead for a reason, or all dead jobs when reason is empty, and says how many.
func (q *Queue) DeleteDead(ctx context.Context, reason Reason) (int64, error) {
	return q.eachDead(ctx, reason, byID{"remove", lua.Remove})
}

func (q *Queue) eachDead(ctx context.Context, reason Reason, do byID) (done int64, err error) {
	const page = 500
	if err := q.may(ctx, do.script); err != nil {
		return 0, err
	}
	counts, err := q.Counts(ctx)
	if err != nil {
		return 0, err
	}
	// Jobs that die again meanwhile join at the end: this many are looked at, so that the call ends.
	left, offset := counts.Dead, 0
	for left > 0 {
		dead, err := lua.ReadPage(ctx, q.client, q.keys, string(Dead), offset, int(min(page, left)))
		if err != nil || len(dead) == 0 {
			return done, err
		}
		var ids []string
		for _, job := range dead {
			if reason == "" || len(job.Failure) > len(reason) && job.Failure[:len(reason)+1] == string(reason)+"\n" {
				ids = append(ids, job.ID)
			}
		}
		moved := 0
		if len(ids) > 0 {
			found, err := do.do(ctx, q.client, q.keys, ids)
			if err != nil {
				return done, err
			}
			for _, state := range found {
				if State(state) == Dead {
					moved++
				}
			}
		}
		done += int64(moved)
		left -= int64(len(dead))
		offset += len(dead) - moved
	}
	return done, nil
}

// Drain deletes all waiting jobs, with those that a limit sent back, and if asked the delayed ones too, in bounded steps; it
// says how many. Active, dead and completed jobs stay.
func (q *Queue) Drain(ctx context.Context, delayed bool) (deleted int64, err error) {
	if err := q.may(ctx, "drain"); err != nil {
		return 0, err
	}
	for more := true; more; {
		var n int64
		n, more, err = lua.Drain(ctx, q.client, q.keys, delayed, 500)
		deleted += n
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

const maxReason = 1024

// cutText makes s valid UTF-8 of at most n bytes.
func cutText(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
