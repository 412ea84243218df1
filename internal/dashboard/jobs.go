package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

var states = []queue.State{queue.Wait, queue.Active, queue.Delayed, queue.Dead, queue.Completed}

// jobJSON is a job without its payload, its result and its error text, which may be secret.
type jobJSON struct {
	ID          string            `json:"id"`
	Name        string            `json:"name,omitempty"`
	State       string            `json:"state"`
	TimeMS      int64             `json:"time_ms"` // due, end of the lease, death or end of the kept result; 0 for a waiting one
	DelayedBy   string            `json:"delayed_by,omitempty"`
	Line        string            `json:"line,omitempty"` // in which it stands: "limit tpm, model=x"
	Reason      string            `json:"reason,omitempty"`
	Priority    int               `json:"priority"`
	Attempts    int               `json:"attempts"`
	MaxAttempts int               `json:"max_attempts"`
	Deferrals   int               `json:"deferrals"`
	Keys        map[string]string `json:"keys,omitempty"`
	Cost        map[string]int64  `json:"cost,omitempty"`
	EnqueuedMS  int64             `json:"enqueued_ms"`
}

func jobOf(j queue.Status) jobJSON {
	one := jobJSON{ID: j.ID, Name: j.Name, State: string(j.State), TimeMS: since1970(timeOf(j)), DelayedBy: string(j.DelayedBy), Reason: string(j.Reason),
		Priority: int(j.Priority), Attempts: j.Attempts, MaxAttempts: j.MaxAttempts, Deferrals: j.Deferrals, Keys: j.Keys, Cost: j.Cost,
		EnqueuedMS: since1970(j.EnqueuedAt)}
	if j.Line != nil {
		one.Line = lineOf(*j.Line)
	}
	return one
}

// timeOf is the time that goes with a job's state.
func timeOf(j queue.Status) time.Time {
	switch j.State {
	case queue.Delayed:
		return j.DueAt
	case queue.Active:
		return j.LeaseEnd
	case queue.Dead:
		return j.DiedAt
	case queue.Completed:
		return j.KeptUntil
	}
	return time.Time{}
}

func lineOf(b queue.Blocker) string {
	text := "limit " + b.Limit
	if b.Closed {
		return "closed: " + b.Key + "=" + b.Value
	}
	if b.Value != "" {
		text += ": " + b.Value
	}
	return text
}

// page reads one page of the jobs in a state.
func (s *Server) page(ctx context.Context, name string, state queue.State, offset, count int) ([]queue.Status, error) {
	q, err := s.queue(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	return q.List(ctx, state, offset, count)
}

// asked is the state, the offset and the count that a request names.
func asked(r *http.Request) (state queue.State, offset, count int, err error) {
	state = queue.State(r.FormValue("state"))
	if state == "" {
		state = queue.Wait
	}
	known := false
	for _, one := range states {
		known = known || one == state
	}
	if !known {
		return "", 0, 0, badRequest{fmt.Errorf("state is %q; want one of %v", cut(string(state), 40), states)}
	}
	if offset, err = bounded(r, "offset", 0, mostOffset); err != nil {
		return "", 0, 0, err
	}
	count, err = bounded(r, "count", pageSize, mostPage)
	return state, offset, max(1, count), err
}

func (s *Server) apiJobs(r *http.Request) (any, error) {
	state, offset, count, err := asked(r)
	if err != nil {
		return nil, err
	}
	page, err := s.page(r.Context(), r.PathValue("queue"), state, offset, count)
	if err != nil {
		return nil, err
	}
	jobs := []jobJSON{}
	for _, j := range page {
		jobs = append(jobs, jobOf(j))
	}
	return map[string]any{"queue": r.PathValue("queue"), "state": state, "offset": offset, "jobs": jobs}, nil
}

func (s *Server) job(ctx context.Context, name, id string) (queue.Status, error) {
	q, err := s.queue(name)
	if err != nil {
		return queue.Status{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	return q.Get(ctx, id)
}

func (s *Server) apiJob(r *http.Request) (any, error) {
	j, err := s.job(r.Context(), r.PathValue("queue"), r.PathValue("id"))
	return jobOf(j), err
}

// explainJSON says why a job is where it is.
type explainJSON struct {
	Queue   string    `json:"queue"`
	ID      string    `json:"id"`
	AtMS    int64     `json:"at_ms"`
	State   string    `json:"state"`
	Text    string    `json:"text"`
	UntilMS int64     `json:"until_ms"` // 0: not known
	Ahead   int64     `json:"ahead"`    // -1: not known
	Blocked bool      `json:"blocked"`
	Never   bool      `json:"never"` // its cost is more than a limit ever grants
	Asks    []askJSON `json:"asks"`
}

type askJSON struct {
	Of           string `json:"of"`
	Unit         string `json:"unit,omitempty"`
	Cost         int64  `json:"cost"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"` // -1: never
	Ahead        int64  `json:"ahead"`
	Held         int64  `json:"held"`
}

func (s *Server) explain(ctx context.Context, name, id string) (metrics.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	return metrics.Explain(ctx, s.opts.Client, name, id)
}

func (s *Server) apiExplain(r *http.Request) (any, error) {
	name, id := r.PathValue("queue"), r.PathValue("id")
	e, err := s.explain(r.Context(), name, id)
	if err != nil {
		return nil, err
	}
	answer := explainJSON{name, id, e.At.UnixMilli(), e.State, e.String(), since1970(e.Until), e.Ahead, e.Blocked, e.Never, []askJSON{}}
	for _, a := range e.Asks {
		answer.Asks = append(answer.Asks, askJSON{a.Of.String(), a.Unit, a.Cost, a.Remaining, milliseconds(a.RetryAfter), a.Ahead, a.Held})
	}
	return answer, nil
}
