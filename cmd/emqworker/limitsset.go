package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/queue"
)

// limitFlags are the flags of limits set.
type limitFlags struct {
	algorithm, by, unit, reason string
	burst                       int64
	overrides                   []string
	shadow, asJSON              bool
}

func newLimitsSet(a *app) *cobra.Command {
	var f limitFlags
	cmd := &cobra.Command{
		Use:   "set QUEUE [NAME] MAX/WINDOW",
		Short: "Set a limit that all workers of the queue share",
		Long: `Set the queue's own limit, or one of that NAME: at most MAX in each WINDOW, as the algorithm counts them. The usual one is
fixed_window, whose window opens with its first job; concurrency counts jobs in flight and has a MAX alone.

With --by each value of that job key has a budget of its own; with --unit a job spends its cost of that name in place of 1.
Options left out when a limit is set again keep their values. What was used stays used; what is allowed changes with the
next claim. --by, --unit and the algorithm of a limit by NAME stay as they were first set; another algorithm of the queue's
own limit starts whole.`,
		Example: `  emqworker limits set mail 100/1m --reason "provider's plan"
  emqworker limits set llm 3/s --algorithm token_bucket --burst 10
  emqworker limits set llm tpm 90000/1m --by model --unit tokens --override model=x:500/1m
  emqworker limits set llm tenant 5 --algorithm concurrency --by tenant
  emqworker limits set llm tpm --shadow`,
		Args: arguments(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.Contains(args[0], ",") {
				return usage("limits set: %q names several queues; a limit belongs to one, since all its keys lie in that queue's slot. For a budget "+
					"that queues share, take it in the handler with limiter.Take, then return worker.Defer", args[0])
			}
			if err := checkFlags(cmd, args[len(args)-1], f); err != nil {
				return err
			}
			if name, rate, byName := nameAndRate(args); byName {
				return setNamed(a, cmd, args[0], name, rate, f)
			}
			return setOwn(a, cmd, args[0], args[1], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.algorithm, "algorithm", "", "fixed_window, sliding_log, sliding_window_counter, token_bucket, leaky_bucket or, by NAME, concurrency")
	flags.Int64Var(&f.burst, "burst", 0, "how many a token_bucket lets through at once (default: MAX)")
	flags.StringVar(&f.by, "by", "", "a budget for each value of this job key")
	flags.StringVar(&f.unit, "unit", "", "a job spends its cost of this name (default: each job spends 1)")
	flags.StringArrayVar(&f.overrides, "override", nil, "another rule for one key value: model=x:500/1m, model=x:unlimited; model=x: takes it away (repeatable)")
	flags.BoolVar(&f.shadow, "shadow", false, "refuse nothing, count what would be refused")
	changeFlags(cmd, &f.reason, &f.asJSON)
	return cmd
}

// checkFlags refuses what would be as if it were not there.
func checkFlags(cmd *cobra.Command, rate string, f limitFlags) error {
	for flag, value := range map[string]string{"algorithm": f.algorithm, "by": f.by, "unit": f.unit} {
		if cmd.Flags().Changed(flag) && value == "" {
			return usage("limits set: --%s is empty; leave it out, or give a name", flag)
		}
	}
	if cmd.Flags().Changed("burst") && f.burst < 1 {
		return usage("limits set: --burst is %d; want 1 or more", f.burst)
	}
	if strings.Contains(rate, " ") {
		return usage("limits set: %q; want MAX/WINDOW alone, as in 100/1m. The rest is said by --algorithm and --burst", rate)
	}
	return nil
}

// nameAndRate tells a limit by name from the queue's own: a rate begins with a digit, or is unlimited.
func nameAndRate(args []string) (name, rate string, byName bool) {
	if len(args) == 3 {
		return args[1], args[2], true
	}
	if c := args[1][:min(1, len(args[1]))]; args[1] == "unlimited" || c == "" || c >= "0" && c <= "9" || c == "-" {
		return "", "", false
	}
	return args[1], "", !strings.Contains(args[1], "/")
}

func setOwn(a *app, cmd *cobra.Command, name, rate string, f limitFlags) error {
	for _, flag := range []string{"by", "unit", "override", "shadow"} {
		if cmd.Flags().Changed(flag) {
			return usage("limits set: --%s is for a limit by NAME; want emqworker limits set %s NAME %s --%s …", flag, name, rate, flag)
		}
	}
	limit, err := limiter.Parse(rate)
	if err != nil {
		return err
	}
	if f.algorithm == string(queue.Concurrency) {
		return usage("limits set: concurrency is for a limit by NAME; want emqworker limits set %s NAME MAX --algorithm concurrency", name)
	}
	limit.Algorithm, limit.Burst = limiter.Algorithm(f.algorithm), f.burst
	return change(a, cmd, name, f.asJSON, func(q *queue.Queue) (limiter.Limit, error) {
		return q.SetLimit(cmd.Context(), limit, f.reason)
	})
}

// namedJSON is what limits set and unset print of a limit by name with --json.
type namedJSON struct {
	Queue string         `json:"queue"`
	Name  string         `json:"name"`
	Limit *namedRuleJSON `json:"limit"` // null: there is none
	Was   *namedRuleJSON `json:"was"`
}

type namedRuleJSON struct {
	Algorithm string `json:"algorithm"`
	Max       int64  `json:"max"`
	WindowMS  int64  `json:"window_ms"` // 0: concurrency
	Burst     int64  `json:"burst"`     // 0: its default
	By        string `json:"by"`        // "": one bucket
	Unit      string `json:"unit"`      // "": each job spends 1
	Shadow    bool   `json:"shadow"`
}

func ruleJSON(l queue.NamedLimit) *namedRuleJSON {
	if l.Name == "" {
		return nil
	}
	return &namedRuleJSON{string(l.Algorithm), l.Max, l.Window.Milliseconds(), l.Burst, l.By, l.Unit, l.Shadow != nil && *l.Shadow}
}

func namedText(l queue.NamedLimit) string {
	if l.Name == "" {
		return "none"
	}
	return l.String()
}

func printNamed(cmd *cobra.Command, name string, now, was queue.NamedLimit, limit string, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), namedJSON{name, limit, ruleJSON(now), ruleJSON(was)})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s, was %s\n", name, limit, namedText(now), namedText(was))
	return err
}

