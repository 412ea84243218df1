package worker_test

import (
	"context"
	"log"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// The program of the README: a test of package docs holds the two together.
var _ = func(ctx context.Context, send func(context.Context, []byte) error) (err error) {
	client, err := valkey.NewClient(valkey.MustParseURL("valkey://127.0.0.1:6379"))
	if err != nil {
		log.Fatal(err)
	}
	q, _ := queue.New(client, "mail", queue.Options{})
	_, _ = q.SetLimit(ctx, limiter.PerSecond(10), "the provider's published limit")
	_, _ = q.Enqueue(ctx, queue.Job{Payload: []byte("hello")})
	w, _ := worker.New(client, "mail", func(ctx context.Context, job *worker.Job) error {
		return send(ctx, job.Payload)
	}, worker.Options{})
	err = w.Run(ctx) // start as many of these, on as many machines, as you like: together they send 10 a second
	return err
}
