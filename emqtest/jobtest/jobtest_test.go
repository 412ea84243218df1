package jobtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/emqtest/jobtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }

func TestExample(t *testing.T) {
	t.Parallel()
	checkSignUp(t)
}

func newQueue(t *testing.T) *queue.Queue {
	t.Helper()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	return q
}

func enqueue(t *testing.T, q *queue.Queue, jobs ...queue.Job) {
	t.Helper()
	_, err := q.EnqueueMany(t.Context(), jobs)
	require.NoError(t, err)
}

func ids(jobs []queue.Status) (ids []string) {
	for _, job := range jobs {
		ids = append(ids, job.ID)
	}
	return ids
}

func nothing(context.Context, *worker.Job) error { return nil }

func TestJobsAreListedByPlaceAndDueTime(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	require.Empty(t, jobtest.Jobs(t, q.Name()))
	large := bytes.Repeat([]byte("x"), 100_000)
	enqueue(t, q,
		queue.Job{ID: "later", Delay: 2 * time.Hour}, queue.Job{ID: "low", Priority: queue.Low},
		queue.Job{ID: "large", Payload: large}, queue.Job{ID: "soon", Delay: time.Hour})
	jobs := jobtest.Jobs(t, q.Name())
	require.Equal(t, []string{"large", "low", "soon", "later"}, ids(jobs))
	require.Equal(t, large, jobs[0].Payload)
	require.Equal(t, []string{"soon", "later"}, ids(jobtest.Jobs(t, q.Name(), queue.Delayed)))

	many := newQueue(t)
	enqueue(t, many, make([]queue.Job, 2001)...)
	require.Len(t, jobtest.Jobs(t, many.Name()), 2001)
}

func TestWorkRunsWhatCanRun(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	enqueue(t, q,
		queue.Job{ID: "fails", MaxAttempts: 2}, queue.Job{ID: "parent"}, queue.Job{ID: "panics", MaxAttempts: 1},
		queue.Job{ID: "exits", MaxAttempts: 1}, queue.Job{ID: "soon", Delay: 100 * time.Millisecond}, queue.Job{ID: "later", Delay: time.Hour})
	runs := jobtest.Work(t, q.Name(), func(ctx context.Context, job *worker.Job) error {
		switch job.ID {
		case "fails":
			return errors.New("no")
		case "parent":
			_, err := q.Enqueue(ctx, queue.Job{ID: "child"})
			return err
		case "panics":
			panic("boom")
		case "exits":
			runtime.Goexit()
		}
		return nil
	}, jobtest.Options{Worker: worker.Options{Concurrency: 1}})

	var got []string
	failed := map[string]string{}
	for _, run := range runs {
		got = append(got, fmt.Sprint(run.Job.ID, " ", run.Job.Attempt))
		if run.Err != nil {
			failed[run.Job.ID] = run.Err.Error()
		}
	}
	require.ElementsMatch(t, []string{"fails 1", "parent 1", "panics 1", "exits 1", "child 1", "fails 2", "soon 1"}, got)
	require.Equal(t, []string{"fails 1", "parent 1"}, got[:2], "in the order of their places")
	require.Equal(t, "no", failed["fails"])
	require.Contains(t, failed["panics"], "did not return")
	require.Contains(t, failed["exits"], "did not return")
	require.Len(t, failed, 3)
	require.Equal(t, []string{"later"}, ids(jobtest.Jobs(t, q.Name())))
	require.ElementsMatch(t, []string{"fails", "panics", "exits"}, ids(jobtest.Jobs(t, q.Name(), queue.Dead)))
	require.Empty(t, jobtest.Work(t, q.Name(), nothing, jobtest.Options{}), "at rest already")
}

func TestWorkWaitsForALimitWithinItsBound(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	limit := func(max int64, window time.Duration) {
		_, err := q.SetLimit(t.Context(), limiter.Limit{Max: max, Window: window}, "test")
		require.NoError(t, err)
	}
	limit(2, 50*time.Millisecond)
	enqueue(t, q, make([]queue.Job, 5)...)
	require.Len(t, jobtest.Work(t, q.Name(), nothing, jobtest.Options{}), 5)

	q = newQueue(t)
	limit(2, time.Hour)
	enqueue(t, q, make([]queue.Job, 5)...)
	require.Len(t, jobtest.Work(t, q.Name(), nothing, jobtest.Options{}), 2)
	require.Len(t, jobtest.Jobs(t, q.Name()), 3)

	q = newQueue(t)
	enqueue(t, q, queue.Job{})
	_, err := q.Pause(t.Context(), "test")
	require.NoError(t, err)
	require.Empty(t, jobtest.Work(t, q.Name(), nothing, jobtest.Options{}), "paused")
}

// failing is a test that only notes how it failed.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure is how a test would fail.
func failure(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(f)
	}()
	<-done
	return f.text
}

func TestFailsTheTest(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	enqueue(t, q, queue.Job{})
	again := func(context.Context, *worker.Job) error { return worker.Defer(5 * time.Millisecond) }
	broken := newQueue(t)
	client := emqtest.Client(t)
	meta := "emq:{" + broken.Name() + "}:meta"
	require.NoError(t, client.Do(t.Context(), client.B().Hset().Key(meta).FieldValue().FieldValue("max", "-1").Build()).Error())

	for want, test := range map[string]func(t testing.TB){
		"not at rest after 100ms": func(t testing.TB) {
			jobtest.Work(t, q.Name(), again, jobtest.Options{Timeout: 100 * time.Millisecond})
		},
		"Within is -1ns":  func(t testing.TB) { jobtest.Work(t, q.Name(), nothing, jobtest.Options{Within: -1}) },
		"Timeout is -1ns": func(t testing.TB) { jobtest.Work(t, q.Name(), nothing, jobtest.Options{Timeout: -1}) },
		"handler is nil":  func(t testing.TB) { jobtest.Work(t, q.Name(), nil, jobtest.Options{}) },
		"Concurrency is -1": func(t testing.TB) {
			jobtest.Work(t, q.Name(), nothing, jobtest.Options{Worker: worker.Options{Concurrency: -1}})
		},
		`queue name "a b"`:     func(t testing.TB) { jobtest.Work(t, "a b", nothing, jobtest.Options{}) },
		`queue name "c:d"`:     func(t testing.TB) { jobtest.Jobs(t, "c:d") },
		`state "gone"`:         func(t testing.TB) { jobtest.Jobs(t, q.Name(), "gone") },
		"queue misconfigured:": func(t testing.TB) { jobtest.Work(t, broken.Name(), nothing, jobtest.Options{}) },
	} {
		require.Contains(t, failure(t, test), want)
	}
	require.Len(t, jobtest.Jobs(t, q.Name()), 1, "no job is left active")
}