func setNamed(a *app, cmd *cobra.Command, name, limit, rate string, f limitFlags) error {
	l := queue.NamedLimit{Name: limit, By: f.by, Unit: f.unit}
	if cmd.Flags().Changed("shadow") {
		l.Shadow = &f.shadow
	}
	if rate != "" {
		parsed, err := parseRate(rate)
		if err != nil {
			return err
		}
		l.Limit = parsed
	}
	l.Algorithm, l.Burst = limiter.Algorithm(f.algorithm), f.burst
	concurrent := l.Algorithm == queue.Concurrency
	if f.algorithm != "" && !concurrent {
		if err := (limiter.Limit{Algorithm: l.Algorithm, Max: 1, Window: time.Second}).Validate(); err != nil {
			return usage("limits set: --algorithm: %s, or concurrency", errorText(err))
		}
	}
	return withQueue(a, cmd, name, func(q *queue.Queue) error {
		old, err := named(cmd.Context(), q, limit)
		isNew := errors.Is(err, queue.ErrNoLimit)
		switch {
		case isNew && rate == "":
			return usage("limits set: MAX/WINDOW is missing: %s. A new one is set by emqworker limits set %s %s MAX/WINDOW", errorText(err), name, limit)
		case isNew && l.Window == 0 && !concurrent:
			return usage("limits set: %q has no window; want %s/WINDOW, as in %s/1m, or --algorithm concurrency", rate, rate, rate)
		case err != nil && !isNew:
			return err
		}
		by := cmp.Or(f.by, old.By)
		var drop []string
		given := map[string]bool{}
		l.Overrides = map[string]limiter.Limit{}
		for _, text := range f.overrides {
			value, rule, dropped, err := parseOverride(text, by)
			switch {
			case err != nil:
				return err
			case given[value]:
				return usage("limits set: --override %s=%s is given twice", by, value)
			}
			given[value] = true
			switch {
			case dropped:
				drop = append(drop, value)
			default:
				l.Overrides[value] = rule
			}
		}
		was, err := q.SetNamedLimit(cmd.Context(), l, f.reason)
		if err != nil {
			return err
		}
		for _, value := range drop {
			if err := q.DropOverride(cmd.Context(), limit, value, f.reason); err != nil {
				return err
			}
		}
		now, err := q.NamedLimit(cmd.Context(), limit)
		if err != nil {
			return err
		}
		return printNamed(cmd, name, now, was, limit, f.asJSON)
	})
}

