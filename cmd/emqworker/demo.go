package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/queue"
)

const (
	privateWindows = 4                      // windows that the fleet with private counters is watched for
	demoPoll       = 50 * time.Millisecond  // how often the audit stream is read
	settleTime     = 100 * time.Millisecond // for what the processes of a fleet print to arrive
	demoMargin     = 20 * time.Second       // beyond what the limit allows, before the demo gives up
	auditPage      = 1000
)

// demoFlags are the flags of demo.
type demoFlags struct {
	workers, max, jobs int
	window             time.Duration
	json, emulator     bool
}

func newDemo(a *app) *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a fleet hold a limit, beside one whose workers each count for themselves",
		Long: `Start worker processes on one queue that has a limit, and as many on another where each counts in its own memory, and show
what both admit, window by window. At the end the audit stream of the first queue, in which every script on the server says
what it did, is replayed and judged: the exit code is 1 if a window admitted more than the limit (over), or less although jobs
waited (under), or if a job was lost or ran twice.

It starts a private valkey-server, which ends with it; where none is installed, an emulator takes its place. With --url it uses
that server and leaves its queue and the audit stream there.`,
		Example: `  emqworker demo
  emqworker demo --workers 8 --max 5 --window 500ms --jobs 100
  emqworker demo --json`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.workers < 1 || f.workers > 64:
				return usage("demo: --workers is %d; want 1 to 64", f.workers)
			case f.max < 1 || f.max > 1000:
				return usage("demo: --max is %d; want 1 to 1000", f.max)
			case f.jobs < 1 || f.jobs > 100_000:
				return usage("demo: --jobs is %d; want 1 to 100000", f.jobs)
			case f.window < 100*time.Millisecond || f.window > time.Hour || f.window%time.Millisecond != 0:
				return usage("demo: --window is %v; want whole milliseconds from 100ms to 1h", f.window)
			}
			return runDemo(a, cmd, f)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.workers, "workers", 4, "worker processes of each fleet")
	flags.IntVar(&f.max, "max", 10, "jobs in a window")
	flags.DurationVar(&f.window, "window", time.Second, "length of a window")
	flags.IntVar(&f.jobs, "jobs", 200, "jobs to run")
	flags.BoolVar(&f.json, "json", false, "print one JSON object, at the end")
	flags.BoolVar(&f.emulator, "emulator", false, "do not start a server, use the emulator")
	return cmd
}

// runDemo runs the demo; a signal ends it early, with everything cleaned up.
func runDemo(a *app, cmd *cobra.Command, f demoFlags) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	code := make(chan int, 1)
	go func() {
		select {
		case s := <-signals:
			code <- signalled(s)
			cancel()
		case <-ctx.Done():
		}
	}()
	server, err := a.startServer(cmd, f.emulator)
	if err != nil {
		return err
	}
	defer server.close()
	d := &demo{demoFlags: f, server: server, queue: "demo", replay: newReplay(), show: newBoard(cmd, f)}
	d.replay.slack = server.slack
	if !server.private {
		d.queue += "-" + uuid.NewString()[:8]
	}
	err = d.run(ctx, a)
	if ctx.Err() != nil {
		return told(<-code)
	}
	if err != nil {
		return err
	}
	return d.show.verdict(d.result())
}

// demo is one run of it.
type demo struct {
	demoFlags
	server *demoServer
	queue  string
	replay *replay
	show   *board

	shared, private *fleet
	privateCounts   []int // admitted by the private counters, by window
	seen            string
}

func (d *demo) privateQueue() string { return d.queue + "-private" }

func (d *demo) run(ctx context.Context, a *app) error {
	client := d.server.client
	q, err := queue.New(client, d.queue, queue.Options{})
	if err != nil {
		return err
	}
	private, err := queue.New(client, d.privateQueue(), queue.Options{})
	if err != nil {
		return err
	}
	if _, err := q.SetLimit(ctx, limiter.Limit{Max: int64(d.max), Window: d.window}, "demo"); err != nil {
		return err
	}
	keys, err := lua.ForQueue(d.queue)
	if err != nil {
		return err
	}
	entries := strconv.Itoa(20*d.jobs + 10_000) // more than there will be
	if err := client.Do(ctx, client.B().Hset().Key(keys.Meta()).FieldValue().FieldValue("audit", entries).Build()).Error(); err != nil {
		return err
	}

	var more []string
	if a.passwordFile != "" {
		more = []string{"--password-file", a.passwordFile}
	}
	d.private, err = startFleet(d.workers, d.server.env,
		append(more, "-q", d.privateQueue(), "--max", strconv.Itoa(d.max), "--window", d.window.String())...)
	if err != nil {
		return err
	}
	defer d.endPrivate(private)
	if d.shared, err = startFleet(d.workers, d.server.env, append(more, "-q", d.queue)...); err != nil {
		return err
	}
	defer d.shared.stop()

	d.show.begin(d.server.name, d.queue)
	if err := enqueueNumbers(ctx, private, d.workers*d.max*(d.privateCount()+1)); err != nil {
		return err
	}
	if err := enqueueNumbers(ctx, q, d.jobs); err != nil {
		return err
	}
	return d.watch(ctx, keys, private)
}

