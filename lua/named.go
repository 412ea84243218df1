package lua

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

type (
	namedArgs struct {
		Op        string `lua:"op"`
		Name      string `lua:"name"`
		Max       string `lua:"max"`
		Window    string `lua:"window"`
		Burst     string `lua:"burst"`
		Algorithm string `lua:"algorithm"`
		By        string `lua:"by"`
		Unit      string `lua:"unit"`
		Mode      string `lua:"mode"`
		Reason    string `lua:"reason"`
	}
	closeArgs struct {
		Op     string `lua:"op"`
		Key    string `lua:"key"`
		Of     string `lua:"of"`
		When   string `lua:"when"`
		Reason string `lua:"reason"`
	}
)

var (
	namedScript = bind[namedArgs]("named", "set", "refused", "unknown", "misconfigured", "corrupt")
	closeScript = bind[closeArgs]("close", "set", "misconfigured", "corrupt")
)

// NamedChange is a change of a limit by name: Op is set, unset or reset. Of set, empty texts keep what is set; By and Unit are *
// for none.
type NamedChange struct {
	Op, Name, Max, Window, Burst, Algorithm, By, Unit, Mode, Reason string
	Values                                                          []NamedValue
}

// NamedValue is the rule of a limit for one key value: an empty Max takes it away, an empty Window is the limit's own. For reset it is
// the key value alone.
type NamedValue struct{ Value, Max, Window, Burst string }

// NamedError says that a limit would be one that no script obeys, or that it has to stay as it is.
type NamedError struct {
	Name, Field, Value string
	Is                 string // what Field is and has to stay; the key value of an override
}

func (e *NamedError) Error() string {
	switch {
	case e.Field == "override":
		return fmt.Sprintf("limit %s has no key that it goes by, so key value %q can have no rule of its own; want by", e.Name, e.Value)
	case e.Field == "max" && e.Value == "0":
		return fmt.Sprintf("limit %s has no max; want 1 or more", e.Name)
	case e.Field == "values":
		return fmt.Sprintf("limit %s: %s key values with a rule of their own are set at once; want at most 500", e.Name, e.Value)
	case e.Field == "no burst":
		return fmt.Sprintf("limit %s is a %s, which has no burst; want none, not %s", e.Name, e.Is, e.Value)
	case e.Field == "unit" && e.Is == "*":
		return fmt.Sprintf("limit %s counts jobs in flight, which have no unit; want none, not %q", e.Name, e.Value)
	case e.Field == "algorithm" && e.Value == "concurrency" && e.Is == "":
		return fmt.Sprintf("limit %s counts jobs in flight: it has nothing to reset", e.Name)
	case e.Field == "algorithm" && e.Is != "" || e.Field == "by" || (e.Field == "unit" && e.Is != ""):
		return fmt.Sprintf("limit %s has %s %s, which cannot be changed in place to %s; remove the limit first, or take another name",
			e.Name, e.Field, none(e.Is), none(e.Value))
	}
	what := "limit " + e.Name
	if e.Is != "" {
		what += " for key value " + strconv.Quote(e.Is)
	}
	return fmt.Sprintf("%s: %s", what, (&ConfigError{Field: e.Field, Value: e.Value}).want())
}

func none(s string) string {
	if s == "*" {
		return "none"
	}
	return s
}

// SetNamed changes a limit by name and returns the words that stood there before, "" for none; known is false when it was to be
// changed and does not exist. It fails with a [*NamedError] when the limit that would come of it is one that no script obeys;
// nothing was changed then.
func SetNamed(ctx context.Context, c valkey.Client, keys Keys, change NamedChange) (before string, known bool, err error) {
	var rest []string
	for _, v := range change.Values {
		if change.Op == "reset" {
			rest = append(rest, v.Value)
		} else {
			rest = append(rest, v.Value, v.Max, v.Window, v.Burst)
		}
	}
	r, err := namedScript.run(ctx, c, keys, namedArgs{change.Op, change.Name, change.Max, change.Window, change.Burst, change.Algorithm,
		change.By, change.Unit, change.Mode, strings.Join(strings.Fields(change.Reason), " ")}, rest...)
	switch {
	case err != nil:
		return "", false, err
	case r.word == "unknown":
		return "", false, nil
	case r.word == "refused":
		return "", true, &NamedError{change.Name, r.text(0), r.text(1), r.text(2)}
	}
	return r.text(1), true, nil
}

// Close shuts the queue (key ""), or the jobs whose key has a value, for some time or until a time, or opens it again; before and
// till are until when it was and is closed, zero for not.
func Close(ctx context.Context, c valkey.Client, keys Keys, op, key, value, when, reason string) (before, till time.Time, err error) {
	r, err := closeScript.run(ctx, c, keys, closeArgs{op, key, value, when, reason})
	return at(r.number(1)), at(r.number(2)), err
}

// Named is a limit by name, as the hash limits keeps it.
type Named struct {
	Rule
	Bucket    string // what its buckets are called
	By, Unit  string // "" for none
	Shadow    bool
	Overrides int       // key values with a rule of their own
	At        time.Time // of the last change
	Reason    string
}

// ParseNamed reads the words that stand in the hash limits; what is missing is zero.
func ParseNamed(words string) Named {
	w := append(strings.SplitN(words, " ", 11), make([]string, 11)...)
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(w[i], 10, 64)
		return n
	}
	name := func(i int) string {
		if w[i] == "*" {
			return ""
		}
		return w[i]
	}
	return Named{
		Rule: Rule{Algorithm: w[1], Max: number(2), Window: milliseconds(number(3)), Burst: number(4)}, Bucket: w[0], By: name(5), Unit: name(6),
		Shadow: w[7] == "shadow", Overrides: int(number(8)), At: at(number(9)), Reason: w[10],
	}
}

func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}
