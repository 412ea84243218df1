package claim_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// A chat API's two limits at the claim: 30 a second for the bot, one a second for each chat, bursts tolerated. A job is handed out when
// both grant; one that its chat refuses waits for that chat alone.
func Example_twoLimits() {
	ctx := context.Background()
	q, c := open(limiter.Limit{Algorithm: limiter.TokenBucket, Max: 30, Window: time.Second}, 0)
	if _, err := q.SetNamedLimit(ctx, queue.NamedLimit{
		Name: "chat", By: "chat", Limit: limiter.Limit{Algorithm: limiter.TokenBucket, Max: 1, Window: time.Second, Burst: 2},
	}, "the API's documentation"); err != nil {
		log.Fatal(err)
	}
	for i, chat := range []string{"ann", "ann", "ann", "ann", "bob"} {
		if _, err := q.Enqueue(ctx, queue.Job{ID: fmt.Sprint("to-", chat, "-", i+1), Keys: map[string]string{"chat": chat}}); err != nil {
			log.Fatal(err)
		}
	}
	b, err := c.Claim(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, job := range b.Jobs {
		fmt.Println("send", job.ID)
	}
	for _, s := range b.SentBack {
		fmt.Println("later", s.ID, "by", s.By.Limit, s.By.Value, "within", s.RetryAfter.Round(time.Second))
	}
	// Output:
	// send to-ann-1
	// send to-ann-2
	// send to-bob-5
	// later to-ann-3 by chat ann within 1s
	// later to-ann-4 by chat ann within 1s
}

// A job's cost is a reservation: the handler tells what it really was, and the difference goes back, or is charged.
func ExampleJob_SetCost() {
	ctx := context.Background()
	q, c := open(limiter.PerMinute(500), 0)
	if _, err := q.SetNamedLimit(ctx, queue.NamedLimit{
		Name: "tpm", By: "model", Unit: "tokens", Limit: limiter.PerMinute(10_000),
	}, "the provider's plan"); err != nil {
		log.Fatal(err)
	}
	ask := func(id string) {
		job := queue.Job{ID: id, Keys: map[string]string{"model": "x"}, Cost: map[string]int64{"tokens": 6000}}
		if _, err := q.Enqueue(ctx, job); err != nil {
			log.Fatal(err)
		}
	}
	ask("first")
	ask("second")
	b, err := c.Claim(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("claimed", len(b.Jobs), "sent back", b.SentBack[0].ID)
	// The answer took 1,500 tokens, not the 6,000 that were reserved.
	if err := b.Jobs[0].SetCost("tokens", 1500); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Settle(ctx, []claim.Outcome{claim.Complete(b.Jobs[0])}); err != nil {
		log.Fatal(err)
	}
	if b, err = c.Claim(ctx, 10); err != nil {
		log.Fatal(err)
	}
	fmt.Println("claimed", b.Jobs[0].ID)
	// Output:
	// claimed 1 sent back second
	// claimed second
}
