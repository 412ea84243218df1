package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/queue"
)

const (
	batch     = 1000     // jobs of one enqueue call
	lineBytes = 16 << 20 // of one line of JSON
)

// enqueueFlags are the flags of enqueue.
type enqueueFlags struct {
	job        queue.Job
	priority   int
	at         string
	keys, cost []string
}

func newEnqueue(a *app) *cobra.Command {
	var f enqueueFlags
	cmd := &cobra.Command{
		Use:   "enqueue QUEUE [PAYLOAD | -]",
		Short: "Enqueue a job, or one for each line of JSON on standard input",
		Long: `Enqueue one job with PAYLOAD, empty if there is none, and print its id.

With - it reads lines of JSON and enqueues a job for each:
  {"payload": "text", "id": "a", "name": "send", "priority": 2, "delay": "5s", "at": "2030-01-02T15:04:05Z",
   "keys": {"tenant": "acme"}, "cost": {"tokens": 1800}, "max_attempts": 3, "timeout": "1m", "start_by": "5s", "retain": "1h"}
All fields may be left out; flags stand in for them. A payload that is a string is its text, any other JSON value its JSON;
"payload_base64" is for bytes. A bad line ends it: the lines before are enqueued, the error names the line and the field. An id
that exists, or a cost above what a limit ever grants, is told and makes the exit code 1; the other lines are enqueued all the same.`,
		Example: `  emqworker enqueue mail '{"to":"ann@example.org"}'
  emqworker enqueue llm hello --key model=x --cost tokens=1800 --max-attempts 3
  emqworker enqueue mail --id report-7 --delay 1h
  jq -c '{payload: .}' rows.json | emqworker enqueue mail -`,
		DisableFlagsInUseLine: true,
		Args:                  arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return enqueue(a, cmd, f, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.job.ID, "id", "", "name the job; refused when a job of this id exists (default: a new UUID)")
	flags.StringVar(&f.job.Name, "name", "", "name of the handler")
	flags.DurationVar(&f.job.Delay, "delay", 0, "do not run it before this time has passed")
	flags.StringVar(&f.at, "at", "", "do not run it before this time (RFC 3339, as in 2030-01-02T15:04:05Z)")
	flags.IntVar(&f.priority, "priority", int(queue.Normal), "1 (first) to 4")
	flags.StringArrayVar(&f.keys, "key", nil, "key for limits by key, as in tenant=acme (repeatable)")
	flags.StringArrayVar(&f.cost, "cost", nil, "cost for limits by unit, as in tokens=1800 (repeatable)")
	flags.IntVar(&f.job.MaxAttempts, "max-attempts", 0, fmt.Sprintf("how often it is tried before it is dead (default %d)", queue.DefaultMaxAttempts))
	flags.DurationVar(&f.job.Timeout, "timeout", 0, "how long one attempt may take (default: no time-out)")
	flags.DurationVar(&f.job.StartBy, "start-by", 0, "how long after its claim it may still be started (default: no bound)")
	flags.DurationVar(&f.job.Retain, "retain", 0, "how long the completed job is kept (default: not at all)")
	return cmd
}

// fill makes the job that the flags describe.
func (f *enqueueFlags) fill() (err error) {
	if f.job.Keys, err = pairs("key", f.keys, func(v string) (string, error) { return v, nil }); err != nil {
		return err
	}
	if f.job.Cost, err = pairs("cost", f.cost, func(v string) (int64, error) { return strconv.ParseInt(v, 10, 64) }); err != nil {
		return err
	}
	if f.job.Priority = queue.Priority(f.priority); f.priority == 0 {
		return usage("enqueue: --priority is 0; want 1 (first) to 4")
	}
	if f.at != "" {
		if f.job.At, err = time.Parse(time.RFC3339, f.at); err != nil {
			return usage("enqueue: --at is %q; want a time as in 2030-01-02T15:04:05Z", f.at)
		}
	}
	return nil
}

// pairs reads the values of a flag like --key name=value.
func pairs[V any](flag string, given []string, value func(string) (V, error)) (map[string]V, error) {
	if len(given) == 0 {
		return nil, nil
	}
	m := map[string]V{}
	for _, pair := range given {
		name, text, found := strings.Cut(pair, "=")
		v, err := value(text)
		if !found || err != nil {
			return nil, usage("enqueue: --%s is %q; want name=value%s", flag, pair, map[bool]string{true: " with a whole number"}[flag == "cost"])
		}
		if _, twice := m[name]; twice {
			return nil, usage("enqueue: --%s %s is given twice", flag, name)
		}
		m[name] = v
	}
	return m, nil
}

func enqueue(a *app, cmd *cobra.Command, f enqueueFlags, args []string) error {
	if err := f.fill(); err != nil {
		return err
	}
	lines := len(args) == 2 && args[1] == "-"
	if lines && f.job.ID != "" {
		return usage("enqueue: --id is for one job; give each line its id")
	}
	return withQueue(a, cmd, args[0], func(q *queue.Queue) error {
		if lines {
			in := &intake{q: q, model: f.job, out: cmd.OutOrStdout(), errors: cmd.ErrOrStderr()}
			return in.read(cmd.Context(), cmd.InOrStdin())
		}
		if len(args) == 2 {
			f.job.Payload = []byte(args[1])
		}
		id, err := q.Enqueue(cmd.Context(), f.job)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
		return err
	})
}

// intake enqueues the jobs of lines of JSON, in order.
type intake struct {
	q           *queue.Queue
	model       queue.Job // what a line does not say
	out, errors io.Writer

	jobs    []queue.Job // read and not yet sent
	lines   []int       // the line of each
	sent    int         // jobs enqueued
	refused bool        // some job was, alone
}

func (in *intake) read(ctx context.Context, r io.Reader) error {
	buffered := bufio.NewReaderSize(r, 64<<10)
	for line := 1; ; line++ {
		text, err := readLine(buffered)
		if len(strings.TrimSpace(string(text))) > 0 {
			job, bad := parseLine(text, in.model)
			if bad != nil {
				return in.stop(ctx, line, bad)
			}
			in.jobs = append(in.jobs, job)
			in.lines = append(in.lines, line)
		}
		if err != nil && err != io.EOF {
			return in.stop(ctx, line, err)
		}
		// What is there is sent before more is waited for.
		if err == io.EOF || len(in.jobs) == batch || !lineReady(buffered) {
			if failed := in.flush(ctx); failed != nil {
				return failed
			}
		}
		if err == io.EOF {
			break
		}
	}
	if in.refused {
		return told(exitFailure)
	}
	return nil
}

// stop ends at a bad line: what was read before is enqueued.
func (in *intake) stop(ctx context.Context, line int, bad error) error {
	if err := in.flush(ctx); err != nil {
		return err
	}
	return in.failed(line, bad)
}

func (in *intake) failed(line int, err error) error {
	code := exitFailure
	if lostServer(err) || errors.Is(err, queue.ErrUnavailable) {
		code = exitUnreachable
	}
	return &exitError{code, fmt.Errorf("line %d: %s; enqueued before it: %d", line, errorText(err), in.sent)}
}

// refusedAlone: the answer is about that job and no other.
func refusedAlone(err error) bool {
	return errors.Is(err, queue.ErrDuplicate) || errors.Is(err, queue.ErrTooHeavy)
}

// flush sends the jobs read so far. When one of them is refused as it is, those before it are sent all the same.
func (in *intake) flush(ctx context.Context) error {
	if len(in.jobs) == 0 {
		return nil
	}
	answers, err := in.q.EnqueueMany(ctx, in.jobs)
	var refused *queue.IndexError
	if errors.As(err, &refused) {
		bad := in.lines[refused.Index]
		in.jobs, in.lines = in.jobs[:refused.Index], in.lines[:refused.Index]
		return in.stop(ctx, bad, refused.Err)
	}
	var ids strings.Builder
	for i, answer := range answers {
		switch {
		case answer.Err == nil:
			in.sent++
			fmt.Fprintln(&ids, answer.ID)
		case refusedAlone(answer.Err):
			in.refused = true
			fmt.Fprintf(in.errors, "emqworker: line %d: %s\n", in.lines[i], errorText(answer.Err))
		}
	}
	if _, writing := io.WriteString(in.out, ids.String()); writing != nil {
		return writing
	}
	for i, answer := range answers {
		if answer.Err != nil && !refusedAlone(answer.Err) {
			return in.failed(in.lines[i], answer.Err)
		}
	}
	if err != nil {
		return in.failed(in.lines[0], err)
	}
	in.jobs, in.lines = in.jobs[:0], in.lines[:0]
	return nil
}
