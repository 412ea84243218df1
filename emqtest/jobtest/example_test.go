package jobtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/emqtest/jobtest"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

// signUp and greet are the code under test.
func signUp(ctx context.Context, q *queue.Queue, user string) error {
	_, err := q.Enqueue(ctx, queue.Job{Name: "greet", Payload: []byte(user)})
	return err
}

func greet(_ context.Context, job *worker.Job) error {
	if job.Attempt == 1 {
		return errors.New("the mail server is busy")
	}
	return nil
}

// In a package of its own this would be TestSignUp.
func checkSignUp(t *testing.T) {
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)

	require.NoError(t, signUp(t.Context(), q, "ana"))
	jobs := jobtest.Jobs(t, q.Name())
	require.Len(t, jobs, 1)
	require.Equal(t, "greet", jobs[0].Name)
	require.Equal(t, "ana", string(jobs[0].Payload))

	runs := jobtest.Work(t, q.Name(), greet, jobtest.Options{})
	require.Len(t, runs, 2)
	require.EqualError(t, runs[0].Err, "the mail server is busy")
	require.NoError(t, runs[1].Err)
	require.Empty(t, jobtest.Jobs(t, q.Name()), "nothing is left")
}

// A test of code that enqueues a job and of the handler that runs it.
func Example() {
	_ = checkSignUp
}
