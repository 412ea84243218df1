package metrics

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
)

// ErrNotFound: no job of that id exists in the queue.
var ErrNotFound = errors.New("job not found")

// Explanation says why a job is where it is.
type Explanation struct {
	// At is the server's clock when this was true.
	At time.Time
	// State is the job's state: wait, active, delayed, dead or completed.
	State string
	// Until is when a delayed job is due or judged again, or when what blocks a waiting one may let it through, if nobody else
	// asks; zero when that is not known.
	Until time.Time
	// Paused: the queue hands out nothing.
	Paused bool
	// Blocked: a limit, or a close, keeps the job from being handed out; By says which. Without it a waiting job is handed out when its
	// turn comes.
	Blocked bool
	By      Blocker
	// RetryAfter is how long it does so at least, if nobody else asks; 0 when nothing blocks the job.
	RetryAfter time.Duration
	// Never: its cost is more than the limit ever grants at once, so it goes to dead when its turn comes.
	Never bool
	// Ahead is how many jobs stand before it: in its line, among those sent back, or in its priority; -1 when that is not known.
	Ahead int64
	// Asks is what it asks of each limit that it falls under. Only of jobs that wait or are delayed.
	Asks []Ask
}

// Blocker is what refuses a job: a limit, for a key value or for all, or a close.
type Blocker struct {
	Limit  string // the limit's name; "" for the queue's own, and for a close
	Key    string // the name of the key by which it refuses; "" for all jobs
	Value  string // the job's value of that key
	Closed bool   // it is closed
}

// String is the blocker in words: "limit tpm, model=x", "the queue's limit", "the close of model=x".
func (b Blocker) String() string {
	switch {
	case b.Closed && b.Key == "":
		return "the close of the queue"
	case b.Closed:
		return "the close of " + b.Key + "=" + b.Value
	case b.Limit == "":
		return "the queue's limit"
	case b.Key == "":
		return "limit " + b.Limit
	}
	return "limit " + b.Limit + ", " + b.Key + "=" + b.Value
}

// Ask is what a job asks of one bucket.
type Ask struct {
	Of         Blocker
	Unit       string        // the name of the cost; "" when each job costs 1
	Cost       int64         //
	Remaining  int64         // units that the bucket would grant now; -1 is without limit
	RetryAfter time.Duration // until it grants the cost; 0 when it would now, negative when it never does
	Ahead      int64         // earlier jobs in the bucket's line
	Held       int64         // units that it keeps for an earlier job that waited too long
}

// String is the explanation in a line: "delayed until 14:32:10.250 by limit tpm, model=x, 214 ahead". Times are local.
func (e Explanation) String() string {
	words := []string{e.State}
	if e.Paused && e.State == "wait" {
		words = append(words, "the queue is paused")
	}
	switch {
	case e.Never:
		words[0] += ", for ever: " + e.By.String() + " never grants its cost"
	case e.Blocked || e.State == "delayed":
		if !e.Until.IsZero() {
			words[0] += " until " + e.Until.Format("15:04:05.000")
			if e.Until.Sub(e.At) > 12*time.Hour {
				words[0] = e.State + " until " + e.Until.Format("2006-01-02 15:04:05.000")
			}
		}
		if e.Blocked {
			words[0] += " by " + e.By.String()
		}
	}
	if e.Ahead >= 0 && (e.State == "wait" || e.State == "delayed") {
		words = append(words, strconv.FormatInt(e.Ahead, 10)+" ahead")
	}
	return strings.Join(words, ", ")
}

// DefaultLease is how long Explain takes a place under a concurrency limit to be held at most.
const DefaultLease = 30 * time.Second

// Explain says why a job is where it is: what it asks of which limit, what blocks it, behind how many others and until when. It reads
// by the claim's own script text, so it says what the next claim would find. It fails with [ErrNotFound].
func Explain(ctx context.Context, client valkey.Client, queue, id string) (Explanation, error) {
	keys, err := lua.ForQueue(queue)
	if err != nil {
		return Explanation{}, err
	}
	if err := lua.CheckName("job id", id); err != nil {
		return Explanation{}, err
	}
	x, ok, err := lua.Explain(ctx, client, keys, id, DefaultLease)
	if err != nil {
		return Explanation{}, err
	}
	if !ok {
		return Explanation{}, fmt.Errorf("emq: job %s: %w in queue %s", id, ErrNotFound, queue)
	}
	e := Explanation{
		At: x.Now, State: x.State, Until: x.At, Paused: x.Paused, Ahead: x.Ahead, Never: x.Verdict == "never",
		Blocked: x.Verdict == "blocked" || x.Verdict == "limited",
	}
	for _, a := range x.Asks {
		e.Asks = append(e.Asks, Ask{blocker(a.Of, a.By), a.Unit, a.Cost, a.Free, a.Retry, a.Ahead, a.Held})
		if a.Of == x.By {
			e.By = blocker(a.Of, a.By)
		}
	}
	if e.Blocked {
		e.RetryAfter = x.Retry
		if until := x.Now.Add(x.Retry); until.After(e.Until) || x.State == "wait" {
			e.Until = until
		}
	}
	if x.State == "delayed" && x.Line == nil && x.Ahead < 0 {
		e.Blocked, e.By, e.RetryAfter = false, Blocker{}, 0 // it has a due time of its own
		e.Until = x.At
	}
	return e, nil
}

func blocker(b lua.Blocker, key string) Blocker {
	if b.Closed {
		key = b.Key
	}
	return Blocker{b.Limit, key, b.Value, b.Closed}
}
