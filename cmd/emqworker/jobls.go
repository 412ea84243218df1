package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/queue"
)

// states in the order in which job ls lists them: what runs, what runs next, what is over.
var states = []queue.State{queue.Active, queue.Wait, queue.Delayed, queue.Dead, queue.Completed}

const listPage = 1000 // jobs of one read

func newJobList(a *app, flag *string) *cobra.Command {
	var state string
	var limit, offset int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls QUEUE",
		Short: "List jobs: those that wait in the order of their claims, others by time",
		Long: `List the jobs in a state, or in all states, the active ones first: those that wait in the order in which they are claimed,
others by the time that goes with their state. With --json it prints an array; payloads above about 16 KB are cut, job get has
them whole.`,
		Example: `  emqworker job ls mail
  emqworker job ls mail --state dead --limit 20 --json`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, rest, err := queueAndIDs(cmd, *flag, args)
			if err != nil {
				return err
			}
			which := states
			if state != "" {
				which = []queue.State{queue.State(state)}
			}
			switch {
			case len(rest) > 0:
				return usage("job ls: the queue is given twice, by -q and as %s", rest[0])
			case !knownState(which[0]):
				return usage("job ls: --state is %q; want wait, active, delayed, dead or completed", state)
			case limit < 1 || offset < 0:
				return usage("job ls: want a --limit of 1 or more and an --offset of 0 or more")
			}
			return withQueue(a, cmd, name, func(q *queue.Queue) error {
				jobs, err := list(cmd, q, which, offset, limit)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), jobs)
				}
				return printJobs(cmd, jobs)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&state, "state", "", "only this state: wait, active, delayed, dead or completed")
	flags.IntVar(&limit, "limit", 100, "at most so many")
	flags.IntVar(&offset, "offset", 0, "leave out so many before them")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func knownState(s queue.State) bool {
	for _, known := range states {
		if s == known {
			return true
		}
	}
	return false
}

// list reads jobs of several states as if they stood in one row.
func list(cmd *cobra.Command, q *queue.Queue, which []queue.State, offset, limit int) ([]jobJSON, error) {
	n, err := q.Counts(cmd.Context())
	if err != nil {
		return nil, err
	}
	counts := map[queue.State]int64{
		queue.Wait: n.Wait, queue.Active: n.Active, queue.Delayed: n.Delayed, queue.Dead: n.Dead, queue.Completed: n.Completed,
	}
	jobs := []jobJSON{}
	for _, state := range which {
		if skipped := min(int64(offset), counts[state]); skipped == counts[state] {
			offset -= int(skipped)
			continue
		}
		for len(jobs) < limit {
			page, err := q.List(cmd.Context(), state, offset, min(limit-len(jobs), listPage))
			if err != nil {
				return nil, err
			}
			for _, s := range page {
				jobs = append(jobs, describe(q.Name(), s))
			}
			if len(page) < listPage {
				break
			}
			offset += len(page)
		}
		offset = 0
	}
	return jobs, nil
}

func printJobs(cmd *cobra.Command, jobs []jobJSON) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tNAME\tSTATE\tATTEMPTS\tWHEN\tPAYLOAD")
	for _, j := range jobs {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d of %d\t%s\t%s\n", j.ID, j.Name, j.State, j.Attempts, j.MaxAttempts, whenText(j),
			beginning(printable(j.Payload, true)))
	}
	return table.Flush()
}

// whenText is the time that goes with the job's state, and what it means.
func whenText(j jobJSON) string {
	switch j.State {
	case queue.Delayed:
		return fmt.Sprintf("due %s (%s)", clock(j.DueMS), cmp.Or(printable(j.Line, j.Line != ""), string(j.DelayedBy)))
	case queue.Active:
		return "lease until " + clock(j.LeaseEndMS)
	case queue.Dead:
		return fmt.Sprintf("died %s (%s)", clock(j.DiedMS), j.Reason)
	case queue.Completed:
		return "kept until " + clock(j.KeptUntilMS)
	}
	return "since " + clock(j.EnqueuedMS)
}

func beginning(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// lineText names the line that a job stands in; "" for none.
func lineText(b *queue.Blocker) string {
	switch {
	case b == nil:
		return ""
	case b.Closed:
		return "closed " + b.Key + "=" + b.Value
	case b.Value == "":
		return "limit " + b.Limit
	}
	return "limit " + b.Limit + " for " + b.Value
}