// windows is how many the jobs take.
func (d *demo) windows() int { return (d.jobs + d.max - 1) / d.max }

func (d *demo) privateCount() int { return min(privateWindows, d.windows()) }

// watch follows both fleets until all jobs are done.
func (d *demo) watch(ctx context.Context, keys lua.Keys, private *queue.Queue) error {
	giveUp := time.After(time.Duration(d.windows())*d.window + demoMargin)
	poll := time.NewTicker(demoPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-giveUp:
			d.show.windows(d.replay.windows, d.privateCounts, true)
			return nil
		case <-poll.C:
		}
		if err := d.read(ctx, keys); err != nil {
			return err
		}
		counts, over := d.private.perWindow(d.privateCount(), d.window, time.Now().Add(-settleTime))
		d.privateCounts = counts[:over]
		if over == d.privateCount() {
			d.endPrivate(private)
		}
		done := len(d.replay.completed) >= d.jobs
		d.show.windows(d.replay.windows, d.privateCounts, done && over == d.privateCount())
		if done && over == d.privateCount() {
			return nil
		}
	}
}

// read reads what was added to the audit stream.
func (d *demo) read(ctx context.Context, keys lua.Keys) error {
	client := d.server.client
	for {
		from := "-"
		if d.seen != "" {
			from = "(" + d.seen
		}
		page, err := client.Do(ctx, client.B().Xrange().Key(keys.Audit()).Start(from).End("+").Count(auditPage).Build()).AsXRange()
		if err != nil && !valkey.IsValkeyNil(err) {
			return fmt.Errorf("reading the audit stream: %w", err)
		}
		for _, entry := range page {
			d.replay.add(entry.FieldValues)
			d.seen = entry.ID
		}
		if len(page) < auditPage {
			return nil
		}
	}
}

// endPrivate stops the fleet with private counters and deletes its queue; a second call does nothing.
func (d *demo) endPrivate(q *queue.Queue) {
	if d.private.procs == nil {
		return
	}
	d.private.stop()
	d.private.procs = nil
	ctx, cancel := context.WithTimeout(context.Background(), readWithin)
	defer cancel()
	if d.server.private {
		return // it ends with its server
	}
	q.Drain(ctx, true)
	keys, err := lua.ForQueue(q.Name())
	if err != nil {
		return
	}
	client := d.server.client
	for _, name := range []string{"meta", "state", "wake"} {
		client.Do(ctx, client.B().Unlink().Key(keys.Prefix()+name).Build())
	}
	client.Do(ctx, client.B().Srem().Key(lua.Queues).Member(q.Name()).Build())
}

// enqueueNumbers enqueues n jobs with the numbers from 1 as payloads.
func enqueueNumbers(ctx context.Context, q *queue.Queue, n int) error {
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i].Payload = []byte(strconv.Itoa(i + 1))
	}
	_, err := q.EnqueueMany(ctx, jobs)
	return err
}

// result sums up.
func (d *demo) result() demoResult {
	r := d.replay
	result := demoResult{
		Server: d.server.name, Queue: d.queue, Workers: d.workers, Jobs: d.jobs, Max: d.max, WindowMS: d.window.Milliseconds(),
		Windows: len(r.windows), Admitted: r.admitted(), Deferred: r.deferred, Over: r.over, Under: r.under, LateMaxMS: r.latest(),
		PrivateWindows: d.privateCounts, PerWindow: []windowJSON{}, kept: !d.server.private,
	}
	result.Lost = d.jobs - len(r.completed)
	result.RunTwice = d.shared.repeated()
	for _, times := range r.completed {
		if times > 1 {
			result.RunTwice++
		}
	}
	sum := 0
	for _, n := range d.privateCounts {
		sum += n
	}
	if len(d.privateCounts) > 0 {
		result.PrivateAdmittedPerWindow = sum / len(d.privateCounts)
	}
	for i := range r.windows {
		result.PerWindow = append(result.PerWindow, describeWindow(&r.windows[i]))
	}
	return result
}

// held: the limit was held and no job was lost or run twice.
func (r demoResult) held() bool { return r.Over == 0 && r.Under == 0 && r.Lost == 0 && r.RunTwice == 0 }
