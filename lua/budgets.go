package lua

import (
	"context"
	"time"

	"github.com/valkey-io/valkey-go"
)

type (
	budgetsArgs struct {
		Top int `lua:"top"`
	}
	explainArgs struct {
		ID    string `lua:"id"`
		Lease int64  `lua:"lease"`
	}
)

var (
	budgetsScript = bind[budgetsArgs]("budgets", "budgets", "misconfigured", "corrupt")
	explainScript = bind[explainArgs]("explain", "explained", "unknown", "misconfigured", "corrupt")
)

// Budgets are all limits of a queue as they stand.
type Budgets struct {
	Now    time.Time // the server's clock
	Paused bool
	Why    string // Paused: the reason
	Limits []LimitState
	Closed []Closed
}

// LimitState is one limit as it stands.
type LimitState struct {
	Name string // "" for the queue's own
	Named
	Lined   int64 // jobs that it sent back: in its lines, or delayed by it
	Lines   int64 // key values with jobs in line
	Refused int64 // jobs that it would have refused if it were no shadow
	Buckets []BucketState
}

// BucketState is one bucket as it stands. Of a limit by key those are read that were asked for, and those with most jobs in line.
type BucketState struct {
	Value  string // the key value; "" for none
	Max    int64  // 0: no limit for this value
	Window time.Duration
	Burst  int64
	Used   int64 // units spent that count now; may exceed a lowered max
	Free   int64 // units that would be granted now; -1: no limit
	Retry  time.Duration
	Reset  time.Duration
	Lined  int64 // jobs in its line
}

// Closed is what grants nothing until a time: the queue (Key ""), or the jobs whose key has that value.
type Closed struct {
	Key, Value string
	Until      time.Time
	Reason     string
	Lined      int64 // jobs that wait for it
}

// ValueOf names a bucket of a limit by key.
type ValueOf struct{ Limit, Value string }

// ReadBudgets reads all limits, with the top buckets of each limit by key, by jobs in line, and those asked for. It changes nothing.
func ReadBudgets(ctx context.Context, c valkey.Client, keys Keys, top int, also []ValueOf) (Budgets, error) {
	var rest []string
	for _, v := range also {
		rest = append(rest, v.Limit, v.Value)
	}
	r, err := budgetsScript.run(ctx, c, keys, budgetsArgs{top}, rest...)
	if err != nil {
		return Budgets{}, err
	}
	b := Budgets{Now: time.UnixMilli(r.number(0)), Paused: r.number(1) == 1, Why: r.text(2)}
	for _, l := range r.rows(3) {
		s := LimitState{
			Name: l.text(0),
			Named: Named{
				Rule: Rule{Algorithm: l.text(1), Max: l.number(2), Window: l.ms(3), Burst: l.number(4)}, By: l.text(5), Unit: l.text(6),
				Shadow: l.text(7) == "shadow", At: at(l.number(8)), Reason: l.text(9),
			},
			Lined: l.number(10), Lines: l.number(11), Refused: l.number(12),
		}
		for _, v := range l.rows(13) {
			s.Buckets = append(s.Buckets, BucketState{v.text(0), v.number(1), v.ms(2), v.number(3), v.number(4), v.number(5), v.ms(6), v.ms(7), v.number(8)})
		}
		b.Limits = append(b.Limits, s)
	}
	for _, s := range r.rows(4) {
		b.Closed = append(b.Closed, Closed{s.text(0), s.text(1), at(s.number(2)), s.text(3), s.number(4)})
	}
	return b, nil
}

// Explained says why a job is where it is.
type Explained struct {
	Now     time.Time
	State   string
	At      time.Time // delayed: when it is due, or judged again
	Line    *Blocker  // the bucket in whose line it stands
	Ahead   int64     // jobs before it where it is; -1 when that is not known
	Paused  bool
	Verdict string        // granted, blocked, limited (by a limit that every job falls under) or never; "" for a job that is not to be judged
	By      Blocker       // what blocks it
	Retry   time.Duration // until that may let it through if nobody else asks; -1 never
	Asks    []Ask
}

// Ask is what a job asks of one bucket.
type Ask struct {
	Of    Blocker
	By    string        // the name of the key
	Unit  string        // the name of the cost
	Cost  int64         //
	Free  int64         // units that the bucket would grant now; -1: no limit
	Retry time.Duration // 0: it grants the cost now; -1 never
	Ahead int64         // earlier jobs in its line
	Held  int64         // units of it that are held for an earlier job
}

// Explain says why a job is where it is; ok is false when there is none of that id. It changes nothing.
func Explain(ctx context.Context, c valkey.Client, keys Keys, id string, lease time.Duration) (e Explained, ok bool, err error) {
	r, err := explainScript.run(ctx, c, keys, explainArgs{id, lease.Milliseconds()})
	if err != nil || r.word == "unknown" {
		return Explained{}, false, err
	}
	e = Explained{
		Now: time.UnixMilli(r.number(0)), State: r.text(1), At: at(r.number(2)), Line: blocker(r.text(3)), Ahead: r.number(4),
		Paused: r.number(5) == 1, Verdict: r.text(6), By: ParseBlocker(r.text(7)), Retry: span(r, 8),
	}
	for _, a := range r.rows(9) {
		e.Asks = append(e.Asks, Ask{ParseBlocker(a.text(0)), a.text(1), a.text(2), a.number(3), a.number(4), span(a, 5), a.number(6), a.number(7)})
	}
	return e, true, nil
}

// rows are the lists within the list at i.
func (r reply) rows(i int) (rows []reply) {
	if i >= len(r.values) {
		return nil
	}
	lists, _ := r.values[i].ToArray()
	for _, list := range lists {
		values, _ := list.ToArray()
		rows = append(rows, reply{values: values})
	}
	return rows
}
