package queue_test

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

// unique makes a queue name that no other run of the examples uses.
func unique(name string) string { return name + "-" + rand.Text() }

// open is the queue that an example works on.
func open(name string) *queue.Queue {
	q, err := queue.New(client, unique(name), queue.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return q
}

// giveUp claims the next job and gives it up, as a handler does that returns worker.DeadLetter(why).
func giveUp(q *queue.Queue, why error) {
	ctx := context.Background()
	c, err := claim.New(client, q.Name(), claim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	b, err := c.Claim(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Settle(ctx, []claim.Outcome{claim.DeadLetter(b.Jobs[0], queue.ReasonDeadLettered, why)}); err != nil {
		log.Fatal(err)
	}
}

// Enqueue a job. A worker of package worker runs it.
func Example() {
	ctx := context.Background()
	// client is a valkey.Client, as valkey.NewClient makes it.
	q, err := queue.New(client, unique("mail"), queue.Options{})
	if err != nil {
		log.Fatal(err)
	}
	id, err := q.Enqueue(ctx, queue.Job{Payload: []byte("ana@example.com")})
	if err != nil {
		log.Fatal(err)
	}
	job, err := q.Get(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s\n", job.State, job.Payload)
	// Output: wait: ana@example.com
}

// A job with an id of its own is enqueued once: call again after a time-out to be sure that it is there.
func ExampleQueue_Enqueue_ownID() {
	ctx := context.Background()
	q := open("invoices")
	for range 2 {
		id, err := q.Enqueue(ctx, queue.Job{ID: "order-1001", Payload: []byte("{}")})
		fmt.Println(id, errors.Is(err, queue.ErrDuplicate))
	}
	// Output:
	// order-1001 false
	// order-1001 true
}

// A delayed job is not claimed before its time, by the server's clock.
func ExampleQueue_Enqueue_delay() {
	ctx := context.Background()
	q := open("reminders")
	id, err := q.Enqueue(ctx, queue.Job{Delay: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	job, err := q.Get(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State, job.DelayedBy, job.DueAt.Sub(job.EnqueuedAt))
	if err := q.RunNow(ctx, id); err != nil {
		log.Fatal(err)
	}
	job, err = q.Get(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State)
	// Output:
	// delayed delay 24h0m0s
	// wait
}

// Many jobs go in by one call. A duplicate is that job's own answer; the others are enqueued.
func ExampleQueue_EnqueueMany() {
	ctx := context.Background()
	q := open("invoices")
	answers, err := q.EnqueueMany(ctx, []queue.Job{{ID: "a"}, {ID: "b", Priority: queue.Urgent}, {ID: "a"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range answers {
		fmt.Println(a.ID, errors.Is(a.Err, queue.ErrDuplicate))
	}
	waiting, err := q.List(ctx, queue.Wait, 0, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, job := range waiting {
		fmt.Println(job.ID, "waits with priority", job.Priority)
	}
	// Output:
	// a false
	// b false
	// a true
	// b waits with priority 1
	// a waits with priority 2
}

// One limit holds for the whole fleet. It is data: set it once, or change it while workers run.
func ExampleQueue_SetLimit() {
	ctx := context.Background()
	q := open("mail")
	before, err := q.SetLimit(ctx, limiter.PerMinute(100), "what the provider allows")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("was", before)
	before, err = q.SetLimit(ctx, limiter.Limit{Max: 20}, "the provider is slow today") // the window stays
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("was", before)
	now, err := q.Limit(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("is", now)
	// Output:
	// was unlimited
	// was 100/1m0s
	// is 20/1m0s
}

// Get tells where a job is and why.
func ExampleQueue_Get() {
	ctx := context.Background()
	q := open("invoices")
	if _, err := q.Enqueue(ctx, queue.Job{ID: "order-1001"}); err != nil {
		log.Fatal(err)
	}
	giveUp(q, errors.New("no such customer"))
	job, err := q.Get(ctx, "order-1001")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State, job.Reason, job.Attempts)
	fmt.Println(job.LastError)
	_, err = q.Get(ctx, "order-1002")
	fmt.Println(errors.Is(err, queue.ErrNotFound))
	// Output:
	// dead dead_lettered 1
	// no such customer
	// true
}

// A dead job is kept until it is redriven, with all its attempts, or deleted.
func ExampleQueue_Redrive() {
	ctx := context.Background()
	q := open("invoices")
	if _, err := q.Enqueue(ctx, queue.Job{ID: "order-1001"}); err != nil {
		log.Fatal(err)
	}
	giveUp(q, errors.New("no such customer"))
	if err := q.Redrive(ctx, "order-1001"); err != nil {
		log.Fatal(err)
	}
	job, err := q.Get(ctx, "order-1001")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State, job.Attempts)
	err = q.Redrive(ctx, "order-1001")
	fmt.Println(errors.Is(err, queue.ErrWrongState)) // it waits already
	// Output:
	// wait 0
	// true
}
