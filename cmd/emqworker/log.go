package main

import (
	"context"
	"io"

	"github.com/echomq/emq/worker"
)

// logLine is what run --log prints for a job.
type logLine struct {
	ID            string            `json:"id"`
	Queue         string            `json:"queue"`
	Name          string            `json:"name"`
	Attempt       int               `json:"attempt"`
	ClaimedMS     int64             `json:"claimed_ms"`
	Payload       string            `json:"payload"`
	PayloadBase64 bool              `json:"payload_base64,omitempty"`
	Keys          map[string]string `json:"keys"`
	Cost          map[string]int64  `json:"cost"`
}

// logJobs is a handler that does nothing but print one line for each job, with one write.
func logJobs(w io.Writer) worker.Handler {
	return func(_ context.Context, job *worker.Job) error {
		line := logLine{
			ID: job.ID, Queue: job.Queue, Name: job.Name, Attempt: job.Attempt, ClaimedMS: ms(job.ClaimedAt),
			Keys: orEmpty(job.Keys), Cost: orEmpty(job.Cost),
		}
		line.Payload, line.PayloadBase64 = readable(job.Payload)
		return printJSON(w, line)
	}
}
