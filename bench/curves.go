package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"time"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// point is where a curve is at x.
type point struct {
	curve, of string // the curve, and which of its lines
	x, value  float64
}

// curve is how a cost grows, a line for each of some things.
type curve struct {
	name, unit  string
	file, title string // of its plot: docs/img/perf-<file>.svg
	x, y        string // what the axes show
	logY        bool
}

// curves are all that are drawn.
var curves = []curve{
	{"claim_us_by_backlog", "us", "claim", "One claim of 100 jobs", "backlog", "time in the server (µs)", true},
	{"enqueue_us_by_backlog", "us", "enqueue", "One enqueue of one job", "backlog", "time in the server (µs)", true},
	{"process_by_workers", "jobs/s", "workers", "No-op jobs processed", "workers, each with a connection of its own", "jobs/s", false},
	{"per_grant_by_workers", "1", "grants", "Calls for each granted job under a limit of 20 a second", "idle one-slot workers", "calls per grant", false},
	{"us_by_payload", "us", "payload", "Cost of one job by its size", "payload (bytes; an empty one is drawn at 1)", "time in the server (µs)", true},
}

// sweep measures points of curves; each tells as many as it likes.
type sweep struct {
	curves []string
	run    func(ctx context.Context, e *env, tell func(point))
}

var sweeps = []sweep{
	{[]string{"claim_us_by_backlog", "enqueue_us_by_backlog"}, sweepBacklog},
	{[]string{"process_by_workers"}, sweepWorkers},
	{[]string{"per_grant_by_workers"}, sweepGrants},
	{[]string{"us_by_payload"}, sweepPayload},
}

// measureCurves measures every curve of such a name.
func measureCurves(ctx context.Context, e *env, names *regexp.Regexp, out io.Writer) (lines []line, failed error) {
	units := map[string]string{}
	for _, c := range curves {
		units[c.name] = c.unit
	}
	for _, s := range sweeps {
		wanted := false
		for _, name := range s.curves {
			wanted = wanted || names.MatchString(name)
		}
		if !wanted {
			continue
		}
		err := func() (err error) {
			ctx, cancel := context.WithTimeout(ctx, 2*within)
			defer cancel()
			defer catch(&err)
			s.run(ctx, e, func(p point) {
				fmt.Fprintf(e.log, "%s %s at %g: %.5g\n", p.curve, p.of, p.x, p.value)
				l := line{p.curve, p.of, &p.x, round(p.value), units[p.curve]}
				lines = append(lines, l)
				writeLine(out, l)
			})
			return nil
		}()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.curves[0], err))
		}
	}
	return lines, failed
}

// sweepBacklog measures claims and enqueues with more and more jobs of each kind.
func sweepBacklog(ctx context.Context, e *env, tell func(point)) {
	for _, kind := range []string{waiting, due, keysOver, leased} {
		of := map[string]string{
			waiting: "waiting jobs", due: "delayed jobs, all due", keysOver: "key values over budget", leased: "jobs under a lease",
		}[kind]
		for n := 1000; n <= e.size(1_000_000, 2000); n *= 10 {
			func() {
				b := openBacklog(ctx, kind, n)
				defer b.close()
				var claims, enqueues []float64
				for range e.size(30, 3) {
					claims = append(claims, b.claimCost(ctx))
					enqueues = append(enqueues, b.enqueueCost(ctx))
				}
				tell(point{"claim_us_by_backlog", of, float64(n), median(claims)})
				tell(point{"enqueue_us_by_backlog", of, float64(n), median(enqueues)})
			}()
		}
	}
}

// fleetSizes are the numbers of workers that are tried.
func fleetSizes(e *env) []int {
	if e.quick {
		return []int{1, 5}
	}
	return []int{1, 2, 5, 10, 20, 50, 100, 200}
}

// sweepWorkers measures jobs a second of more and more workers in one process.
func sweepWorkers(ctx context.Context, e *env, tell func(point)) {
	for _, slots := range []int{1, 20} {
		for _, workers := range fleetSizes(e) {
			runtime.GC()
			func() {
				n := e.size(20_000, 500)
				s := startServer()
				defer s.stop()
				q := openQueue(s)
				defer q.close()
				must(q.Pause(ctx, ""))
				q.fill(ctx, n, nil)
				f := startFleet(s, workers, slots)
				defer f.stop()
				f.quiet(ctx, 200*time.Millisecond)
				all := f.after(n)
				began := time.Now()
				must(q.Resume(ctx, ""))
				wait(ctx, all, "all jobs to be handled")
				q.settled(ctx)
				of := fmt.Sprintf("%d slots each", slots)
				if slots == 1 {
					of = "1 slot each"
				}
				tell(point{"process_by_workers", of, float64(workers), float64(n) / time.Since(began).Seconds()})
			}()
		}
	}
}

// sweepGrants measures what more and more idle workers spend on a granted job.
func sweepGrants(ctx context.Context, e *env, tell func(point)) {
	for _, workers := range fleetSizes(e) {
		func() {
			s := startServer()
			defer s.stop()
			claims, scripts := limitedFleet(ctx, s, workers, limiter.PerSecond(20), e.size(5, 1))
			tell(point{"per_grant_by_workers", "claims", float64(workers), claims})
			tell(point{"per_grant_by_workers", "all scripts", float64(workers), scripts})
		}()
	}
}

// sweepPayload measures an enqueue and a claimed job of more and more bytes.
func sweepPayload(ctx context.Context, e *env, tell func(point)) {
	for _, size := range []int{0, 10, 100, 1 << 10, 10 << 10, 100 << 10, 1 << 20} {
		func() {
			s := startServer()
			defer s.stop()
			q := openQueue(s)
			defer q.close()
			c := must(claim.New(q.client, name, claim.Options{}))
			must(c.Claim(ctx, fullClaim)) // loads the script
			body := make([]byte, size)
			var enqueues, claims []float64
			for range e.size(100, 5) {
				enqueues = append(enqueues, s.took(ctx, func() { must(q.Enqueue(ctx, queue.Job{Payload: body})) }))
			}
			for left := len(enqueues); left > 0; {
				var got claim.Batch
				took := s.took(ctx, func() { got = must(c.Claim(ctx, fullClaim)) })
				if len(got.Jobs) == 0 {
					fail("a claim got nothing though %d jobs wait", left)
				}
				left -= len(got.Jobs)
				claims = append(claims, took/float64(len(got.Jobs)))
			}
			x := float64(max(size, 1))
			tell(point{"us_by_payload", "enqueue", x, median(enqueues)})
			tell(point{"us_by_payload", "claim, for each of its jobs", x, median(claims)})
		}()
	}
}
