package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/queue"
)

func newJob(a *app) *cobra.Command {
	var name string // -q
	cmd := &cobra.Command{
		Use:   "job",
		Short: "Look at jobs, run, redrive and delete them",
		Long: `Look at jobs, run, redrive and delete them.

The queue is the first argument, or that of -q: then all arguments are ids.`,
		Example: `  emqworker job ls mail --state dead
  emqworker job get mail report-7 --json
  emqworker job redrive mail --all
  emqworker job rm -q mail report-7 report-8`,
	}
	cmd.PersistentFlags().StringVarP(&name, "queue", "q", "", "the queue, in place of the first argument")
	cmd.AddCommand(newJobGet(a, &name), newJobExplain(a, &name), newJobList(a, &name), newJobRun(a, &name), newJobRedrive(a, &name), newJobRemove(a, &name))
	return cmd
}

// queueAndIDs takes the queue from -q or the first argument.
func queueAndIDs(cmd *cobra.Command, flag string, args []string) (name string, ids []string, err error) {
	if flag != "" {
		return flag, args, nil
	}
	if len(args) == 0 {
		return "", nil, usage("%s: which queue? Want %s", path(cmd), cmd.UseLine())
	}
	return args[0], args[1:], nil
}

// jobJSON is one job of job get and job ls. Times are ms since 1970 by the server's clock, 0 when the state has none.
type jobJSON struct {
	ID            string            `json:"id"`
	Queue         string            `json:"queue"`
	Name          string            `json:"name"`
	State         queue.State       `json:"state"`
	Attempts      int               `json:"attempts"`
	MaxAttempts   int               `json:"max_attempts"`
	Deferrals     int               `json:"deferrals"`
	Reclaims      int               `json:"reclaims"`
	Priority      queue.Priority    `json:"priority"`
	EnqueuedMS    int64             `json:"enqueued_ms"`
	DueMS         int64             `json:"due_ms"`
	DelayedBy     queue.DelayedBy   `json:"delayed_by"`
	Line          string            `json:"line"` // "limit tpm for x": the line it stands in
	LeaseEndMS    int64             `json:"lease_end_ms"`
	DiedMS        int64             `json:"died_ms"`
	KeptUntilMS   int64             `json:"kept_until_ms"`
	Reason        queue.Reason      `json:"reason"`
	Error         string            `json:"error"`
	TimeoutMS     int64             `json:"timeout_ms"`
	StartByMS     int64             `json:"start_by_ms"`
	RetainMS      int64             `json:"retain_ms"`
	Keys          map[string]string `json:"keys"`
	Cost          map[string]int64  `json:"cost"`
	Payload       string            `json:"payload"`
	PayloadBase64 bool              `json:"payload_base64,omitempty"`
	Result        string            `json:"result"`
	ResultBase64  bool              `json:"result_base64,omitempty"`
}

func describe(name string, s queue.Status) jobJSON {
	j := jobJSON{
		ID: s.ID, Queue: name, Name: s.Name, State: s.State, Attempts: s.Attempts, MaxAttempts: s.MaxAttempts,
		Deferrals: s.Deferrals, Reclaims: s.Reclaims, Priority: s.Priority, EnqueuedMS: ms(s.EnqueuedAt), DueMS: ms(s.DueAt),
		DelayedBy: s.DelayedBy, Line: lineText(s.Line), LeaseEndMS: ms(s.LeaseEnd), DiedMS: ms(s.DiedAt), KeptUntilMS: ms(s.KeptUntil),
		Reason: s.Reason, Error: s.LastError, TimeoutMS: s.Timeout.Milliseconds(), StartByMS: s.StartBy.Milliseconds(),
		RetainMS: s.Retain.Milliseconds(), Keys: orEmpty(s.Keys), Cost: orEmpty(s.Cost),
	}
	j.Payload, j.PayloadBase64 = readable(s.Payload)
	j.Result, j.ResultBase64 = readable(s.Result)
	return j
}

func newJobGet(a *app, flag *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get [QUEUE] ID",
		Short: "Show one job",
		Long:  "Show one job. Without a queue it looks in all known queues.",
		Example: `  emqworker job get mail report-7
  emqworker job get report-7 --json`,
		DisableFlagsInUseLine: true,
		Args:                  arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if *flag != "" && len(args) == 2 {
				return usage("job get: the queue is given twice, by -q and as %s", args[0])
			}
			id := args[len(args)-1]
			if err := lua.CheckName("job id", id); err != nil {
				return err
			}
			client, err := a.connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			name := *flag
			if len(args) == 2 {
				name = args[0]
			}
			if name == "" {
				if name, err = find(cmd.Context(), client, id); err != nil {
					return err
				}
			}
			q, err := queue.New(client, name, queue.Options{})
			if err != nil {
				return err
			}
			s, err := q.Get(cmd.Context(), id)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), describe(name, s))
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), jobText(describe(name, s)))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// find is the one known queue that has a job of this id.
func find(ctx context.Context, client valkey.Client, id string) (string, error) {
	known, err := queue.Names(ctx, client)
	if err != nil {
		return "", err
	}
	slices.Sort(known)
	var found []string
	for _, name := range known {
		q, err := queue.New(client, name, queue.Options{})
		if err != nil {
			continue // somebody else's entry in the set
		}
		switch _, err := q.Get(ctx, id); {
		case err == nil:
			found = append(found, name)
		case !errors.Is(err, queue.ErrNotFound):
			return "", err
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("job %s: %w in any known queue", id, queue.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return "", usage("job get: there is a job %s in each of the queues %s; say which", id, strings.Join(found, ", "))
}

// jobText is a job for people to read: what it has, one thing a line.
func jobText(j jobJSON) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-11s %s\n", name, value)
		}
	}
	when := func(name string, ms int64) {
		if ms > 0 {
			line(name, clock(ms))
		}
	}
	line("id", j.ID)
	line("queue", j.Queue)
	line("name", j.Name)
	line("state", string(j.State))
	line("delayed by", string(j.DelayedBy))
	line("in line of", printable(j.Line, j.Line != ""))
	when("due", j.DueMS)
	when("lease ends", j.LeaseEndMS)
	when("died", j.DiedMS)
	when("kept until", j.KeptUntilMS)
	when("enqueued", j.EnqueuedMS)
	line("priority", fmt.Sprint(j.Priority))
	line("attempts", fmt.Sprintf("%d of %d", j.Attempts, j.MaxAttempts))
	line("deferrals", fmt.Sprint(j.Deferrals))
	line("reclaims", fmt.Sprint(j.Reclaims))
	if len(j.Keys) > 0 {
		line("keys", strings.TrimSpace(string(encode(j.Keys))))
	}
	if len(j.Cost) > 0 {
		line("cost", strings.TrimSpace(string(encode(j.Cost))))
	}
	line("reason", string(j.Reason))
	line("error", printable(j.Error, j.Error != ""))
	line("payload", printable(j.Payload, true)+base64Mark(j.PayloadBase64))
	line("result", printable(j.Result, j.Result != "")+base64Mark(j.ResultBase64))
	return b.String()
}

func base64Mark(is bool) string {
	if is {
		return "  (base64)"
	}
	return ""
}

// printable is text in one line that cannot steer a terminal.
func printable(text string, show bool) string {
	switch {
	case !show:
		return ""
	case text == "" || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return strconv.Quote(text)
	}
	return text
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// clock is a time of the server as people read it.
func clock(ms int64) string { return time.UnixMilli(ms).Format("2006-01-02 15:04:05.000 -0700") }
