package metrics

import (
	"context"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
)

// Counts is how many jobs of a queue are where, at one moment.
type Counts struct {
	Wait      int64     // may be claimed
	Active    int64     // claimed, under a lease
	Delayed   int64     // all delayed jobs …
	SentBack  int64     // … and those of them that a limit sent back
	Dead      int64     // given up; kept until redriven or deleted
	Completed int64     // done, and kept
	Paused    bool      // the queue hands out nothing
	At        time.Time // the server's clock
}

// ReadCounts counts a queue's jobs by state.
func ReadCounts(ctx context.Context, client valkey.Client, queue string) (Counts, error) {
	keys, err := lua.ForQueue(queue)
	if err != nil {
		return Counts{}, err
	}
	c, err := lua.ReadCounts(ctx, client, keys)
	if err != nil {
		return Counts{}, err
	}
	return Counts{c.Wait, c.Active, c.Delayed, c.Sent, c.Dead, c.Completed, c.Paused, c.Now}, nil
}
