package lua

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/valkey-io/valkey-go"
)

type enqueueArgs struct {
	Priority string `lua:"priority"`
	When     string `lua:"when"`
}

var enqueueScript = bind[enqueueArgs]("enqueue", "enqueued", "misconfigured", "corrupt")

// NewJob is one job to enqueue.
type NewJob struct {
	ID       string
	Priority int
	When     string // "" now, "+ms" from now, "@ms" at that time; by the server's clock
	Body     string // see [Body]
}

// Enqueued is what became of one job.
type Enqueued struct {
	Duplicate bool   // the id existed; nothing was changed
	Heavy     *Heavy // no budget could ever grant it; it is not stored
}

// Heavy says which cost of a job is above what its limit ever grants at once.
type Heavy struct {
	Limit, Unit string
	Cost, Most  int64
}

// Enqueue puts jobs in, all in one step. The answers are those of the jobs in order.
func Enqueue(ctx context.Context, c valkey.Client, keys Keys, jobs []NewJob) (answers []Enqueued, err error) {
	var all enqueueArgs // what they have in common is sent once
	alike := !slices.ContainsFunc(jobs, func(j NewJob) bool { return j.Priority != jobs[0].Priority || j.When != jobs[0].When })
	rest := make([]string, 0, 4*len(jobs))
	for _, j := range jobs {
		if alike {
			rest = append(rest, j.ID, j.Body)
		} else {
			rest = append(rest, j.ID, strconv.Itoa(j.Priority), j.When, j.Body)
		}
	}
	if alike && len(jobs) > 0 {
		all = enqueueArgs{strconv.Itoa(jobs[0].Priority), jobs[0].When}
	}
	r, err := enqueueScript.run(ctx, c, keys, all, rest...)
	if err != nil {
		return nil, err
	}
	answers = make([]Enqueued, len(jobs))
	for i := 1; i+1 < len(r.values); i += 2 {
		n := r.number(i)
		if n < 1 || n > int64(len(jobs)) {
			return nil, fmt.Errorf("emq: enqueue answered for job %d of %d", n, len(jobs))
		}
		a := &answers[n-1]
		switch words := strings.Fields(r.text(i + 1)); {
		case len(words) == 1 && words[0] == "duplicate":
			a.Duplicate = true
		case len(words) == 5 && words[0] == "heavy":
			a.Heavy = &Heavy{Limit: words[1], Unit: words[2]}
			a.Heavy.Cost, _ = strconv.ParseInt(words[3], 10, 64)
			a.Heavy.Most, _ = strconv.ParseInt(words[4], 10, 64)
		default:
			return nil, fmt.Errorf("emq: enqueue answered %q for job %d, which this version does not know", r.text(i+1), n)
		}
	}
	return answers, nil
}
