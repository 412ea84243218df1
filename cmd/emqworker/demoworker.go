package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/worker"
)

const demoSlots = 3 // jobs at once in each process of the demo; most limits are no multiple, so that some jobs are sent back

// demoLine is what a worker of the demo prints: first that it runs, then each job that it starts.
type demoLine struct {
	Ready bool   `json:"ready,omitempty"`
	ID    string `json:"id,omitempty"`
	AtMS  int64  `json:"at_ms"` // by this machine's clock
}

// newDemoWorker is one process of the demo. It ends when its standard input does, and so with the demo however that ends.
func newDemoWorker(a *app) *cobra.Command {
	var name string
	var max int
	var window time.Duration
	cmd := &cobra.Command{
		Use:    "demo-worker -q QUEUE",
		Hidden: true,
		Args:   arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			handler := func(_ context.Context, job *worker.Job) error {
				return printJSON(cmd.OutOrStdout(), demoLine{ID: job.ID, AtMS: time.Now().UnixMilli()})
			}
			if max > 0 {
				handler = (&privateWindow{max: max, window: window}).limit(handler)
			}
			w, err := worker.New(client, name, handler, worker.Options{Concurrency: demoSlots})
			if err != nil {
				return err
			}
			signal.Ignore(os.Interrupt, syscall.SIGTERM) // the demo says when
			go func() {
				io.Copy(io.Discard, cmd.InOrStdin())
				w.HandBack()
			}()
			ctx := cmd.Context()
			// Once this is answered the worker is as good as waiting.
			if keys, err := lua.ForQueue(name); err != nil {
				return err
			} else if _, err := lua.Look(ctx, client, keys, "", lua.Busy, false, 0); err != nil {
				return err
			}
			if err := printJSON(cmd.OutOrStdout(), demoLine{Ready: true, AtMS: time.Now().UnixMilli()}); err != nil {
				return err
			}
			return w.Run(ctx)
		},
	}
	cmd.Flags().StringVarP(&name, "queue", "q", "", "the queue")
	cmd.Flags().IntVar(&max, "max", 0, "jobs in a window of this process alone")
	cmd.Flags().DurationVar(&window, "window", time.Second, "length of that window")
	return cmd
}

// privateWindow is the limiter that people write first: a counter in the memory of each process.
type privateWindow struct {
	max    int
	window time.Duration

	mu   sync.Mutex
	used int       // owned by mu
	ends time.Time // owned by mu
}

// limit lets a job start when the window has room.
func (p *privateWindow) limit(next worker.Handler) worker.Handler {
	return func(ctx context.Context, job *worker.Job) error {
		for wait := p.take(); wait > 0; wait = p.take() {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return next(ctx, job)
	}
}

// take spends one of the window, or says how long the window still runs.
func (p *privateWindow) take() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !now.Before(p.ends) {
		p.used, p.ends = 0, now.Add(p.window)
	}
	if p.used < p.max {
		p.used++
		return 0
	}
	return p.ends.Sub(now)
}
