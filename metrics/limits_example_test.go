package metrics_test

import (
	"context"
	"fmt"
	"time"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

// What is left of each limit, who waits for it, and why a job waits.
func ExampleBudgets() {
	ctx := context.Background()
	client, _ := emqtest.Start()
	q, err := queue.New(client, fmt.Sprint("llm-", time.Now().UnixNano()), queue.Options{})
	if err != nil {
		panic(err)
	}
	if _, err := q.SetNamedLimit(ctx, queue.NamedLimit{Name: "rpm", By: "model", Limit: limiter.PerMinute(2)}, "the provider's plan"); err != nil {
		panic(err)
	}
	for i := range 5 {
		if _, err := q.Enqueue(ctx, queue.Job{ID: fmt.Sprint("ask-", i+1), Keys: map[string]string{"model": "x"}}); err != nil {
			panic(err)
		}
	}
	c, err := claim.New(client, q.Name(), claim.Options{})
	if err != nil {
		panic(err)
	}
	if _, err := c.Claim(ctx, 10); err != nil {
		panic(err)
	}

	all, err := metrics.Budgets(ctx, client, q.Name(), 3)
	if err != nil {
		panic(err)
	}
	for _, l := range all.Limits {
		for _, b := range l.Buckets {
			fmt.Printf("%s, %s=%s: %d of %d used, %d wait\n", l.Name, l.By, b.Value, b.Used, b.Max, b.Waiting)
		}
	}
	e, err := metrics.Explain(ctx, client, q.Name(), "ask-5")
	if err != nil {
		panic(err)
	}
	fmt.Println(e.State, "by", e.By, "within", e.RetryAfter.Round(time.Minute), "with", e.Ahead, "ahead")
	// Output:
	// rpm, model=x: 2 of 2 used, 3 wait
	// delayed by limit rpm, model=x within 1m0s with 2 ahead
}
