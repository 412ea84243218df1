package lua

import (
	"context"
	"strconv"

	"github.com/valkey-io/valkey-go"
)

type noArgs struct{}

var enqueueScript = bind[noArgs]("enqueue", "enqueued", "misconfigured", "corrupt")

// NewJob is one job to enqueue.
type NewJob struct {
	ID       string
	Priority int
	When     string // "" now, "+ms" from now, "@ms" at that time; by the server's clock
	Body     string // see [Body]
}

// Enqueue puts jobs in, all in one step. The answers say which ids existed before: those jobs were not touched.
func Enqueue(ctx context.Context, c valkey.Client, keys Keys, jobs []NewJob) (duplicate []bool, err error) {
	rest := make([]string, 0, 4*len(jobs))
	for _, j := range jobs {
		rest = append(rest, j.ID, strconv.Itoa(j.Priority), j.When, j.Body)
	}
	r, err := enqueueScript.run(ctx, c, keys, noArgs{}, rest...)
	if err != nil {
		return nil, err
	}
	for _, answer := range r.texts(1) {
		duplicate = append(duplicate, answer == "duplicate")
	}
	return duplicate, nil
}
