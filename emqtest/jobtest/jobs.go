package jobtest

import (
	"context"
	"errors"
	"testing"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/queue"
)

// Jobs returns the jobs of a queue that wait, in the order of their claims,
// and then the delayed ones by due time: what the code under test enqueued. If
// states are given it returns the jobs in those states instead.
func Jobs(t testing.TB, queueName string, states ...queue.State) []queue.Status {
	t.Helper()
	if len(states) == 0 {
		states = []queue.State{queue.Wait, queue.Delayed}
	}
	q := open(t, queueName)
	var jobs []queue.Status
	for _, state := range states {
		jobs = append(jobs, list(t, q, state)...)
	}
	return jobs
}

func open(t testing.TB, queueName string) *queue.Queue {
	t.Helper()
	q, err := queue.New(emqtest.Client(t), queueName, queue.Options{AllowEviction: true})
	if err != nil {
		t.Fatalf("jobtest: %v", err)
	}
	return q
}

// list reads all jobs in a state.
func list(t testing.TB, q *queue.Queue, state queue.State) (jobs []queue.Status) {
	t.Helper()
	const page = 1000
	for {
		more, err := q.List(context.Background(), state, len(jobs), page)
		if err != nil {
			t.Fatalf("jobtest: %v", err)
		}
		for _, job := range more {
			// A page cuts large payloads short.
			whole, err := q.Get(context.Background(), job.ID)
			if err == nil {
				job = whole
			} else if !errors.Is(err, queue.ErrNotFound) {
				t.Fatalf("jobtest: %v", err)
			}
			jobs = append(jobs, job)
		}
		if len(more) < page {
			return jobs
		}
	}
}
