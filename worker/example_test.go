package worker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
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

// work runs a worker until its handler has run n times.
func work(q *queue.Queue, n int, h worker.Handler, opts worker.Options) {
	var w *worker.Worker
	opts.Concurrency = 1
	w, err := worker.New(client, q.Name(), func(ctx context.Context, job *worker.Job) error {
		if n--; n == 0 {
			w.Stop()
		}
		return h(ctx, job)
	}, opts)
	if err == nil {
		err = w.Run(context.Background())
	}
	if err != nil {
		log.Fatal(err)
	}
}

// A whole program: it enqueues three jobs, runs them, and stops.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := valkey.NewClient(valkey.MustParseURL(url)) // valkey://127.0.0.1:6379
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q, err := queue.New(client, unique("mail"), queue.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := q.SetLimit(ctx, limiter.PerSecond(100), "what the provider allows"); err != nil {
		log.Fatal(err)
	}
	for _, to := range []string{"ana", "ben", "cleo"} {
		if _, err := q.Enqueue(ctx, queue.Job{Payload: []byte(to)}); err != nil {
			log.Fatal(err)
		}
	}

	w, err := worker.New(client, q.Name(), func(ctx context.Context, job *worker.Job) error {
		fmt.Printf("mail to %s\n", job.Payload)
		if string(job.Payload) == "cleo" {
			stop() // so that the example ends
		}
		return nil
	}, worker.Options{Concurrency: 1})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil { // until the signal
		log.Fatal(err)
	}
	fmt.Println("stopped")
	// Output:
	// mail to ana
	// mail to ben
	// mail to cleo
	// stopped
}

// One fleet runs jobs of several names. A name that this worker does not know yet is deferred, for a newer worker.
func ExampleMux() {
	ctx := context.Background()
	q := open("billing")
	if _, err := q.EnqueueMany(ctx, []queue.Job{
		{Name: "invoice", Payload: []byte("order 1")},
		{ID: "r1", Name: "refund"},
		{Name: "remind", Payload: []byte("order 2")},
	}); err != nil {
		log.Fatal(err)
	}
	mux := worker.Mux{Handlers: map[string]worker.Handler{
		"invoice": func(_ context.Context, job *worker.Job) error {
			fmt.Printf("invoice for %s\n", job.Payload)
			return nil
		},
		"remind": func(_ context.Context, job *worker.Job) error {
			fmt.Printf("reminder of %s\n", job.Payload)
			return nil
		},
	}}
	work(q, 3, mux.Handle, worker.Options{})
	job, err := q.Get(ctx, "r1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Name, job.State, job.Attempts)
	// Output:
	// invoice for order 1
	// reminder of order 2
	// refund delayed 0
}

// Payloads of one type, as JSON. The value that goes in is the value that the handler gets.
func ExampleTyped() {
	type mail struct{ To, Subject string }

	q := open("mail")
	mails := queue.TypedOf[mail](q)
	if _, err := mails.Enqueue(context.Background(), mail{"ana", "Welcome"}, queue.Job{}); err != nil {
		log.Fatal(err)
	}
	send := worker.Typed(func(_ context.Context, m mail, _ *worker.Job) error {
		fmt.Printf("%s to %s\n", m.Subject, m.To)
		return nil
	})
	work(q, 1, send, worker.Options{})
	// Output: Welcome to ana
}

// A handler that cannot go on yet defers its job. That spends no attempt.
func ExampleDefer() {
	ctx := context.Background()
	q := open("exports")
	id, err := q.Enqueue(ctx, queue.Job{})
	if err != nil {
		log.Fatal(err)
	}
	work(q, 1, func(context.Context, *worker.Job) error {
		return worker.Defer(time.Hour) // the file is not there yet
	}, worker.Options{})
	job, err := q.Get(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State, job.DelayedBy, job.Attempts)
	// Output: delayed defer 0
}

// A handler that knows that another attempt would not help gives its job up.
func ExampleDeadLetter() {
	ctx := context.Background()
	q := open("invoices")
	id, err := q.Enqueue(ctx, queue.Job{})
	if err != nil {
		log.Fatal(err)
	}
	work(q, 1, func(context.Context, *worker.Job) error {
		return worker.DeadLetter(errors.New("no such customer"))
	}, worker.Options{})
	job, err := q.Get(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State, job.Reason, job.LastError)
	// Output: dead dead_lettered no such customer
}

// Middleware sees each job before its handler and each error after it.
func ExampleMiddleware() {
	ctx := context.Background()
	q := open("exports")
	if _, err := q.Enqueue(ctx, queue.Job{Name: "export"}); err != nil {
		log.Fatal(err)
	}
	logged := func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, job *worker.Job) error {
			fmt.Println("start", job.Name, "attempt", job.Attempt)
			err := next(ctx, job)
			fmt.Println("end", job.Name, err)
			return err
		}
	}
	work(q, 1, func(context.Context, *worker.Job) error {
		return errors.New("disk full")
	}, worker.Options{Middleware: []worker.Middleware{logged}})
	// Output:
	// start export attempt 1
	// end export disk full
}
