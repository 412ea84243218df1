package main

import (
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/internal/doctor"
	"github.com/echomq/emq/queue"
)

func newDoctor(a *app) *cobra.Command {
	var all, asJSON, fix, strict bool
	cmd := &cobra.Command{
		Use:   "doctor [QUEUE…]",
		Short: "Look at a server and at queues, and say what is wrong and what to do about it",
		Long: `Look at the server - version and known flaws, persistence, eviction, memory, clients, clock, cluster - and at the queues named, or
with --all at all known ones: layout, settings that no claim obeys, what the user of the connection may do, counters without a time to
live, jobs that stand nowhere or whose record is gone, lines that are not looked at or counted wrong, places of concurrency limits that
no job has, an audit stream left on, workers of different versions.

The exit code is 1 if something is wrong, with --strict also for warnings. Nothing is changed unless --fix is given; without it doctor
shows what it would do. What the user may not look at is "unseen", not wrong.

With --json it prints an array of {check, level, queue, finding, what_to_do}; level is ok, unseen, warning, wrong or mended.`,
		Example: `  emqworker doctor
  emqworker doctor mail --json
  emqworker doctor --all --fix`,
		DisableFlagsInUseLine: true,
		Args:                  arguments(0, -1),
		RunE: func(cmd *cobra.Command, names []string) error {
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			if all {
				if names, err = queue.Names(cmd.Context(), client); err != nil {
					return err
				}
				slices.Sort(names)
			}
			d := doctor.Doctor{Client: client, Fix: fix}
			findings, err := d.Examine(cmd.Context(), names)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), findings)
			} else {
				err = printFindings(cmd, findings)
			}
			if err != nil {
				return err
			}
			for _, f := range findings {
				if f.Level == doctor.Wrong || strict && f.Level == doctor.Warning {
					return told(exitFailure)
				}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "look at all known queues")
	flags.BoolVar(&fix, "fix", false, "mend what can be mended")
	flags.BoolVar(&strict, "strict", false, "exit with 1 for warnings too")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printFindings(cmd *cobra.Command, findings []doctor.Finding) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, f := range findings {
		what := f.Check
		if f.Queue != "" {
			what = f.Queue + ": " + what
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Level, what, f.Finding)
		if f.Do != "" {
			fmt.Fprintf(table, "\t\t  -> %s\n", f.Do)
		}
	}
	return table.Flush()
}
