package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/internal/ledger"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/worker"
)

// verifyLease is short, so that what a kill leaves behind comes back soon.
const verifyLease = 1500 * time.Millisecond

// newVerifyWorker is one process of the fleet of verify. It ends when its standard input does.
func newVerifyWorker(a *app) *cobra.Command {
	var names []string
	var path, scripts string
	cmd := &cobra.Command{
		Use:    "verify-worker -q QUEUE… --ledger FILE",
		Hidden: true,
		Args:   arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if scripts != "" {
				if err := lua.Use(os.DirFS(scripts)); err != nil {
					return err
				}
			}
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			events, err := ledger.Append(path)
			if err != nil {
				return err
			}
			defer events.Close()
			signal.Ignore(os.Interrupt, syscall.SIGTERM)
			ended := make(chan error, len(names))
			var workers []*worker.Worker
			for _, name := range names {
				w, err := worker.New(client, name, verifyHandler(events, name), worker.Options{
					Concurrency: 8, Grace: time.Second, Backoff: worker.Exponential(50*time.Millisecond, time.Second),
					Claim: claim.Options{Lease: verifyLease, MaxReclaims: verifyReclaims}, Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelError})),
				})
				if err != nil {
					return err
				}
				workers = append(workers, w)
				go func() { ended <- w.Run(cmd.Context()) }()
			}
			go func() {
				io.Copy(io.Discard, cmd.InOrStdin())
				for _, w := range workers {
					w.Stop()
				}
			}()
			for range workers {
				err = errors.Join(err, <-ended)
			}
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&names, "queue", "q", nil, "a queue")
	cmd.Flags().StringVar(&path, "ledger", "", "file to append events to")
	cmd.Flags().StringVar(&scripts, "scripts", "", "directory of scripts")
	return cmd
}

// verifyReclaims is how many leases a job may lose: more than a run with many kills takes from one.
const verifyReclaims = 10

// verifyHandler does with each job what its id says, and notes its start and its end.
func verifyHandler(events *ledger.Writer, name string) worker.Handler {
	return func(ctx context.Context, job *worker.Job) (err error) {
		e := ledger.Event{Kind: ledger.Start, Pid: os.Getpid(), Queue: name, Job: job.ID, Token: job.Token(), Attempt: job.Attempt, Sum: sumOf(job.Payload)}
		if err := events.Write(e); err != nil {
			return err
		}
		defer func() { // also when it panics
			e.Kind, e.At = ledger.End, 0
			err = errors.Join(err, events.Write(e))
		}()
		return verifyJob(ctx, job)
	}
}

// verifyJob is most often done at once; some fail, are deferred, take long, are given up, or meet a limit upstream.
func verifyJob(ctx context.Context, job *worker.Job) error {
	first := job.Attempt == 1 && job.Deferrals == 0
	sleep := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if len(job.Cost) > 0 {
		if err := job.SetCost("tokens", job.Cost["tokens"]/2+1); err != nil {
			return err
		}
	}
	switch n := chance(job.ID); {
	case n < 3:
		return sleep(2 * verifyLease)
	case n < 30:
		return sleep(time.Duration(n) * time.Millisecond)
	case n < 38 && job.Attempt == 1:
		return fmt.Errorf("job %s fails once", job.ID)
	case n < 40 && job.Attempt < 3:
		return worker.RetryIn(20*time.Millisecond, errors.New("twice"))
	case n < 44 && first:
		return worker.Defer(30 * time.Millisecond)
	case n == 44:
		return worker.DeadLetter(errors.New("given up"))
	case n == 45 && first:
		return worker.RateLimited(40*time.Millisecond, worker.Because(errors.New("429")))
	case n == 46 && first:
		return worker.RateLimited(40*time.Millisecond, worker.Key("tenant"))
	case n == 47 && job.Attempt == 1:
		panic("as its id says")
	}
	return nil
}

// chance is a number from 0 to 99 that an id always has.
func chance(id string) int {
	h := fnv.New32a()
	h.Write([]byte(id))
	return int(h.Sum32() % 100)
}

// payloadOf is what a job of verify carries.
func payloadOf(id string) []byte { return []byte("payload of " + id) }

func sumOf(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:6])
}
