package worker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// Workers that sleep out a limit of hours are woken by whatever lets them run: each change is obeyed long before the old time, and the
// median of how long that takes is logged.
func TestChangesWakeSleepers(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	keyed := map[string]string{"model": "x"}
	named := func(max int64, window time.Duration) queue.NamedLimit {
		return queue.NamedLimit{Name: "rpm", By: "model", Limit: limiter.Limit{Max: max, Window: window}}
	}
	set := func(ctx context.Context, q *queue.Queue, n int64) error {
		return second(q.SetNamedLimit(ctx, named(n, hour), ""))
	}
	own := func(ctx context.Context, q *queue.Queue, n int64) error {
		return second(q.SetLimit(ctx, limiter.Limit{Max: n, Window: hour}, ""))
	}
	type change = func(ctx context.Context, q *queue.Queue, n int64) error
	for name, c := range map[string]struct {
		shut change // n jobs have run
		open change
		fill bool // a job runs after shut, before none does
	}{
		"raise":        {nil, func(ctx context.Context, q *queue.Queue, n int64) error { return own(ctx, q, n+1) }, false},
		"raise by key": {nil, func(ctx context.Context, q *queue.Queue, n int64) error { return set(ctx, q, n+1) }, false},
		"lift": {
			func(ctx context.Context, q *queue.Queue, _ int64) error { return own(ctx, q, 1) },
			func(ctx context.Context, q *queue.Queue, _ int64) error { return second(q.LiftLimit(ctx, "")) }, false,
		},
		"remove": {
			func(ctx context.Context, q *queue.Queue, _ int64) error { return set(ctx, q, 1) },
			func(ctx context.Context, q *queue.Queue, _ int64) error {
				return second(q.RemoveNamedLimit(ctx, "rpm", ""))
			}, false,
		},
		"reset": {nil, func(ctx context.Context, q *queue.Queue, _ int64) error {
			return q.ResetNamedLimit(ctx, "rpm", "", "x")
		}, false},
		"shorten": {
			func(ctx context.Context, q *queue.Queue, _ int64) error { return set(ctx, q, 1) },
			func(ctx context.Context, q *queue.Queue, _ int64) error {
				return second(q.SetNamedLimit(ctx, named(1, time.Millisecond), ""))
			}, true,
		},
		"reopen": {
			func(ctx context.Context, q *queue.Queue, _ int64) error { return second(q.Close(ctx, hour, "")) },
			func(ctx context.Context, q *queue.Queue, _ int64) error { return q.Reopen(ctx, "") }, false,
		},
		"reopen a key": {
			func(ctx context.Context, q *queue.Queue, _ int64) error {
				return second(q.CloseKey(ctx, "model", "x", hour, ""))
			},
			func(ctx context.Context, q *queue.Queue, _ int64) error { return q.ReopenKey(ctx, "model", "x", "") }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
			require.NoError(t, err)
			started := make(chan time.Time, 100)
			w, err := worker.New(emqtest.Client(t), q.Name(), func(context.Context, *worker.Job) error {
				started <- time.Now()
				return nil
			}, worker.Options{Concurrency: 4})
			require.NoError(t, err)
			ended := make(chan error)
			go func() { ended <- w.Run(context.Background()) }()
			defer func() { w.Stop(); require.NoError(t, <-ended) }()
			enqueue := func() {
				_, err := q.Enqueue(ctx, queue.Job{Keys: keyed})
				require.NoError(t, err)
			}
			next := func(what string) time.Time {
				select {
				case at := <-started:
					return at
				case <-time.After(time.Minute):
					t.Fatalf("%s: no job starts", what)
				}
				return time.Time{}
			}
			switch name {
			case "raise", "lift":
				require.NoError(t, own(ctx, q, 1))
			case "raise by key", "remove", "reset", "shorten":
				require.NoError(t, set(ctx, q, 1))
			}
			enqueue()
			next("the first")
			var took []time.Duration
			for n := int64(1); n <= 50; n++ {
				if c.shut != nil {
					require.NoError(t, c.shut(ctx, q, n))
				}
				if c.fill && n > 1 {
					enqueue()
					next("one that spends the budget")
				}
				enqueue()
				require.Eventually(t, func() bool {
					counts, err := q.Counts(ctx)
					require.NoError(t, err)
					return counts.SentBack+counts.Wait == 1 && counts.Active == 0
				}, time.Minute, 5*time.Millisecond, "one job waits and the worker sleeps")
				begun := time.Now()
				require.NoError(t, c.open(ctx, q, n))
				took = append(took, next("after the change").Sub(begun))
			}
			slices.Sort(took)
			t.Logf("%s: median %v, the longest %v", name, took[25], took[49])
		})
	}
}

func second[T any](_ T, err error) error { return err }
