package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"time"
)

func main() {
	if url := os.Getenv(workerVariable); url != "" {
		workerProcess(url)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// env is what every measurement is given.
type env struct {
	quick  bool
	rounds int
	node   *node // nil: there is no BullMQ
	log    io.Writer
	trial  int // of the kills so far
}

// size is how large a measurement is: full, or few where it is only tried out.
func (e *env) size(full, few int) int {
	if e.quick {
		return few
	}
	return full
}

// run does what the arguments say. A measurement that fails is told on log and the others go on; the error names them at the end.
func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(log)
	only := flags.String("only", "", "measure only what has a name that matches this `regexp`")
	rounds := flags.Int("rounds", 5, "how often each system is measured, in turns")
	quick := flags.Bool("quick", false, "small sizes and one round: to see that it runs")
	save := flags.String("save", "", "also put the lines into this `file`, in place of those of the same name and system")
	curves := flags.Bool("curves", false, "measure how costs grow instead")
	report := flags.Bool("report", false, "draw and write what was saved, and measure nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if *rounds < 1 {
		return fmt.Errorf("-rounds is %d; want 1 or more", *rounds)
	}
	if *report {
		return writeReport("results.jsonl", "curves.jsonl", "../docs")
	}
	e := &env{quick: *quick, rounds: *rounds, log: log}
	if e.quick {
		e.rounds = 1
	}
	began := time.Now()
	var lines []line
	if *curves {
		lines, err = measureCurves(ctx, e, names, out)
	} else {
		if e.node, err = installNode(ctx); err != nil {
			fmt.Fprintln(log, "bullmq is left out:", err)
		}
		lines, err = measureFigures(ctx, e, names, out)
		writeTable(log, lines)
	}
	fmt.Fprintf(log, "took %s\n", time.Since(began).Round(time.Second))
	if *save != "" {
		err = errors.Join(err, saveLines(*save, lines))
	}
	return err
}

// measureFigures measures every series that has a figure of such a name.
func measureFigures(ctx context.Context, e *env, names *regexp.Regexp, out io.Writer) (lines []line, failed error) {
	for _, s := range catalogue {
		if !s.has(names) {
			continue
		}
		found, err := s.measure(ctx, e, func(l line) {
			if names.MatchString(l.Name) {
				lines = append(lines, l)
				writeLine(out, l)
			}
		})
		if err != nil {
			failed = errors.Join(failed, err)
			fmt.Fprintln(e.log, "failed:", err)
		}
		if ctx.Err() != nil {
			return lines, ctx.Err()
		}
		if !found {
			fmt.Fprintln(e.log, "nothing measured for", s.figures[0].name)
		}
	}
	return lines, failed
}

// measure runs the rounds of a series, systems in turn, and tells each figure of each system.
func (s series) measure(ctx context.Context, e *env, tell func(line)) (found bool, failed error) {
	rounds := e.rounds
	if s.once {
		rounds = 1
	}
	all := map[string]samples{}
	for round := range rounds {
		for _, system := range s.systems {
			if system == bullmq && e.node == nil {
				continue
			}
			runtime.GC() // what the round before left is not this one's
			began := time.Now()
			got, err := s.try(ctx, e, system)
			if err != nil {
				return false, fmt.Errorf("%s of %s, round %d: %w", s.figures[0].name, system, round+1, err)
			}
			fmt.Fprintf(e.log, "%s round %d/%d %s: %s in %.1fs\n", s.figures[0].name, round+1, rounds, system, got, time.Since(began).Seconds())
			if all[system] == nil {
				all[system] = samples{}
			}
			for name, values := range got {
				all[system][name] = append(all[system][name], values...)
			}
		}
	}
	for _, f := range s.figures {
		for _, system := range s.systems {
			if values := all[system][f.source()]; len(values) > 0 {
				found = true
				tell(line{Name: f.name, System: system, Value: round(f.of(values)), Unit: f.unit})
			}
		}
	}
	return found, nil
}
