package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

func newLimits(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Look at, set and lift the limits of a queue; close and reopen it",
		Long: `Look at, set and lift the limits of a queue; close and reopen it.

A queue has one limit of its own, and any number by NAME: each job is handed out only when all that it falls under let it
through. A limit belongs to one queue, whose keys share a slot of a cluster.`,
		Example: `  emqworker limits set mail 100/1m --reason "provider's plan"
  emqworker limits set llm tpm 90000/1m --by model --unit tokens --algorithm token_bucket --override model=x:500/1m
  emqworker limits ls llm
  emqworker limits close llm --key model=x --for 30s --reason 429`,
	}
	cmd.AddCommand(newLimitsList(a), newLimitsGet(a), newLimitsSet(a), newLimitsUnset(a), newLimitsReset(a), newLimitsCheck(a),
		newLimitsClose(a), newLimitsReopen(a))
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

// named is a limit by name as it is set.
func named(ctx context.Context, q *queue.Queue, name string) (queue.NamedLimit, error) {
	if err := lua.CheckName("limit name", name); err != nil {
		return queue.NamedLimit{}, err
	}
	limits, err := q.NamedLimits(ctx)
	if err != nil {
		return queue.NamedLimit{}, err
	}
	var names []string
	for _, limit := range limits {
		if limit.Name == name {
			return limit, nil
		}
		names = append(names, limit.Name)
	}
	return queue.NamedLimit{}, noLimit(q.Name(), name, names)
}

// noLimit says which limits by name there are in place of the one that was asked for.
func noLimit(queueName, name string, names []string) error {
	there := "it has none by name"
	if len(names) > 0 {
		there = "it has " + strings.Join(names, ", ")
	}
	return fmt.Errorf("limit %s: %w in queue %s; %s", name, queue.ErrNoLimit, queueName, there)
}

func newLimitsGet(a *app) *cobra.Command {
	var asJSON bool
	var keys []string
	var top int
	cmd := &cobra.Command{
		Use:   "get QUEUE [NAME]",
		Short: "Show a limit, what is used and what remains",
		Long: `Show the queue's own limit, or the one of that NAME: what is used and what remains. Of a limit by key it shows the key values
given by --key, and those with most jobs waiting.`,
		Example: `  emqworker limits get mail --json
  emqworker limits get llm tpm --key model=x`,
		Args: arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			if len(args) == 2 {
				return getNamed(cmd, client, args[0], args[1], keys, top, asJSON)
			}
			if len(keys) > 0 {
				return usage("limits get: --key is for a limit by NAME; the queue's own has no keys")
			}
			return getOwn(cmd, client, args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringArrayVar(&keys, "key", nil, "a key value to show, as in model=x (repeatable)")
	cmd.Flags().IntVar(&top, "top", 10, "how many key values with most jobs waiting to show")
	return cmd
}

func getOwn(cmd *cobra.Command, client valkey.Client, name string, asJSON bool) error {
	b, err := metrics.ReadBudget(cmd.Context(), client, name)
	switch {
	case broken(err) && asJSON:
		if err := printJSON(cmd.OutOrStdout(), brokenJSON{name, errorText(err)}); err != nil {
			return err
		}
		return err
	case err != nil:
		return err
	case asJSON:
		return printJSON(cmd.OutOrStdout(), budgetJSON{
			Queue: name, Configured: b.Configured, Algorithm: string(b.Algorithm), Burst: b.Burst, Max: b.Max, WindowMS: b.Window.Milliseconds(), Used: b.Used,
			Remaining: b.Remaining, ResetAfterMS: b.ResetAfter.Milliseconds(), RetryAfterMS: b.RetryAfter.Milliseconds(),
			Limited: b.Limited, Paused: b.Paused, AtMS: ms(b.At),
		})
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), budgetText(name, b))
	return err
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
