package lua

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

type settleArgs struct {
	Process  string `lua:"process"`
	Sequence int64  `lua:"sequence"`
	Remember int64  `lua:"remember"`
	Plain    int    `lua:"plain"`
}

var (
	settleScript = bind[settleArgs]("settle", "settled", "misconfigured", "corrupt")
	extendScript = bind[extendArgs]("extend", "extended")
)

// The ways a claimed job ends.
const (
	Complete   = "complete" // Wait: keep the record and Text as result that long; 0 removes the job
	Retry      = "retry"    // Wait: the back-off; Text: the error. The attempt is spent
	Defer      = "defer"    // Wait: the delay. The attempt is kept
	HandBack   = "back"     // at its place, the attempt is kept
	DeadLetter = "dead"     // Text: reason, line feed, error. The attempt is spent
	Limited    = "limited"  // Wait: how long the queue, or the value of a key of the job, is closed; Text: the key's name, line feed, reason
)

// Settlement ends one claimed job.
type Settlement struct {
	Outcome string
	ID      string
	Token   string
	Wait    time.Duration
	Text    string
	Costs   map[string]int64 // what the job really cost, by unit; others cost what was reserved
}

// Settle ends claimed jobs; lost says which leases had ended, so that nothing changed for them. The same process and
// sequence sent again within remember gets the first answers, so a settle whose reply was lost may be repeated.
func Settle(ctx context.Context, c valkey.Client, keys Keys, process string, sequence int64, remember time.Duration, jobs []Settlement) (lost []bool, err error) {
	// Jobs that are complete and leave nothing go first, in one word each.
	order := make([]int, 0, len(jobs))
	rest := make([]string, 0, 2*len(jobs))
	names := settleScript.names(keys, len(jobs))
	for i, j := range jobs {
		if j.plain() {
			order = append(order, i)
			names = append(names, keys.Job(j.ID))
			rest = append(rest, j.ID+"|"+j.Token)
		}
	}
	plain := len(order)
	for i, j := range jobs {
		if !j.plain() {
			order = append(order, i)
			rest = append(rest, j.Outcome, j.ID, j.Token, strconv.FormatInt(j.Wait.Milliseconds(), 10), j.Text, costs(j.Costs))
		}
	}
	r, err := settleScript.call(ctx, c, names, settleArgs{process, sequence, remember.Milliseconds(), plain}, rest)
	if err != nil {
		return nil, err
	}
	inOrder, err := answers("settle", r.text(0), len(jobs))
	if err != nil {
		return nil, err
	}
	lost = make([]bool, len(jobs))
	for n, i := range order {
		lost[i] = inOrder[n]
	}
	return lost, nil
}

func (j Settlement) plain() bool {
	return j.Outcome == Complete && j.Wait.Milliseconds() == 0 && len(j.Costs) == 0
}

func costs(real map[string]int64) string {
	var words []string
	for _, unit := range slices.Sorted(maps.Keys(real)) {
		words = append(words, unit+"="+strconv.FormatInt(real[unit], 10))
	}
	return strings.Join(words, " ")
}

type extendArgs struct {
	Lease int64 `lua:"lease"`
}

// Extend moves the ends of leases to lease from now; lost says which had ended already and stay so.
func Extend(ctx context.Context, c valkey.Client, keys Keys, lease time.Duration, jobs []Settlement) (lost []bool, err error) {
	rest := make([]string, 0, 2*len(jobs))
	for _, j := range jobs {
		rest = append(rest, j.ID, j.Token)
	}
	r, err := extendScript.run(ctx, c, keys, extendArgs{lease.Milliseconds()}, rest...)
	if err != nil {
		return nil, err
	}
	return answers("extend", r.text(0), len(jobs))
}

// answers reads one letter a job: d done, l lease lost.
func answers(name, letters string, n int) ([]bool, error) {
	if len(letters) != n {
		return nil, fmt.Errorf("emq: %s answered for %d jobs; want %d", name, len(letters), n)
	}
	lost := make([]bool, n)
	for i := range lost {
		lost[i] = letters[i] == 'l'
	}
	return lost, nil
}
