package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

func newLimits(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Look at, set and lift the limit of a queue",
		Example: `  emqworker limits set mail 100/1m --reason "provider's plan"
  emqworker limits get mail
  emqworker limits unset mail`,
	}
	cmd.AddCommand(newLimitsGet(a), newLimitsSet(a), newLimitsUnset(a), newLimitsReset(a))
	return cmd
}

// budgetJSON is what limits get --json prints.
type budgetJSON struct {
	Queue        string `json:"queue"`
	Configured   bool   `json:"configured"` // false: no limit
	Algorithm    string `json:"algorithm"`  // "" without limit
	Burst        int64  `json:"burst"`      // 0: its default
	Max          int64  `json:"max"`
	WindowMS     int64  `json:"window_ms"`
	Used         int64  `json:"used"`
	Remaining    int64  `json:"remaining"`      // -1: no limit
	ResetAfterMS int64  `json:"reset_after_ms"` // until the running window ends
	RetryAfterMS int64  `json:"retry_after_ms"` // until one more job is let through
	Limited      bool   `json:"limited"`        // the limit refuses now, whether or not jobs wait
	Paused       bool   `json:"paused"`
	AtMS         int64  `json:"at_ms"`
}

// brokenJSON stands in for a queue whose settings no claim obeys.
type brokenJSON struct {
	Queue  string `json:"queue"`
	Broken string `json:"broken"`
}

// broken: the queue is set up in a way that no claim obeys.
func broken(err error) bool {
	var config *lua.ConfigError
	var corrupt *lua.CorruptError
	return errors.As(err, &config) || errors.As(err, &corrupt)
}

func newLimitsGet(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "get QUEUE",
		Short:   "Show the limit, what is used and what remains",
		Example: "  emqworker limits get mail --json",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			b, err := metrics.ReadBudget(cmd.Context(), client, args[0])
			switch {
			case broken(err) && asJSON:
				if err := printJSON(cmd.OutOrStdout(), brokenJSON{args[0], errorText(err)}); err != nil {
					return err
				}
				return err
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), budgetJSON{
					Queue: args[0], Configured: b.Configured, Algorithm: string(b.Algorithm), Burst: b.Burst, Max: b.Max, WindowMS: b.Window.Milliseconds(), Used: b.Used,
					Remaining: b.Remaining, ResetAfterMS: b.ResetAfter.Milliseconds(), RetryAfterMS: b.RetryAfter.Milliseconds(),
					Limited: b.Limited, Paused: b.Paused, AtMS: ms(b.At),
				})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), budgetText(args[0], b))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func budgetText(name string, b metrics.Budget) string {
	parts := []string{name + ": " + limiter.Limit{Algorithm: b.Algorithm, Max: b.Max, Window: b.Window, Burst: b.Burst}.String()}
	if b.Configured {
		parts = append(parts, fmt.Sprintf("%d used, %d remaining", b.Used, b.Remaining))
	}
	if b.ResetAfter > 0 {
		what := "whole again in "
		if b.Algorithm == limiter.FixedWindow {
			what = "window ends in "
		}
		parts = append(parts, what+short(b.ResetAfter))
	}
	if b.Limited {
		parts = append(parts, "refuses now")
	}
	if b.Paused {
		parts = append(parts, "paused")
	}
	return strings.Join(parts, ", ")
}

// changeJSON is what limits set and unset print with --json. A max of 0 is no limit.
type changeJSON struct {
	Queue       string `json:"queue"`
	Max         int64  `json:"max"`
	WindowMS    int64  `json:"window_ms"`
	WasMax      int64  `json:"was_max"`
	WasWindowMS int64  `json:"was_window_ms"`
}

func newLimitsSet(a *app) *cobra.Command {
	var reason, algorithm string
	var burst int64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set QUEUE MAX/WINDOW",
		Short: "Set the limit that all workers of the queue share",
		Long: `Set the limit that all workers of the queue share: at most MAX jobs in each WINDOW, as the algorithm counts them.
The usual one is fixed_window, whose window opens with its first job. Options left out when a limit is set keep their
values. What was used stays used; what is allowed changes with the next claim; another algorithm starts whole.`,
		Example: `  emqworker limits set mail 100/1m --reason "provider's plan"
  emqworker limits set llm 3/s --algorithm token_bucket --burst 10`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			limit, err := limiter.Parse(args[1])
			if err != nil {
				return err
			}
			limit.Algorithm, limit.Burst = limiter.Algorithm(algorithm), burst
			return change(a, cmd, args[0], asJSON, func(q *queue.Queue) (limiter.Limit, error) {
				return q.SetLimit(cmd.Context(), limit, reason)
			})
		},
	}
	cmd.Flags().StringVar(&algorithm, "algorithm", "", "fixed_window, sliding_log, sliding_window_counter, token_bucket or leaky_bucket")
	cmd.Flags().Int64Var(&burst, "burst", 0, "how many jobs a token_bucket lets through at once (default: MAX)")
	changeFlags(cmd, &reason, &asJSON)
	return cmd
}

func newLimitsReset(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "reset QUEUE",
		Short:   "Make the budget whole at once; heals a counter that holds what it should not",
		Example: "  emqworker limits reset mail",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withQueue(a, cmd, args[0], func(q *queue.Queue) error {
				if err := q.ResetLimit(cmd.Context(), reason); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: the budget is whole\n", args[0])
				return err
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept beside the limit")
	return cmd
}

func newLimitsUnset(a *app) *cobra.Command {
	var reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "unset QUEUE",
		Short:   "Lift the limit",
		Example: "  emqworker limits unset mail",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return change(a, cmd, args[0], asJSON, func(q *queue.Queue) (limiter.Limit, error) {
				return q.LiftLimit(cmd.Context(), reason)
			})
		},
	}
	changeFlags(cmd, &reason, &asJSON)
	return cmd
}

func changeFlags(cmd *cobra.Command, reason *string, asJSON *bool) {
	cmd.Flags().StringVar(reason, "reason", "", "why; kept beside the limit")
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

// change makes a change to the limit and says what it is and was.
func change(a *app, cmd *cobra.Command, name string, asJSON bool, do func(*queue.Queue) (limiter.Limit, error)) error {
	return withQueue(a, cmd, name, func(q *queue.Queue) error {
		was, err := do(q)
		if err != nil {
			return err
		}
		now, err := q.Limit(cmd.Context())
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), changeJSON{name, now.Max, now.Window.Milliseconds(), was.Max, was.Window.Milliseconds()})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, was %s\n", name, now, was)
		return err
	})
}
