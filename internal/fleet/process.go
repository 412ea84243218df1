package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/worker"
)

// Main makes this process a worker of a fleet, and does not return, if [New] started it as one.
func Main() {
	if os.Getenv("FLEET_QUEUE") != "" {
		os.Exit(work())
	}
}

// work runs jobs until it is told to stop, one line of JSON for each start. A job with the payload "kill" kills its process.
func work() int {
	env := func(name string, otherwise time.Duration) time.Duration {
		if d, err := time.ParseDuration(os.Getenv(name)); err == nil {
			return d
		}
		return otherwise
	}
	options, err := valkey.ParseURL(os.Getenv("FLEET_URL"))
	if err != nil {
		panic(err)
	}
	client, err := valkey.NewClient(options)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	budget, _ := strconv.Atoi(os.Getenv("FLEET_MAX"))
	slots, _ := strconv.Atoi(os.Getenv("FLEET_SLOTS"))
	if slots == 0 {
		slots = 10
	}
	var mine atomic.Int64
	w, err := worker.New(client, os.Getenv("FLEET_QUEUE"), func(ctx context.Context, job *worker.Job) error {
		if string(job.Payload) == "kill" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if budget > 0 && mine.Add(1) > int64(budget) {
			return worker.Defer(20 * time.Millisecond) // over this process's own budget
		}
		line, _ := json.Marshal(Start{job.ID, job.Attempt, job.ClaimedAt.UnixMilli(), os.Getpid()})
		_, _ = os.Stdout.Write(append(line, '\n'))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(env("FLEET_SLEEP", 0)):
			return nil
		}
	}, worker.Options{Concurrency: slots, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Grace: env("FLEET_GRACE", 5*time.Second), Claim: claim.Options{Lease: env("FLEET_LEASE", 5*time.Second)}})
	if err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := w.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
