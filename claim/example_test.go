package claim_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// open is the queue that an example works on, with a limit and n jobs, and its claimer.
func open(limit limiter.Limit, n int) (*queue.Queue, *claim.Claimer) {
	ctx := context.Background()
	q, err := queue.New(client, "mail-"+rand.Text(), queue.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := q.SetLimit(ctx, limit, "example"); err != nil {
		log.Fatal(err)
	}
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i].ID = fmt.Sprint("job-", i+1)
	}
	if _, err := q.EnqueueMany(ctx, jobs); err != nil {
		log.Fatal(err)
	}
	c, err := claim.New(client, q.Name(), claim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return q, c
}

// A loop of one's own: claim what the limit grants, settle it, and wait until a claim is worth making again.
func Example() {
	ctx := context.Background()
	_, c := open(limiter.Limit{Max: 2, Window: 100 * time.Millisecond}, 5)
	for left := 5; ; {
		b, err := c.Claim(ctx, 10)
		if err != nil {
			log.Fatal(err)
		}
		var outcomes []claim.Outcome
		for _, job := range b.Jobs {
			fmt.Println(job.ID, "attempt", job.Attempt)
			outcomes = append(outcomes, claim.Complete(job))
		}
		late, err := c.Settle(ctx, outcomes)
		if err = errors.Join(append(late, err)...); err != nil {
			log.Fatal(err) // claim.ErrLeaseLost: it took longer than the lease
		}
		if left -= len(b.Jobs); left == 0 {
			return // so that the example ends
		}
		switch {
		case b.Limited:
			fmt.Println("over budget")
			<-time.After(b.RetryAfter)
		case b.Next != 0:
			wait := b.Next
			if wait < 0 { // nothing is known to come
				wait = time.Minute
			}
			if _, err := c.Await(ctx, wait); err != nil { // or until there is work
				log.Fatal(err)
			}
		}
	}
	// Output:
	// job-1 attempt 1
	// job-2 attempt 1
	// over budget
	// job-3 attempt 1
	// job-4 attempt 1
	// over budget
	// job-5 attempt 1
}

// A claim that the limit refuses says when to come again, and sends one job back as a delayed job, which keeps its place.
func ExampleClaimer_Claim() {
	ctx := context.Background()
	q, c := open(limiter.PerMinute(2), 4)
	b, err := c.Claim(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("claimed:", len(b.Jobs))
	fmt.Println("limited:", b.Limited, "for", b.RetryAfter, "sent back:", b.SentBack[0].ID)
	job, err := q.Get(ctx, b.SentBack[0].ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State, job.DelayedBy, job.Attempts)
	// Output:
	// claimed: 2
	// limited: true for 1m0s sent back: job-3
	// delayed limit 0
}

// The ways a claimed job ends. Each settlement is guarded by the job's lease: what comes too late changes nothing.
func ExampleClaimer_Settle() {
	ctx := context.Background()
	q, c := open(limiter.PerMinute(100), 5)
	b, err := c.Claim(ctx, 5)
	if err != nil {
		log.Fatal(err)
	}
	jobs := b.Jobs
	outcomes := []claim.Outcome{
		claim.Complete(jobs[0]),
		claim.Retry(jobs[1], time.Minute, errors.New("timed out")),
		claim.Defer(jobs[2], time.Minute),
		claim.HandBack(jobs[3]),
		claim.DeadLetter(jobs[4], queue.ReasonDeadLettered, errors.New("no such customer")),
	}
	if _, err := c.Settle(ctx, outcomes); err != nil {
		log.Fatal(err)
	}
	for _, job := range jobs[1:] {
		s, err := q.Get(ctx, job.ID)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(s.ID, s.State, "attempts", s.Attempts)
	}
	late, err := c.Settle(ctx, []claim.Outcome{claim.DeadLetter(jobs[0], queue.ReasonDeadLettered, nil)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(jobs[0].ID, errors.Is(late[0], claim.ErrLeaseLost))
	// Output:
	// job-2 delayed attempts 1
	// job-3 delayed attempts 0
	// job-4 wait attempts 0
	// job-5 dead attempts 1
	// job-1 true
}
