package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/queue"
)

// deadReasons are the reasons for which a job can be dead.
var deadReasons = []string{
	string(queue.ReasonAttempts), string(queue.ReasonLost), string(queue.ReasonDeadLettered), string(queue.ReasonMissing),
}

func newJobRun(a *app, flag *string) *cobra.Command {
	return &cobra.Command{
		Use:     "run QUEUE ID…",
		Short:   "Run delayed jobs now; limits still apply",
		Example: "  emqworker job run mail report-7",
		Args:    arguments(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, ids, err := queueAndIDs(cmd, *flag, args)
			if err != nil {
				return err
			}
			return withQueue(a, cmd, name, func(q *queue.Queue) error {
				return each(cmd, ids, "waits", q.RunNow)
			})
		},
	}
}

func newJobRedrive(a *app, flag *string) *cobra.Command {
	var all bool
	var reason string
	cmd := &cobra.Command{
		Use:   "redrive QUEUE (ID… | --all | --reason R)",
		Short: "Bring dead jobs back, with all their attempts",
		Example: `  emqworker job redrive mail report-7
  emqworker job redrive mail --all
  emqworker job redrive mail --reason attempts`,
		DisableFlagsInUseLine: true,
		Args:                  arguments(0, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := deadChange{all: all, allFlag: "--all", reason: reason, one: "waits", many: "redriven"}
			return c.run(a, cmd, *flag, args, (*queue.Queue).Redrive, (*queue.Queue).RedriveDead)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all dead jobs")
	cmd.Flags().StringVar(&reason, "reason", "", "all that are dead for this reason: "+strings.Join(deadReasons, ", "))
	return cmd
}

func newJobRemove(a *app, flag *string) *cobra.Command {
	var all bool
	var reason string
	cmd := &cobra.Command{
		Use:   "rm QUEUE (ID… | --all-dead | --reason R)",
		Short: "Delete jobs in any state but active",
		Example: `  emqworker job rm mail report-7
  emqworker job rm mail --reason dead_lettered`,
		DisableFlagsInUseLine: true,
		Args:                  arguments(0, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := deadChange{all: all, allFlag: "--all-dead", reason: reason, one: "deleted", many: "deleted"}
			return c.run(a, cmd, *flag, args, (*queue.Queue).Delete, (*queue.Queue).DeleteDead)
		},
	}
	cmd.Flags().BoolVar(&all, "all-dead", false, "all dead jobs")
	cmd.Flags().StringVar(&reason, "reason", "", "all that are dead for this reason: "+strings.Join(deadReasons, ", "))
	return cmd
}

// deadChange is a command that changes jobs by id, or all dead jobs, or those dead for a reason.
type deadChange struct {
	all       bool
	allFlag   string
	reason    string
	one, many string // what became of one job; of several
}

func (c deadChange) run(a *app, cmd *cobra.Command, flag string, args []string,
	byID func(*queue.Queue, context.Context, string) error,
	byReason func(*queue.Queue, context.Context, queue.Reason) (int64, error),
) error {
	name, ids, err := queueAndIDs(cmd, flag, args)
	if err != nil {
		return err
	}
	ways := 0
	for _, way := range []bool{len(ids) > 0, c.all, c.reason != ""} {
		if way {
			ways++
		}
	}
	switch {
	case ways != 1:
		return usage("%s: want one of: ids, %s, --reason", path(cmd), c.allFlag)
	case c.reason != "" && !slices.Contains(deadReasons, c.reason):
		return usage("%s: --reason is %q; want %s", path(cmd), c.reason, strings.Join(deadReasons, ", "))
	}
	return withQueue(a, cmd, name, func(q *queue.Queue) error {
		if len(ids) > 0 {
			return each(cmd, ids, c.one, func(ctx context.Context, id string) error { return byID(q, ctx, id) })
		}
		n, err := byReason(q, cmd.Context(), queue.Reason(c.reason))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d jobs %s\n", q.Name(), n, c.many)
		return err
	})
}

// each does something to each job and says what became of it. A job that is not there or in another state does not keep it
// from the others; the exit code tells.
func each(cmd *cobra.Command, ids []string, done string, do func(ctx context.Context, id string) error) error {
	if len(ids) == 0 {
		return usage("%s: which job? Want %s", path(cmd), cmd.UseLine())
	}
	code := 0
	for _, id := range ids {
		err := do(cmd.Context(), id)
		switch {
		case err == nil:
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", id, done)
		case errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrWrongState), errors.Is(err, queue.ErrBadName):
			note(cmd, "%s", errorText(err))
			code = exitCode(err)
		default:
			return err
		}
	}
	if code != 0 {
		return told(code)
	}
	return nil
}
