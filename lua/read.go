package lua

import (
	"context"
	"time"

	"github.com/valkey-io/valkey-go"
)

type (
	budgetArgs struct {
		Cap string `lua:"cap"`
	}
	jobArgs struct {
		ID string `lua:"id"`
	}
	listArgs struct {
		State string `lua:"state"`
		From  int    `lua:"from"`
		Count int    `lua:"count"`
	}
)

var (
	budgetScript = bind[budgetArgs]("budget", "budget", "misconfigured", "corrupt")
	countsScript = bind[noArgs]("counts", "counts")
	jobScript    = bind[jobArgs]("job", "found", "unknown")
	listScript   = bind[listArgs]("list", "page")
)

// Budget is the queue's own limit as it stands.
type Budget struct {
	Now       time.Time // the server's clock
	Algorithm string
	Max       int64         // 0: no limit
	Window    time.Duration // its length
	Burst     int64         // 0: the algorithm's default
	Used      int64         // units spent that count now; may exceed a lowered max
	Free      int64         // units that would be granted now; -1: no limit
	Retry     time.Duration // until one more unit is granted
	Reset     time.Duration // until all are free again if nobody asks
	Paused    bool
}

// ReadBudget reads the queue's own limit; a cap above 0 stands in for the configured max. It changes nothing.
func ReadBudget(ctx context.Context, c valkey.Client, keys Keys, limit string) (Budget, error) {
	r, err := budgetScript.run(ctx, c, keys, budgetArgs{limit})
	if err != nil {
		return Budget{}, err
	}
	return Budget{time.UnixMilli(r.number(0)), r.text(1), r.number(2), r.ms(3), r.number(4), r.number(5), r.number(6), r.ms(7), r.ms(8), r.number(9) == 1}, nil
}

// Counts is how many jobs are in each state.
type Counts struct {
	Now                                          time.Time
	Wait, Active, Delayed, Sent, Dead, Completed int64 // Sent: those of Delayed that a limit sent back
	Paused                                       bool
}

// ReadCounts counts the jobs by state. It changes nothing.
func ReadCounts(ctx context.Context, c valkey.Client, keys Keys) (Counts, error) {
	r, err := countsScript.run(ctx, c, keys, noArgs{})
	if err != nil {
		return Counts{}, err
	}
	return Counts{time.UnixMilli(r.number(0)), r.number(1), r.number(2), r.number(3), r.number(4), r.number(5), r.number(6), r.number(7) == 1}, nil
}

// Found is one job as it stands.
type Found struct {
	ID      string
	Now     time.Time
	State   string    // wait, active, delayed, dead or completed
	At      time.Time // due, lease end, death or end of the kept result; zero for wait
	By      string    // what delays it: limit, delay, retry or defer
	Line    *Blocker  // the bucket in whose line it stands, if it does
	Record  string    // a page has no more than its first 16 KiB
	Failure string    // reason, line feed, last error
	Result  string
}

// ReadJob looks at one job; ok is false when there is none of that id.
func ReadJob(ctx context.Context, c valkey.Client, keys Keys, id string) (job Found, ok bool, err error) {
	r, err := jobScript.run(ctx, c, keys, jobArgs{id})
	if err != nil || r.word == "unknown" {
		return Found{}, false, err
	}
	return Found{id, time.UnixMilli(r.number(0)), r.text(1), at(r.number(2)), r.text(3), blocker(r.text(7)), r.text(4), r.text(5), r.text(6)}, true, nil
}

// ReadPage lists jobs in a state, from the from-th on.
func ReadPage(ctx context.Context, c valkey.Client, keys Keys, state string, from, count int) ([]Found, error) {
	r, err := listScript.run(ctx, c, keys, listArgs{state, from, count})
	if err != nil {
		return nil, err
	}
	var page []Found
	for i := 1; i+5 < len(r.values); i += 6 {
		page = append(page, Found{ID: r.text(i), Now: time.UnixMilli(r.number(0)), State: state, At: at(r.number(i + 1)),
			By: r.text(i + 2), Line: blocker(r.text(i + 3)), Record: r.text(i + 4), Failure: r.text(i + 5)})
	}
	return page, nil
}

func at(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func blocker(bucket string) *Blocker {
	if bucket == "" {
		return nil
	}
	b := ParseBlocker(bucket)
	return &b
}
