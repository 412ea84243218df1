package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/metrics"
)

// explainJSON is what job explain --json prints.
type explainJSON struct {
	Queue        string    `json:"queue"`
	ID           string    `json:"id"`
	AtMS         int64     `json:"at_ms"`
	State        string    `json:"state"`
	Text         string    `json:"text"`
	UntilMS      int64     `json:"until_ms"` // 0: not known
	Paused       bool      `json:"paused"`
	Blocked      bool      `json:"blocked"`
	By           string    `json:"by"` // "": nothing
	RetryAfterMS int64     `json:"retry_after_ms"`
	Never        bool      `json:"never"`
	Ahead        int64     `json:"ahead"` // -1: not known
	Asks         []askJSON `json:"asks"`
}

type askJSON struct {
	Of           string `json:"of"`
	Unit         string `json:"unit"` // "": each job spends 1
	Cost         int64  `json:"cost"`
	Remaining    int64  `json:"remaining"`      // -1: no limit
	RetryAfterMS int64  `json:"retry_after_ms"` // -1: never
	Ahead        int64  `json:"ahead"`
	Held         int64  `json:"held"`
}

func newJobExplain(a *app, flag *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "explain QUEUE ID",
		Short:   "Say why a job waits: behind what, how many, until when",
		Example: "  emqworker job explain llm report-7",
		Args:    arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, ids, err := queueAndIDs(cmd, *flag, args)
			if err != nil {
				return err
			}
			if len(ids) != 1 {
				return usage("%s: %d ids given; want one", path(cmd), len(ids))
			}
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			e, err := metrics.Explain(cmd.Context(), client, name, ids[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), explained(name, ids[0], e))
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", ids[0], printable(e.String(), true)); err != nil || len(e.Asks) == 0 {
				return err
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "ASKS OF\tCOST\tREMAINING\tRETRY AFTER\tAHEAD\tHELD")
			for _, ask := range e.Asks {
				cost := fmt.Sprint(ask.Cost)
				if ask.Unit != "" {
					cost += " " + ask.Unit
				}
				retry := "never"
				if ask.RetryAfter >= 0 {
					retry = short(ask.RetryAfter)
				}
				fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d\t%d\n", printable(ask.Of.String(), true), cost, ask.Remaining, retry, ask.Ahead, ask.Held)
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func explained(name, id string, e metrics.Explanation) explainJSON {
	out := explainJSON{
		Queue: name, ID: id, AtMS: ms(e.At), State: e.State, Text: e.String(), UntilMS: ms(e.Until), Paused: e.Paused, Blocked: e.Blocked,
		RetryAfterMS: e.RetryAfter.Milliseconds(), Never: e.Never, Ahead: e.Ahead, Asks: []askJSON{},
	}
	if e.Blocked || e.Never {
		out.By = e.By.String()
	}
	for _, ask := range e.Asks {
		retry := ask.RetryAfter.Milliseconds()
		if ask.RetryAfter < 0 {
			retry = -1
		}
		out.Asks = append(out.Asks, askJSON{ask.Of.String(), ask.Unit, ask.Cost, ask.Remaining, retry, ask.Ahead, ask.Held})
	}
	return out
}
