package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/queue"
)

func newQueue(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "List, pause, resume and drain queues",
		Example: `  emqworker queue ls
  emqworker queue pause mail --reason "provider is down"
  emqworker queue resume mail
  emqworker queue drain mail --confirm=mail`,
	}
	cmd.AddCommand(newQueueList(a), newQueuePause(a), newQueueResume(a), newQueueDrain(a))
	return cmd
}

type queueJSON struct {
	Queue  string `json:"queue"`
	Paused bool   `json:"paused"`
}

func newQueueList(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the known queues: those that something was enqueued to",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			names, err := queue.Names(cmd.Context(), client)
			if err != nil {
				return err
			}
			slices.Sort(names)
			all := []queueJSON{}
			for _, name := range names {
				q, err := queue.New(client, name, queue.Options{})
				if err != nil {
					return err
				}
				n, err := q.Counts(cmd.Context())
				if err != nil {
					return err
				}
				all = append(all, queueJSON{name, n.Paused})
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), all)
			}
			for _, q := range all {
				paused := ""
				if q.Paused {
					paused = "  paused"
				}
				fmt.Fprintln(cmd.OutOrStdout(), q.Queue+paused)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newQueuePause(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "pause QUEUE",
		Short:   "Hand out no jobs until resume; running jobs go on",
		Example: `  emqworker queue pause mail --reason "provider is down"`,
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withQueue(a, cmd, args[0], func(q *queue.Queue) error {
				was, err := q.Pause(cmd.Context(), reason)
				return saySwitch(cmd, err, q.Name(), "paused", was, "running")
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept while it is paused")
	return cmd
}

func newQueueResume(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "resume QUEUE",
		Short:   "Hand out jobs again",
		Example: "  emqworker queue resume mail",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withQueue(a, cmd, args[0], func(q *queue.Queue) error {
				was, err := q.Resume(cmd.Context(), "")
				return saySwitch(cmd, err, q.Name(), "running", !was, "paused")
			})
		},
	}
}

// saySwitch says what the queue is, and what it was.
func saySwitch(cmd *cobra.Command, err error, name, now string, already bool, before string) error {
	if err != nil {
		return err
	}
	if already {
		before = now
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, was %s\n", name, now, before)
	return err
}

func newQueueDrain(a *app) *cobra.Command {
	var delayed bool
	var confirm string
	cmd := &cobra.Command{
		Use:     "drain QUEUE --confirm=QUEUE",
		Short:   "Delete all waiting jobs, and those that the limit sent back",
		Example: "  emqworker queue drain mail --confirm=mail --delayed",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if confirm != args[0] {
				return usage("queue drain deletes jobs for good; say --confirm=%s if you mean it", args[0])
			}
			return withQueue(a, cmd, args[0], func(q *queue.Queue) error {
				n, err := q.Drain(cmd.Context(), delayed)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d jobs deleted\n", q.Name(), n)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&delayed, "delayed", false, "delete delayed jobs too")
	cmd.Flags().StringVar(&confirm, "confirm", "", "the queue's name again")
	return cmd
}

// withQueue connects, does something with a queue and closes the connection.
func withQueue(a *app, cmd *cobra.Command, name string, do func(*queue.Queue) error) error {
	if err := lua.CheckName("queue name", name); err != nil {
		return err
	}
	client, err := a.connect(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	q, err := queue.New(client, name, queue.Options{})
	if err != nil {
		return err
	}
	return do(q)
}
