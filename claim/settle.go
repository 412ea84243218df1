package claim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/queue"
)

// ErrLeaseLost: the lease had ended, or another one of the job was given since. Nothing was changed; the job is, or will be,
// somebody else's.
var ErrLeaseLost = errors.New("lease lost")

// Bounds of what is kept with a job, in bytes.
const (
	MaxErrorText = 8 << 10 // of a failure's text; the rest is cut
	MaxResult    = 1 << 20 // of a result; a larger one is refused
)

// ErrResultTooLarge: a result above [MaxResult]. It was not taken.
var ErrResultTooLarge = errors.New("result too large")

// Outcome is one way in which a claimed job ends. Make one with [Complete], [Retry], [Defer], [HandBack],
// [RateLimited] or [DeadLetter].
type Outcome struct {
	Job  *Job
	kind string
	wait time.Duration
	text string
}

// Kind is the outcome's word: complete, retry, defer, back, limited or dead.
func (o Outcome) Kind() string { return o.kind }

// Closes tells whether the outcome closes the queue or a key value, which should be settled before more is claimed.
func (o Outcome) Closes() bool { return o.kind == lua.Limited }

// Wait is the delay of a retry or a deferral.
func (o Outcome) Wait() time.Duration { return o.wait }

// Size is about how many bytes the outcome takes in a settle call.
func (o Outcome) Size() int { return 200 + len(o.text) }

// Complete ends the job as done. With a Retain it is kept for that long with the result that its handler set.
func Complete(job *Job) Outcome {
	o := Outcome{Job: job, kind: lua.Complete, wait: job.Retain}
	if job.Retain > 0 {
		job.mu.Lock()
		o.text = string(job.result)
		job.mu.Unlock()
	}
	return o
}

// Retry spends the attempt and lets the job wait for the next one. The text of err is kept with it.
func Retry(job *Job, wait time.Duration, err error) Outcome {
	return Outcome{job, lua.Retry, max(0, wait), Text(err)}
}

// Defer lets the job wait without spending the attempt; when due it goes to the end of its priority.
func Defer(job *Job, wait time.Duration) Outcome {
	return Outcome{job, lua.Defer, max(0, wait), ""}
}

// HandBack gives the job back unfinished, at its own place and without spending the attempt.
func HandBack(job *Job) Outcome { return Outcome{Job: job, kind: lua.HandBack} }

// RateLimited gives the job back at its own place without spending the attempt, and closes the queue for wait, or with a key the
// jobs that have this job's value of it: what they call said that it wants no more until then. A job without such a key is
// deferred. The text of err is kept as the close's reason.
func RateLimited(job *Job, wait time.Duration, key string, err error) Outcome {
	if _, has := job.Keys[key]; key != "" && !has {
		return Defer(job, wait)
	}
	wait = max(time.Millisecond, (wait + time.Millisecond - 1).Truncate(time.Millisecond)) // a short time is not none
	return Outcome{job, lua.Limited, wait, key + "\n" + Text(err)}
}

// DeadLetter gives the job up; it is kept until it is redriven or deleted. The text of err is kept with it.
func DeadLetter(job *Job, reason queue.Reason, err error) Outcome {
	return Outcome{Job: job, kind: lua.DeadLetter, text: string(reason) + "\n" + Text(err)}
}

// Text is what is kept of an error: valid UTF-8 without control characters but line feed and tab, at most [MaxErrorText] bytes.
func Text(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if len(text) > 2*MaxErrorText {
		text = text[:2*MaxErrorText]
	}
	text = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > MaxErrorText {
		text = strings.ToValidUTF8(text[:MaxErrorText], "")
	}
	return text
}

// Settle ends claimed jobs, at most [MaxBatch], each guarded by its lease. The errors answer for the outcomes in order: nil, or
// one wrapping [ErrLeaseLost]. After a time-out or a broken connection it sends the same call again until ctx ends; the server
// answers a call that it ran already as it did then. If err is not nil the outcomes may or may not have been applied.
func (c *Claimer) Settle(ctx context.Context, outcomes []Outcome) (answers []error, err error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	if len(outcomes) > MaxBatch {
		return nil, fmt.Errorf("claim: settling %d jobs; at most %d at a time are allowed", len(outcomes), MaxBatch)
	}
	jobs := make([]lua.Settlement, len(outcomes))
	for i, o := range outcomes {
		jobs[i] = lua.Settlement{Outcome: o.kind, ID: o.Job.ID, Token: o.Job.token, Wait: o.wait, Text: o.text, Costs: o.Job.realCosts()}
	}
	start := time.Now()
	lost, err := c.send(ctx, jobs)
	c.meter.Settled(time.Since(start), err)
	if err != nil {
		return nil, err
	}
	answers = make([]error, len(outcomes))
	for i := range lost {
		if lost[i] {
			answers[i] = leaseLost(outcomes[i].kind, outcomes[i].Job)
		}
	}
	return answers, nil
}

func leaseLost(verb string, job *Job) error {
	return fmt.Errorf("emq: %s job %s: %w; nothing was changed", verb, job.ID, ErrLeaseLost)
}

// send makes one settle call, again and again with the same number until it is answered.
func (c *Claimer) send(ctx context.Context, jobs []lua.Settlement) ([]bool, error) {
	c.settling.Lock()
	defer c.settling.Unlock()
	c.sequence++
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		lost, err := lua.Settle(ctx, c.client, c.keys, c.process, c.sequence, c.opts.Lease, jobs)
		if err == nil || !transient(err) {
			return lost, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// transient: the call was not answered, or the server said that it cannot serve now.
func transient(err error) bool {
	if errors.Is(err, lua.ErrUnavailable) || errors.Is(err, lua.ErrStoreFull) {
		return true
	}
	var answer *valkey.ValkeyError
	var network net.Error
	return !errors.As(err, &answer) && !errors.Is(err, valkey.ErrClosing) && (errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded))
}

// Extend moves the leases of jobs to a whole lease from now, in calls of at most [MaxBatch], and returns the jobs whose lease
// had ended. When it fails the jobs from the failed call on were not extended, as far as is known.
func (c *Claimer) Extend(ctx context.Context, jobs []*Job) (lost []*Job, err error) {
	for len(jobs) > 0 {
		part := jobs[:min(len(jobs), MaxBatch)]
		jobs = jobs[len(part):]
		leases := make([]lua.Settlement, len(part))
		for i, j := range part {
			leases[i] = lua.Settlement{ID: j.ID, Token: j.token}
		}
		start := time.Now()
		gone, err := lua.Extend(ctx, c.client, c.keys, c.opts.Lease, leases)
		if err != nil {
			return lost, err
		}
		for i, j := range part {
			if gone[i] {
				lost = append(lost, j)
				continue
			}
			j.mu.Lock()
			j.leaseEnd = start.Add(c.opts.Lease)
			j.mu.Unlock()
		}
	}
	return lost, nil
}
