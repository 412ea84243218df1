package main

import (
	"context"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// fullClaim is the k of the claims whose cost is measured.
const fullClaim = 100

// backlog is a queue with many jobs in one state, on a server of its own, whose claims and enqueues are timed in the server.
type backlog struct {
	*emqQueue
	claimer *claim.Claimer
	kind    string
}

// The kinds of backlog.
const (
	waiting  = "waiting"   // jobs that wait
	due      = "due"       // delayed jobs that have all fallen due and were not brought back
	keysOver = "keys_over" // key values that are over budget, a job in the line of each
	leased   = "leases"    // jobs under a lease
)

// longLease outlasts every measurement.
const longLease = time.Hour

// openBacklog fills a queue with n of a kind.
func openBacklog(ctx context.Context, kind string, n int) *backlog {
	s := startServer()
	q := openQueue(s)
	b := &backlog{q, must(claim.New(q.client, name, claim.Options{Lease: longLease})), kind}
	switch kind {
	case waiting:
		q.fill(ctx, n, nil)
	case due:
		q.fill(ctx, n, b.next)
		pause(ctx, 100*time.Millisecond)
	case keysOver:
		b.spendKeys(ctx, n)
		q.fill(ctx, n, func(i int, job *queue.Job) { job.Keys = map[string]string{"tenant": strconv.Itoa(i)} })
		for must(q.Counts(ctx)).Wait > 0 {
			if got := must(b.claimer.Claim(ctx, claim.MaxBatch)); len(got.Jobs) > 0 {
				fail("%d jobs were granted over budget", len(got.Jobs))
			}
		}
	case leased:
		q.fill(ctx, n, nil)
		for got := 0; got < n; {
			got += len(must(b.claimer.Claim(ctx, claim.MaxBatch)).Jobs)
		}
	}
	if kind != due {
		q.fill(ctx, 2*fullClaim, nil) // what is claimed in each measurement
	}
	return b
}

func (b *backlog) close() {
	b.emqQueue.close()
	b.stop()
}

// next makes a job of the kind that claims hand out: it waits, or is due within a moment.
func (b *backlog) next(_ int, job *queue.Job) {
	if b.kind == due {
		job.Delay = 20 * time.Millisecond
	}
}

// spendKeys uses up the budgets of n key values, as another runtime might, by the documented counters.
func (b *backlog) spendKeys(ctx context.Context, n int) {
	const window = 24 * time.Hour
	must(b.SetNamedLimit(ctx, queue.NamedLimit{Name: "tenant", By: "tenant", Limit: limiter.Limit{Max: 1, Window: window}}, ""))
	for from := 0; from < n; from += 1000 {
		var commands []valkey.Completed
		for i := from; i < min(n, from+1000); i++ {
			key := "emq:{" + name + "}:limiter:tenant:" + strconv.Itoa(i)
			commands = append(commands, b.client.B().Set().Key(key).Value("1").Px(window).Build())
		}
		for _, r := range b.client.DoMulti(ctx, commands...) {
			check(r.Error())
		}
	}
}

// claimCost is what one full claim takes in the server, in us. What it took is settled and enqueued anew.
func (b *backlog) claimCost(ctx context.Context) float64 {
	var got claim.Batch
	took := b.took(ctx, func() { got = must(b.claimer.Claim(ctx, fullClaim)) })
	if len(got.Jobs) != fullClaim {
		fail("a claim of %d got %d jobs", fullClaim, len(got.Jobs))
	}
	var outcomes []claim.Outcome
	for _, job := range got.Jobs {
		outcomes = append(outcomes, claim.Complete(job))
	}
	for _, answer := range must(b.claimer.Settle(ctx, outcomes)) {
		check(answer)
	}
	b.fill(ctx, fullClaim, b.next)
	if b.kind == due {
		pause(ctx, 25*time.Millisecond)
	}
	return took
}

// enqueueCost is what the enqueue of one job takes in the server, in us.
func (b *backlog) enqueueCost(ctx context.Context) float64 {
	return b.took(ctx, func() { must(b.Enqueue(ctx, queue.Job{Payload: payload})) })
}

// growthPair measures claims with a small and with a large backlog of a kind, in turns.
func growthPair(kind string) func(context.Context, *env, string) samples {
	return func(ctx context.Context, e *env, _ string) samples {
		few := openBacklog(ctx, kind, e.size(10_000, 1000))
		defer few.close()
		many := openBacklog(ctx, kind, e.size(1_000_000, 5000))
		defer many.close()
		got := samples{}
		for i := range e.rounds*10 + 2 {
			costs := map[string]float64{"10k": few.claimCost(ctx), "1m": many.claimCost(ctx)}
			if i < 2 {
				continue // the first claims find things cold
			}
			for name, cost := range costs {
				got[name] = append(got[name], cost)
			}
		}
		return got
	}
}
