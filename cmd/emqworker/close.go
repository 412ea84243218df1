package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

func newLimitsClose(a *app) *cobra.Command {
	var key, until, reason string
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "close QUEUE",
		Short: "Hand out no jobs until a time, or none of a key value",
		Long: `Hand out no jobs of the queue until a time, or with --key none that have that key value: what they call wants no more (429).
Running jobs go on, jobs keep their order, and no attempt is spent. A close never ends earlier than one before it.`,
		Example: `  emqworker limits close llm --for 30s --reason "429 from the provider"
  emqworker limits close llm --key model=x --until 2030-01-02T15:04:05Z`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			byTime := cmd.Flags().Changed("until")
			if byTime == cmd.Flags().Changed("for") {
				return usage("limits close: want one of --for and --until")
			}
			at, bad := time.Parse(time.RFC3339, until)
			switch {
			case byTime && bad != nil:
				return usage("limits close: --until is %q; want a time as in 2030-01-02T15:04:05Z", until)
			case !byTime && length <= 0:
				return usage("limits close: --for is %v; want more than 0", length)
			}
			name, value, err := keyFlag(cmd, key)
			if err != nil {
				return err
			}
			return withQueue(a, cmd, args[0], func(q *queue.Queue) error {
				if byTime { // by the server's clock, not by this machine's
					n, err := q.Counts(cmd.Context())
					if err != nil {
						return err
					}
					if length = at.Sub(n.At); length <= 0 {
						return usage("limits close: --until is %q, which has passed", until)
					}
				}
				var end time.Time
				if name == "" {
					end, err = q.Close(cmd.Context(), length, reason)
				} else {
					end, err = q.CloseKey(cmd.Context(), name, value, length, reason)
				}
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: closed until %s\n", closedText(args[0], key), end.Format("2006-01-02T15:04:05.000Z07:00"))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "close only the jobs that have this key value, as in model=x")
	cmd.Flags().DurationVar(&length, "for", 0, "how long")
	cmd.Flags().StringVar(&until, "until", "", "until when (RFC 3339, as in 2030-01-02T15:04:05Z)")
	cmd.Flags().StringVar(&reason, "reason", "", "why; shown while it is closed")
	return cmd
}

func newLimitsReopen(a *app) *cobra.Command {
	var key, reason string
	cmd := &cobra.Command{
		Use:   "reopen QUEUE",
		Short: "End a close before its time",
		Example: `  emqworker limits reopen llm
  emqworker limits reopen llm --key model=x`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, value, err := keyFlag(cmd, key)
			if err != nil {
				return err
			}
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			q, err := queue.New(client, args[0], queue.Options{})
			if err != nil {
				return err
			}
			if name == "" {
				err = q.Reopen(cmd.Context(), reason)
			} else if err = closedBy(cmd.Context(), client, args[0], name); err == nil {
				err = q.ReopenKey(cmd.Context(), name, value, reason)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: open\n", closedText(args[0], key))
			return err
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "open the jobs that have this key value, as in model=x")
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}

// closedBy refuses a key name by which nothing is closed when something is by others. Opening what is open is no error.
func closedBy(ctx context.Context, client valkey.Client, name, key string) error {
	all, err := metrics.Budgets(ctx, client, name, 0)
	if broken(err) {
		return nil // a queue that is set up badly can be opened all the same
	}
	if err != nil {
		return err
	}
	by := map[string]bool{}
	for _, c := range all.Closed {
		if c.Key != "" {
			by[c.Key] = true
		}
	}
	if len(by) == 0 || by[key] || len(all.Closed) >= mostClosed {
		return nil
	}
	return &exitError{exitNotFound, fmt.Errorf("limits reopen: nothing of queue %s is closed by key %s; want one of %s", name, key,
		strings.Join(slices.Sorted(maps.Keys(by)), ", "))}
}

// mostClosed is how many closes are read at most; beyond it some may not be seen.
const mostClosed = 1000

func closedText(name, key string) string {
	if key == "" {
		return name
	}
	return name + " " + printable(key, true)
}

// keyFlag reads --key name=value; both are empty when it is not given.
func keyFlag(cmd *cobra.Command, key string) (name, value string, err error) {
	if !cmd.Flags().Changed("key") {
		return "", "", nil
	}
	name, value, ok := strings.Cut(key, "=")
	if !ok || name == "" {
		return "", "", usage("%s: --key is %q; want name=value", path(cmd), key)
	}
	return name, value, nil
}
