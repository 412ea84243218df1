package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

// statsJSON is one queue of stats --json.
type statsJSON struct {
	Queue        string `json:"queue"`
	AtMS         int64  `json:"at_ms"`
	Wait         int64  `json:"wait"`
	Active       int64  `json:"active"`
	Delayed      int64  `json:"delayed"`     // all …
	DelayedOwn   int64  `json:"delayed_own"` // … those that wait for a time of their own …
	SentBack     int64  `json:"sent_back"`   // … and those that the limit sent back
	Dead         int64  `json:"dead"`
	Completed    int64  `json:"completed"`
	Paused       bool   `json:"paused"`
	Limited      bool   `json:"limited"` // the limit refuses and jobs wait for it
	Max          int64  `json:"max"`     // 0: no limit
	WindowMS     int64  `json:"window_ms"`
	Used         int64  `json:"used"`
	Remaining    int64  `json:"remaining"` // -1: no limit
	ResetAfterMS int64  `json:"reset_after_ms"`
	Broken       string `json:"broken,omitempty"` // why no claim obeys the queue's settings
}

func newStats(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stats [QUEUE…]",
		Short: "Count the jobs of queues, and show what is left of their limits",
		Long: `Count the jobs of the queues named, or of all known queues, and show what is left of their limits.

A queue is limited when its limit refuses and jobs wait for it: not when it has no jobs, and not when all workers are busy.
With --json it prints an array.`,
		Example: `  emqworker stats
  emqworker stats mail --json`,
		DisableFlagsInUseLine: true,
		Args:                  arguments(0, -1),
		RunE: func(cmd *cobra.Command, names []string) error {
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			if len(names) == 0 {
				if names, err = queue.Names(cmd.Context(), client); err != nil {
					return err
				}
				slices.Sort(names)
			}
			all := []statsJSON{}
			for _, name := range names {
				s, err := readStats(cmd.Context(), client, name)
				if err != nil {
					return err
				}
				all = append(all, s)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), all)
			}
			return printStats(cmd, all)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func readStats(ctx context.Context, client valkey.Client, name string) (statsJSON, error) {
	q, err := queue.New(client, name, queue.Options{})
	if err != nil {
		return statsJSON{}, err
	}
	n, err := q.Counts(ctx)
	if err != nil {
		return statsJSON{}, err
	}
	s := statsJSON{
		Queue: name, AtMS: ms(n.At), Wait: n.Wait, Active: n.Active, Delayed: n.Delayed, DelayedOwn: n.Delayed - n.SentBack,
		SentBack: n.SentBack, Dead: n.Dead, Completed: n.Completed, Paused: n.Paused,
	}
	b, err := metrics.ReadBudget(ctx, client, name)
	switch {
	case broken(err):
		s.Broken = errorText(err)
	case err != nil:
		return statsJSON{}, err
	default:
		s.Max, s.WindowMS, s.Used, s.Remaining = b.Max, b.Window.Milliseconds(), b.Used, b.Remaining
		s.ResetAfterMS = b.ResetAfter.Milliseconds()
		s.Limited = b.Limited && n.Wait+n.SentBack > 0
	}
	return s, nil
}

func printStats(cmd *cobra.Command, all []statsJSON) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "QUEUE\tWAIT\tACTIVE\tDELAYED\tSENT BACK\tDEAD\tCOMPLETED\tLIMIT\tUSED\tREMAINING\tRESET\tSTATE")
	for _, s := range all {
		limit, used, remaining, reset := "none", "-", "-", "-"
		if s.Max > 0 {
			limit = limiter.Limit{Max: s.Max, Window: millis(s.WindowMS)}.String()
			used, remaining = strconv.FormatInt(s.Used, 10), strconv.FormatInt(s.Remaining, 10)
		}
		if s.ResetAfterMS > 0 {
			reset = short(millis(s.ResetAfterMS))
		}
		state := "open"
		switch {
		case s.Broken != "":
			state = "broken: " + s.Broken
		case s.Paused:
			state = "paused"
		case s.Limited:
			state = "limited"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", s.Queue, s.Wait, s.Active, s.DelayedOwn, s.SentBack,
			s.Dead, s.Completed, limit, used, remaining, reset, state)
	}
	return table.Flush()
}
