package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/valkey-io/valkey-go"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Unseen  Level = "unseen"  // the user of the connection may not look, or the server does not tell
	Warning Level = "warning" // it works, and may hurt one day
	Wrong   Level = "wrong"   // what emq promises does not hold
	Mended  Level = "mended"  // it was wrong
)

// Finding is what one check found.
type Finding struct {
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Queue   string `json:"queue,omitempty"`
	Finding string `json:"finding"`
	Do      string `json:"what_to_do,omitempty"`
}

// Doctor examines through one client.
type Doctor struct {
	Client valkey.Client
	Fix    bool // mend what can be mended

	findings []Finding
}

// Examine looks at the server and at queues.
func (d *Doctor) Examine(ctx context.Context, queues []string) ([]Finding, error) {
	d.findings = nil
	if err := d.server(ctx); err != nil {
		return nil, err
	}
	for _, name := range queues {
		if err := d.queue(ctx, name); err != nil {
			return d.findings, err
		}
	}
	return d.findings, nil
}

func (d *Doctor) add(check string, level Level, queue, do, format string, args ...any) {
	d.findings = append(d.findings, Finding{check, level, queue, fmt.Sprintf(format, args...), do})
}

// answered says whether the server refused to tell; other errors are the connection's.
func answered(err error) bool {
	return errors.As(err, new(*valkey.ValkeyError))
}

// notThere: there is no such key or field.
func notThere(err error) bool { return valkey.IsValkeyNil(err) }
