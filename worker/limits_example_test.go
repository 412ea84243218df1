package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// A handler that met an upstream's own limit (429 with Retry-After) closes the queue for the jobs of that model. The job keeps its place
// and its attempt.
func ExampleRateLimited() {
	ctx := context.Background()
	q := open("llm")
	for _, model := range []string{"x", "x", "y"} {
		if _, err := q.Enqueue(ctx, queue.Job{ID: fmt.Sprint("ask-", model, "-", time.Now().UnixNano()), Keys: map[string]string{"model": model}}); err != nil {
			log.Fatal(err)
		}
	}
	retryAfter := time.Hour // what the answer's Retry-After says
	work(q, 2, func(_ context.Context, job *worker.Job) error {
		if job.Keys["model"] == "x" {
			fmt.Println("429 for x")
			return worker.RateLimited(retryAfter, worker.Key("model"), worker.Because(errors.New("429 Too Many Requests")))
		}
		fmt.Println("answer from y")
		return nil
	}, worker.Options{Concurrency: 1})
	counts, err := q.Counts(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("of x still to do:", counts.Wait+counts.SentBack)
	// Output:
	// 429 for x
	// answer from y
	// of x still to do: 2
}

// A budget that several queues share cannot be a limit of one of them. It is taken in the handler; what has to wait is deferred, which
// costs no attempt.
func ExampleDefer_sharedBudget() {
	ctx := context.Background()
	q := open("notify")
	for _, chat := range []string{"ann", "ann"} {
		if _, err := q.Enqueue(ctx, queue.Job{Payload: []byte(chat)}); err != nil {
			log.Fatal(err)
		}
	}
	shared, err := limiter.New(client, limiter.Options{Prefix: q.Name() + ":{bot}:", Timeout: time.Second}) // one {hashtag}, one slot
	if err != nil {
		log.Fatal(err)
	}
	all := limiter.Bucket{Key: "all", Limit: limiter.Limit{Algorithm: limiter.TokenBucket, Max: 30, Window: time.Second}}
	work(q, 2, func(ctx context.Context, job *worker.Job) error {
		chat := string(job.Payload)
		one := limiter.Bucket{Key: "chat:" + chat, Limit: limiter.Limit{Algorithm: limiter.TokenBucket, Max: 1, Window: time.Second}}
		d, err := shared.TakeAll(ctx, []limiter.Bucket{all, one}, 1)
		switch {
		case err != nil:
			return err
		case !d.Allowed:
			fmt.Println(chat, "again within", d.RetryAfter.Round(time.Second))
			return worker.Defer(d.RetryAfter)
		}
		fmt.Println("send to", chat)
		return nil
	}, worker.Options{Concurrency: 1})
	// Output:
	// send to ann
	// ann again within 1s
}
