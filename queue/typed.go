package queue

import (
	"context"
	"encoding/json"
	"fmt"
)

// Typed enqueues values of one type as JSON over a queue's bytes. The worker's side is worker.Typed.
type Typed[T any] struct{ q *Queue }

// TypedOf is the queue with payloads of type T.
func TypedOf[T any](q *Queue) Typed[T] { return Typed[T]{q} }

// Queue is the queue beneath.
func (t Typed[T]) Queue() *Queue { return t.q }

// Enqueue puts value in as the payload of job, whose own Payload is not used. It fails as [Queue.Enqueue] does, and with
// [ErrBadJob] when the value has no JSON form.
func (t Typed[T]) Enqueue(ctx context.Context, value T, job Job) (id string, err error) {
	if job.Payload, err = json.Marshal(value); err != nil {
		return "", fmt.Errorf("%w: payload: %w", ErrBadJob, err)
	}
	return t.q.Enqueue(ctx, job)
}

// EnqueueMany puts values in, each as the payload of a job like job. It fails as [Queue.EnqueueMany] does.
func (t Typed[T]) EnqueueMany(ctx context.Context, values []T, job Job) ([]Answer, error) {
	jobs := make([]Job, len(values))
	for i, value := range values {
		payload, err := json.Marshal(value)
		if err != nil {
			return nil, &IndexError{i, fmt.Errorf("%w: payload: %w", ErrBadJob, err)}
		}
		jobs[i] = job
		jobs[i].Payload = payload
	}
	return t.q.EnqueueMany(ctx, jobs)
}
