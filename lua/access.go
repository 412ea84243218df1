package lua

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/valkey-io/valkey-go"
)

// ErrNoAccess is wrapped when the user of the connection may not run a command that a script runs: the script would end there, half done.
var ErrNoAccess = errors.New("user lacks commands")

var preflightScript = bind[noArgs]("preflight", "missing")

// Commands are the commands that scripts run, in order.
func Commands(scripts ...string) []string {
	var names []string
	for _, script := range scripts {
		rest := Source(script)
		for more := true; more; {
			var before, name string
			if before, rest, more = strings.Cut(rest, "('"); strings.HasSuffix(before, "call") || strings.HasSuffix(before, "in_parts") {
				name, _, _ = strings.Cut(rest, "'")
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckAccess fails with [ErrNoAccess] unless the user of the connection may run all commands of the scripts, and more of his own, on the
// keys of the queue. A server that lets him not ask lets him pass.
func CheckAccess(ctx context.Context, c valkey.Client, keys Keys, scripts []string, more ...string) error {
	r, err := preflightScript.run(ctx, c, keys, noArgs{}, append(Commands(scripts...), more...)...)
	if err != nil {
		if answer := new(valkey.ValkeyError); !errors.As(err, &answer) {
			return err
		} else if text := answer.Error(); strings.HasPrefix(text, "NOPERM") && strings.Contains(text, "key") {
			return fmt.Errorf("emq: %w: %w; grant the keys of queue %s: ~%s*", ErrNoAccess, err, keys.Queue(), keys.Prefix())
		}
		return nil
	}
	missing := r.texts(0)
	if len(missing) == 0 {
		return nil
	}
	user, err := c.Do(ctx, c.B().AclWhoami().Build()).ToString()
	if err != nil {
		user = "of this connection"
	}
	return fmt.Errorf("emq: %w: user %s may not run %s on the keys of queue %s; grant them: +%s ~%s*", ErrNoAccess, user,
		strings.Join(missing, ", "), keys.Queue(), strings.ToLower(strings.Join(missing, " +")), keys.Prefix())
}
