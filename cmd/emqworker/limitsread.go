package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

// limitsJSON is what limits ls --json prints.
type limitsJSON struct {
	Queue  string        `json:"queue"`
	AtMS   int64         `json:"at_ms"`
	Paused bool          `json:"paused"`
	Limits []limitJSON   `json:"limits"`
	Closed []closureJSON `json:"closed"`
}

type limitJSON struct {
	Name string `json:"name"` // "": the queue's own
	namedRuleJSON
	Refused     int64        `json:"refused"`       // a shadow: what it would have refused
	Waiting     int64        `json:"waiting"`       // jobs that it sent back
	Lines       int64        `json:"lines"`         // key values with jobs waiting
	ChangedAtMS int64        `json:"changed_at_ms"` // 0: by another runtime
	Reason      string       `json:"reason"`
	Buckets     []bucketJSON `json:"buckets"`
}

type bucketJSON struct {
	Value        string `json:"value"` // the key value
	Max          int64  `json:"max"`   // 0: no limit
	WindowMS     int64  `json:"window_ms"`
	Burst        int64  `json:"burst"`
	Used         int64  `json:"used"`
	Remaining    int64  `json:"remaining"` // -1: no limit
	RetryAfterMS int64  `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	Waiting      int64  `json:"waiting"`
}

type closureJSON struct {
	Key     string `json:"key"` // "": the queue
	Value   string `json:"value"`
	UntilMS int64  `json:"until_ms"`
	Reason  string `json:"reason"`
	Waiting int64  `json:"waiting"`
}

func limitOf(l metrics.Limit) limitJSON {
	out := limitJSON{
		Name: l.Name, namedRuleJSON: namedRuleJSON{string(l.Algorithm), l.Max, l.Window.Milliseconds(), l.Burst, l.By, l.Unit, l.Shadow},
		Refused: l.Refused, Waiting: l.Waiting, Lines: l.Lines, ChangedAtMS: ms(l.ChangedAt), Reason: l.Reason, Buckets: []bucketJSON{},
	}
	for _, b := range l.Buckets {
		out.Buckets = append(out.Buckets, bucketJSON{b.Value, b.Max, b.Window.Milliseconds(), b.Burst, b.Used, b.Remaining,
			b.RetryAfter.Milliseconds(), b.ResetAfter.Milliseconds(), b.Waiting})
	}
	return out
}

func newLimitsList(a *app) *cobra.Command {
	var asJSON bool
	var top int
	cmd := &cobra.Command{
		Use:     "ls QUEUE [NAME]",
		Short:   "List the limits of a queue, what remains, and what is closed",
		Example: "  emqworker limits ls llm --top 3",
		Args:    arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			all, err := metrics.Budgets(cmd.Context(), client, args[0], top)
			if err != nil {
				return err
			}
			if len(args) == 2 {
				var names []string
				for _, l := range all.Limits {
					if l.Name != "" {
						names = append(names, l.Name)
					}
				}
				if !slices.Contains(names, args[1]) {
					return noLimit(args[0], args[1], names)
				}
				all.Limits = slices.DeleteFunc(all.Limits, func(l metrics.Limit) bool { return l.Name != args[1] })
			}
			if asJSON {
				out := limitsJSON{Queue: args[0], AtMS: ms(all.At), Paused: all.Paused, Limits: []limitJSON{}, Closed: []closureJSON{}}
				for _, l := range all.Limits {
					out.Limits = append(out.Limits, limitOf(l))
				}
				for _, c := range all.Closed {
					out.Closed = append(out.Closed, closureJSON{c.Key, c.Value, ms(c.Until), c.Reason, c.Waiting})
				}
				return printJSON(cmd.OutOrStdout(), out)
			}
			return printLimits(cmd, args[0], all)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&top, "top", 0, "of limits by key, how many key values with most jobs waiting to show")
	return cmd
}

func printLimits(cmd *cobra.Command, name string, all metrics.All) error {
	if len(all.Limits) == 0 && len(all.Closed) == 0 {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), name+": unlimited"); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tALGORITHM\tLIMIT\tBY\tUNIT\tUSED\tREMAINING\tRETRY AFTER\tRESET AFTER\tWAITING\tNOTE")
	for _, l := range all.Limits {
		title := l.Name
		if title == "" {
			title = "(queue)"
		}
		var notes []string
		if l.Shadow {
			notes = append(notes, fmt.Sprintf("shadow: would have refused %d", l.Refused))
		}
		if l.Reason != "" {
			notes = append(notes, printable(l.Reason, true))
		}
		row := func(title, algorithm string, rule limiter.Limit, b *metrics.Bucket, waiting int64, note string) {
			used, remaining, retry, reset := "-", "-", "-", "-"
			if b != nil {
				used, remaining, retry, reset = fmt.Sprint(b.Used), fmt.Sprint(b.Remaining), short(b.RetryAfter), short(b.ResetAfter)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", title, algorithm, rateText(rule), orDash(l.By), orDash(l.Unit), used, remaining, retry, reset, waiting, note)
		}
		note := strings.Join(notes, ", ")
		if l.By == "" {
			row(title, string(l.Algorithm), l.Limit, &l.Buckets[0], l.Waiting, note)
			continue
		}
		row(title, string(l.Algorithm), l.Limit, nil, l.Waiting, note)
		for i := range l.Buckets {
			b := &l.Buckets[i]
			row("  "+printable(b.Value, true), "", limiter.Limit{Algorithm: l.Algorithm, Max: b.Max, Window: b.Window, Burst: b.Burst}, b, b.Waiting, "")
		}
	}
	if len(all.Limits) > 0 {
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for _, c := range all.Closed {
		what := "queue"
		if c.Key != "" {
			what = c.Key + "=" + printable(c.Value, true)
		}
		clock := "15:04:05"
		if c.Until.Sub(all.At) > 12*time.Hour {
			clock = "2006-01-02 15:04:05"
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "closed: %s until %s, %d waiting%s\n", what, c.Until.Format(clock), c.Waiting, reasonText(c.Reason)); err != nil {
			return err
		}
	}
	if all.Paused {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "paused: nothing is let through until queue resume%s\n", reasonText(all.PauseReason))
		return err
	}
	return nil
}

func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + printable(reason, true) + ")"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// rateText is a rule without its algorithm.
func rateText(l limiter.Limit) string {
	if l.Algorithm == queue.Concurrency && l.Max > 0 {
		return fmt.Sprint(l.Max)
	}
	l.Algorithm = ""
	return l.String()
}

// getNamed shows one limit by name.
func getNamed(cmd *cobra.Command, client valkey.Client, name, limit string, keys []string, top int, asJSON bool) error {
	q, err := queue.New(client, name, queue.Options{})
	if err != nil {
		return err
	}
	is, err := named(cmd.Context(), q, limit)
	if err != nil {
		return err
	}
	values, err := keyValues(cmd, limit, is.By, keys)
	if err != nil {
		return err
	}
	var also []metrics.KeyValue
	for _, value := range values {
		also = append(also, metrics.KeyValue{Limit: limit, Value: value})
	}
	all, err := metrics.Budgets(cmd.Context(), client, name, top, also...)
	if err != nil {
		return err
	}
	all.Limits = slices.DeleteFunc(all.Limits, func(l metrics.Limit) bool { return l.Name != limit })
	all.Closed = nil
	if asJSON && len(all.Limits) == 1 {
		return printJSON(cmd.OutOrStdout(), struct {
			Queue string `json:"queue"`
			AtMS  int64  `json:"at_ms"`
			limitJSON
		}{name, ms(all.At), limitOf(all.Limits[0])})
	}
	return printLimits(cmd, name, all)
}

func newLimitsCheck(a *app) *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use:   "check QUEUE [NAME]",
		Short: "Say whether a job would be let through now: exit code 0, or 5 with the ms until then on standard output",
		Long: `Say whether one more job would be let through now. It would: it prints 0 and exits with 0. It would not: it prints the ms until then
and exits with 5.

Without NAME it asks the queue: what is closed or paused for all jobs, its own limit, and each limit that every job falls under. With
NAME it asks that limit for one unit, of the key value that --key gives, and whether the queue or that value is closed. While the
queue is paused it prints -1: nobody knows until when.`,
		Example: `  emqworker limits check mail || echo later
  emqworker limits check llm tpm --key model=x`,
		Args: arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			wait, err := checkLimits(cmd, client, args, keys)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), wait.Milliseconds()); err != nil {
				return err
			}
			if wait != 0 {
				return told(exitLimited)
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "the key value that is meant, as in model=x")
	return cmd
}

// checkLimits is how long until one more job is let through.
func checkLimits(cmd *cobra.Command, client valkey.Client, args, keys []string) (wait time.Duration, err error) {
	name := args[0]
	if len(args) == 1 && len(keys) > 0 {
		return 0, usage("limits check: --key is for a limit by NAME")
	}
	var also []metrics.KeyValue
	by, value := "", ""
	if len(args) == 2 {
		q, err := queue.New(client, name, queue.Options{})
		if err != nil {
			return 0, err
		}
		limit, err := named(cmd.Context(), q, args[1])
		if err != nil {
			return 0, err
		}
		values, err := keyValues(cmd, limit.Name, limit.By, keys)
		switch {
		case err != nil:
			return 0, err
		case limit.By != "" && len(values) != 1:
			return 0, usage("limits check: limit %s goes by %s; want one --key %s=…", limit.Name, limit.By, limit.By)
		case limit.By != "":
			by, value = limit.By, values[0]
			also = []metrics.KeyValue{{Limit: limit.Name, Value: value}}
		}
	}
	all, err := metrics.Budgets(cmd.Context(), client, name, 0, also...)
	if err != nil {
		return 0, err
	}
	if all.Paused {
		return -time.Millisecond, nil
	}
	for _, c := range all.Closed {
		if c.Key == "" || c.Key == by && c.Value == value {
			wait = max(wait, c.Until.Sub(all.At))
		}
	}
	for _, l := range all.Limits {
		meant := l.By == "" && l.Unit == ""
		if len(args) == 2 {
			meant = l.Name == args[1]
		}
		if meant && !l.Shadow && len(l.Buckets) > 0 {
			wait = max(wait, l.Buckets[0].RetryAfter)
		}
	}
	return wait, nil
}
