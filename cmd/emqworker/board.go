package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// demoResult is what demo --json prints.
type demoResult struct {
	Server                   string       `json:"server"`
	Queue                    string       `json:"queue"`
	Workers                  int          `json:"workers"`
	Jobs                     int          `json:"jobs"`
	Max                      int          `json:"max"`
	WindowMS                 int64        `json:"window_ms"`
	Windows                  int          `json:"windows"`
	Admitted                 int64        `json:"admitted"`
	Deferred                 int          `json:"deferred"`
	Over                     int64        `json:"over"`
	Under                    int64        `json:"under"`
	Lost                     int          `json:"lost"`
	RunTwice                 int          `json:"run_twice"`
	LateMaxMS                int64        `json:"late_max_ms"`
	PrivateAdmittedPerWindow int          `json:"private_admitted_per_window"`
	PrivateWindows           []int        `json:"private_windows"`
	PerWindow                []windowJSON `json:"per_window"`

	kept bool // the queue is left on the server
}

type windowJSON struct {
	Admitted     int64 `json:"admitted"`
	Deferred     int   `json:"deferred"`
	Remaining    int64 `json:"remaining"`
	RetryAfterMS int64 `json:"retry_after_ms"` // of the first job sent back; 0 when none was
	LateMS       int64 `json:"late_ms"`        // from the end of the window before, while jobs waited
}

func describeWindow(w *window) windowJSON {
	return windowJSON{w.admitted, w.deferred, max(0, w.max-w.admitted), w.retryAfter, w.late}
}

// board shows the demo, as text while it runs or as JSON at the end.
type board struct {
	out    io.Writer
	err    io.Writer
	flags  demoFlags
	shown  int // windows
	silent bool
}

func newBoard(cmd *cobra.Command, f demoFlags) *board {
	b := &board{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), flags: f, silent: f.json}
	return b
}

func (b *board) begin(server, queue string) {
	f := b.flags
	windows := (f.jobs + f.max - 1) / f.max
	takes := (time.Duration(windows-1) * f.window).Round(time.Second)
	if b.silent {
		fmt.Fprintf(b.err, "emqworker: the demo takes about %v\n", takes)
		return
	}
	fmt.Fprintf(b.out, `%d worker processes share queue %s, which may start %d jobs in %v (%d jobs, about %v).
Beside them %d more, each with a counter of %d in %v in its own memory. Server: %s.

          ONE LIMIT ON THE QUEUE                          PRIVATE COUNTERS
  window  admitted   deferred  remaining  retry-after     admitted
`, f.workers, queue, f.max, f.window, f.jobs, takes, f.workers, f.max, f.window, server)
}

// windows shows those that are over and were not shown before: a window is over when the next has opened, or when all is over.
func (b *board) windows(all []window, private []int, end bool) {
	over := len(all) - 1
	if end {
		over = len(all)
	}
	for ; b.shown < over; b.shown++ {
		beside := "stopped"
		if b.shown < len(private) {
			beside = strconv.Itoa(private[b.shown])
		} else if b.shown < privateWindows && !end {
			return // its number is about to come
		}
		if b.silent {
			continue
		}
		w := describeWindow(&all[b.shown])
		retry := "-"
		if w.RetryAfterMS > 0 {
			retry = short(millis(w.RetryAfterMS))
		}
		fmt.Fprintf(b.out, "  %6d  %-9s  %8d  %9d  %11s     %8s\n", b.shown+1,
			fmt.Sprintf("%d of %d", w.Admitted, b.flags.max), w.Deferred, w.Remaining, retry, beside)
	}
}

// verdict says what the replay of the audit stream found; the exit code says it too.
func (b *board) verdict(r demoResult) error {
	if b.silent {
		if err := printJSON(b.out, r); err != nil {
			return err
		}
	} else {
		b.inWords(r)
	}
	if !r.held() {
		return told(exitFailure)
	}
	return nil
}

func (b *board) inWords(r demoResult) {
	word := "HELD"
	if !r.held() {
		word = "NOT HELD"
	}
	fmt.Fprintf(b.out, `
%s: in %d windows %d processes admitted %d of %d jobs: %d over the limit, %d under it while jobs waited, %d lost, %d run twice.
The latest window opened %d ms after the one before was over. %d times a job was sent back; none lost an attempt by it.
The same processes with private counters admitted %d jobs a window, %.1f times the limit.
`, word, r.Windows, r.Workers, r.Admitted, r.Jobs, r.Over, r.Under, r.Lost, r.RunTwice, r.LateMaxMS, r.Deferred,
		r.PrivateAdmittedPerWindow, float64(r.PrivateAdmittedPerWindow)/float64(r.Max))
	if r.kept {
		fmt.Fprintf(b.out, `
The queue stays for you to look at:
  emqworker stats %[1]s
  valkey-cli xrange 'emq:{%[1]s}:audit' - +
`, r.Queue)
	}
}
