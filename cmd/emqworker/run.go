package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

const (
	drainPoll  = 200 * time.Millisecond // how often --drain looks
	readWithin = 5 * time.Second        // one look at the server
	forceAfter = 5 * time.Second        // from the second signal to the end, whatever is still open
)

// runFlags are the flags of run.
type runFlags struct {
	queue       string
	concurrency int
	log, exec   bool
	http        httpFlags
	lease       time.Duration
	grace       time.Duration
	runFor      time.Duration
	drain       bool
	maxReclaims int
	backoff     time.Duration
	verbose     bool
}

func newRun(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run -q QUEUE (--log | --http URL | --exec PROGRAM [ARGUMENT…])",
		Short: "Run a worker: a program for each job, a request, or a line of JSON",
		Long: `Run a worker: claim the jobs of a queue as its limit allows, and run a program for each, post each to an HTTP endpoint, or
print each as a line of JSON.

--exec runs PROGRAM once for each job, without a shell. Everything after --exec belongs to the program, so the worker's own
flags come before it. The program gets the payload on standard input, the worker's environment without VALKEY_URL and
REDIS_URL, and:
  EMQ_JOB_ID, EMQ_JOB_NAME, EMQ_QUEUE, EMQ_ATTEMPT   which job it is; the first attempt is 1
  EMQ_CLAIMED_MS, EMQ_DEADLINE                       ms since 1970: claimed, by the server's clock; its time-out, if it has one
  EMQ_KEY_<name>, EMQ_COST_<unit>                    the job's keys and costs
  EMQ_TOKEN                                          new with each claim, to tell an earlier run from a later one
  TRACEPARENT, TRACESTATE                            the trace that enqueued it
Its exit code is the job's end: 0 done; 64 or 65 dead at once; 75 and any other: tried again, with the last 8 KB of its
standard error kept as the reason. With 75 it may say when: by a line EMQ_RETRY_AFTER=90 or EMQ_RETRY_AFTER=1m30s on its file
descriptor 3. When its time-out is over, its lease is lost or the worker stops, its process group gets SIGTERM, and SIGKILL 5 s
later (1 s when the worker stops).

--http posts the payload to URL, with what the job is in the headers Emq-Queue, Emq-Job-Id, Emq-Job-Name, Emq-Attempt,
Emq-Deferrals, Emq-Enqueued-Ms, Emq-Claimed-Ms, Emq-Deadline-Ms, Emq-Token, Emq-Keys, Emq-Cost (the last two as in a query
string) and Traceparent, and signed, with --http-secret-file, as the Standard Webhooks specification says. The answer is the
job's end: 2xx done; 429, and 503 that says when to come back: the job waits without spending an attempt, and the queue is
closed until then for the whole fleet (--http-close-key closes a key value alone, --http-no-close nothing); 408, 409, 425, 5xx
and no answer: tried again; other 4xx and 3xx: dead at once. When to come back is read from Retry-After (seconds, a date or a
duration) or the RateLimit and X-RateLimit-Reset fields, and is at most --http-max-wait. Addresses that are not of the public
internet are refused when connecting, unless --http-private is given.

The first SIGTERM or SIGINT (Ctrl-C) stops claiming and lets running jobs finish for --grace; what is not finished then is
handed back without spending an attempt. A second one hands back at once. So does one after --for is over.`,
		Example: `  emqworker run -q mail --log                         # print each job as JSON
  emqworker run -q mail -c 20 --exec ./send --fast    # run ./send --fast for each job, 20 at once
  emqworker run -q mail --drain --exec ./send         # until the queue is empty
  emqworker run -q hooks --http https://example.org/jobs --http-secret-file secret`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(a, cmd, f, args)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows --exec is the program's
	flags.StringVarP(&f.queue, "queue", "q", "", "the queue")
	flags.IntVarP(&f.concurrency, "concurrency", "c", worker.DefaultConcurrency, "jobs that run at once")
	flags.BoolVar(&f.log, "log", false, "print each job as a line of JSON and call it done")
	flags.BoolVar(&f.exec, "exec", false, "run a program for each job; the last flag: the program and its arguments follow")
	f.http.register(flags)
	flags.DurationVar(&f.lease, "lease", claim.DefaultLease, "how long a job belongs to this worker unless extended, which it is while it runs")
	flags.DurationVar(&f.grace, "grace", worker.DefaultGrace, "how long running jobs may go on after the stop")
	flags.DurationVar(&f.runFor, "for", 0, "stop after this time")
	flags.BoolVar(&f.drain, "drain", false, "stop when no job waits, runs or is delayed")
	flags.IntVar(&f.maxReclaims, "max-reclaims", claim.DefaultMaxReclaims, "leases of one job that may run out before the job is dead")
	flags.DurationVar(&f.backoff, "backoff", time.Second, "wait after a first failed attempt; it doubles with each, up to 1h")
	flags.BoolVar(&f.verbose, "verbose", false, "log each job on standard error")
	return cmd
}

// one says whether exactly one of them is set.
func one(set ...bool) bool {
	n := 0
	for _, s := range set {
		if s {
			n++
		}
	}
	return n == 1
}