// parseRate reads MAX/WINDOW, or MAX alone.
func parseRate(rate string) (limit limiter.Limit, err error) {
	if rate == "unlimited" {
		return limit, usage("limits set: a limit by NAME is unlimited when it is not there; want limits unset")
	}
	if limit.Max, err = strconv.ParseInt(rate, 10, 64); err != nil {
		limit, err = limiter.Parse(rate)
	}
	if err == nil && limit.Max == 0 {
		err = usage("limits set: %q: max is 0; want 1 or more. limits unset removes a limit, --override KEY=VALUE:unlimited lifts it for "+
			"a value; limits close and queue pause let nothing through", rate)
	}
	return limit, err
}

// parseOverride reads KEY=VALUE:MAX/WINDOW; the value may hold any character.
func parseOverride(text, by string) (value string, rule limiter.Limit, dropped bool, err error) {
	key, rest, ok := strings.Cut(text, "=")
	at := strings.LastIndexByte(rest, ':')
	if !ok || at < 0 {
		return "", rule, false, usage("limits set: --override is %q; want KEY=VALUE:MAX/WINDOW, as in model=x:500/1m", text)
	}
	value, rate := rest[:at], rest[at+1:]
	switch {
	case by == "":
		return "", rule, false, usage("limits set: --override %q: the limit goes by no key; want --by %s", text, key)
	case key != by:
		return "", rule, false, usage("limits set: --override %q: the limit goes by %s, not %s", text, by, key)
	case rate == "":
		return value, rule, true, nil
	case rate == "unlimited":
		return value, rule, false, nil
	case strings.Contains(rate, " "):
		return "", rule, false, usage("limits set: --override %q; want KEY=VALUE:MAX/WINDOW alone, as in model=x:500/1m", text)
	}
	rule, err = parseRate(rate)
	return value, rule, false, err
}

func newLimitsUnset(a *app) *cobra.Command {
	var reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "unset QUEUE [NAME]",
		Short: "Lift the queue's own limit, or remove one by NAME",
		Example: `  emqworker limits unset mail
  emqworker limits unset llm tpm`,
		Args: arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return change(a, cmd, args[0], asJSON, func(q *queue.Queue) (limiter.Limit, error) {
					return q.LiftLimit(cmd.Context(), reason)
				})
			}
			return withQueue(a, cmd, args[0], func(q *queue.Queue) error {
				if _, err := named(cmd.Context(), q, args[1]); err != nil {
					return err
				}
				was, err := q.RemoveNamedLimit(cmd.Context(), args[1], reason)
				if err != nil {
					return err
				}
				return printNamed(cmd, args[0], queue.NamedLimit{}, was, args[1], asJSON)
			})
		},
	}
	changeFlags(cmd, &reason, &asJSON)
	return cmd
}

func newLimitsReset(a *app) *cobra.Command {
	var reason string
	var keys []string
	cmd := &cobra.Command{
		Use:   "reset QUEUE [NAME]",
		Short: "Make a budget whole at once; heals a bucket that holds what it should not",
		Example: `  emqworker limits reset mail
  emqworker limits reset llm tpm --key model=x`,
		Args: arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && len(keys) > 0 {
				return usage("limits reset: --key is for a limit by NAME; the queue's own has no keys")
			}
			return withQueue(a, cmd, args[0], func(q *queue.Queue) error {
				what := args[0]
				if len(args) == 1 {
					if err := q.ResetLimit(cmd.Context(), reason); err != nil {
						return err
					}
				} else {
					what += " " + args[1]
					limit, err := named(cmd.Context(), q, args[1])
					if err != nil {
						return err
					}
					values, err := keyValues(cmd, limit.Name, limit.By, keys)
					if err != nil {
						return err
					}
					if err := q.ResetNamedLimit(cmd.Context(), args[1], reason, values...); err != nil {
						return err
					}
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: the budget is whole\n", what)
				return err
			})
		},
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "the key value whose budget is meant, as in model=x (repeatable; default: all)")
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept beside the limit")
	return cmd
}

// keyValues are the values of --key for a limit that goes by a key.
func keyValues(cmd *cobra.Command, limit, by string, keys []string) (values []string, err error) {
	for _, text := range keys {
		key, value, ok := strings.Cut(text, "=")
		switch {
		case !ok:
			return nil, usage("%s: --key is %q; want name=value", path(cmd), text)
		case by == "":
			return nil, usage("%s: --key %s: limit %s goes by no key", path(cmd), text, limit)
		case key != by:
			return nil, usage("%s: --key %s: limit %s goes by %s", path(cmd), text, limit, by)
		}
		values = append(values, value)
	}
	return values, nil
}