func run(a *app, cmd *cobra.Command, f runFlags, args []string) error {
	switch {
	case f.queue == "":
		return usage("run: -q is missing: which queue? Flags come before --exec")
	case !one(f.log, f.exec, f.http.url != ""):
		return usage("run: want one of --log, --http and --exec")
	case f.exec && len(args) == 0:
		return usage("run: --exec is not followed by a program")
	case !f.exec && len(args) > 0:
		return usage("run: unexpected argument %q", args[0])
	case f.runFor < 0:
		return usage("run: --for is %v; want more than 0", f.runFor)
	case f.grace < 0:
		return usage("run: --grace is %v; want 0 or more", f.grace)
	case f.backoff < 0:
		return usage("run: --backoff is %v; want 0 or more", f.backoff)
	}
	if err := f.http.check(cmd.Flags()); err != nil {
		return err
	}
	r := &runner{flags: f, stderr: cmd.ErrOrStderr()}
	handler := logJobs(cmd.OutOrStdout())
	switch {
	case f.http.url != "":
		poster, err := f.http.poster(f.concurrency)
		if err != nil {
			return err
		}
		defer poster.Close()
		handler = poster.Handle
	case f.exec:
		program, err := newProgram(args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		if err != nil {
			return usage("run: --exec: %w", err)
		}
		r.program, handler = program, program.handle
	}
	client, err := a.connect(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	return r.run(cmd.Context(), client, handler)
}

// runner is one worker and what stops it.
type runner struct {
	flags   runFlags
	stderr  io.Writer
	program *program // nil with --log
	worker  *worker.Worker
	busy    atomic.Int64
	code    atomic.Int64 // of the second signal
}

func (r *runner) run(ctx context.Context, client valkey.Client, handler worker.Handler) error {
	f := r.flags
	level := slog.LevelWarn
	if f.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(r.stderr, &slog.HandlerOptions{Level: level}))
	var err error
	r.worker, err = worker.New(client, f.queue, handler, worker.Options{
		Concurrency: f.concurrency, Claim: claim.Options{Lease: f.lease, MaxReclaims: f.maxReclaims},
		Grace: max(f.grace, 1), Backoff: worker.Exponential(min(f.backoff, time.Hour), time.Hour), // a grace of 0 would be the default
		Middleware: []worker.Middleware{r.count, logged(log)}, Logger: log,
	})
	if err != nil {
		return usage("run: %w", err)
	}
	q, err := queue.New(client, f.queue, queue.Options{})
	if err != nil {
		return err
	}
	limit := "none"
	if l, err := q.Limit(ctx); err != nil {
		limit = "broken: " + errorText(err)
	} else if l.Max > 0 {
		limit = l.String()
	}
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	r.say("running queue %s: %d at once, limit %s; Ctrl-C stops", f.queue, f.concurrency, limit)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go r.waitForStop(ctx, signals)
	if f.drain {
		go r.drain(ctx, q)
	}
	err = r.worker.Run(ctx)
	r.killAll()
	if code := r.code.Load(); code != 0 {
		return &exitError{int(code), err}
	}
	return err
}

func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(r.stderr, "emqworker: "+format+"\n", args...)
}

// count knows how many jobs run.
func (r *runner) count(next worker.Handler) worker.Handler {
	return func(ctx context.Context, job *worker.Job) error {
		r.busy.Add(1)
		defer r.busy.Add(-1)
		return next(ctx, job)
	}
}

// logged logs each job when the level is low enough.
func logged(log *slog.Logger) worker.Middleware {
	return func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, job *worker.Job) error {
			start := time.Now()
			err := next(ctx, job)
			if err != nil {
				log.Info("job failed", "job", job.ID, "attempt", job.Attempt, "took", time.Since(start), "error", err)
			} else {
				log.Info("job done", "job", job.ID, "attempt", job.Attempt, "took", time.Since(start))
			}
			return err
		}
	}
}

// waitForStop stops the worker at the first signal or when --for is over, and hands its jobs back at the next signal. It ends
// with ctx.
func (r *runner) waitForStop(ctx context.Context, signals <-chan os.Signal) {
	var over <-chan time.Time
	if r.flags.runFor > 0 {
		over = time.After(r.flags.runFor)
	}
	select {
	case <-signals:
	case <-over:
	case <-ctx.Done():
		return
	}
	r.worker.Stop()
	if busy := r.busy.Load(); busy > 0 {
		r.say("stopping; %d jobs may run on for %v; the next Ctrl-C hands them back at once", busy, r.flags.grace)
	}
	graceOver := time.After(r.flags.grace)
	for {
		select {
		case <-graceOver:
			r.hurryUp()
		case s := <-signals:
			r.code.Store(int64(signalled(s)))
			r.worker.HandBack()
			r.hurryUp()
			r.force(ctx, signals)
			return
		case <-ctx.Done():
			return
		}
	}
}

func (r *runner) hurryUp() {
	if r.program != nil {
		r.program.hurryUp()
	}
}

// killAll ends programs that still run although their jobs were handed back.
func (r *runner) killAll() {
	if r.program != nil {
		r.program.killAll()
	}
}

// force ends this process when handing back takes too long or a third signal comes: the jobs come back when their leases end.
func (r *runner) force(ctx context.Context, signals <-chan os.Signal) {
	select {
	case <-ctx.Done():
		return
	case <-signals:
	case <-time.After(forceAfter):
	}
	r.killAll()
	r.say("not all jobs were handed back; they come back when their leases end")
	os.Exit(int(r.code.Load()))
}

// drain stops the worker once no job waits, runs or is delayed. It ends with ctx.
func (r *runner) drain(ctx context.Context, q *queue.Queue) {
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		reading, cancel := context.WithTimeout(ctx, readWithin)
		n, err := q.Counts(reading)
		cancel()
		if err == nil && n.Wait+n.Active+n.Delayed == 0 {
			r.worker.Stop()
			return
		}
		if err != nil && !errors.Is(err, context.Canceled) && !lostServer(err) {
			r.say("looking whether the queue is empty: %s", errorText(err))
		}
	}
}
