package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/echomq/emq/lua"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

// Bounds of a look at a queue: the doctor asks in pages, so that no call holds the server.
const (
	page     = 500
	mostJobs = 1_000_000
)

// roles are what a user may be, by the scripts that go with it.
var roles = []struct {
	name    string
	scripts []string
	more    []string
}{
	{"producer", []string{"enqueue"}, nil},
	{"worker", []string{"claim", "settle", "extend", "look"}, []string{"BLPOP"}},
	{"operator", []string{"limit", "named", "close", "pause", "run", "redrive", "remove", "drain", "mend"}, nil},
}

func (d *Doctor) queue(ctx context.Context, name string) error {
	keys, err := lua.ForQueue(name)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		check string
		look  func(context.Context, lua.Keys) error
	}{
		{"access", d.access}, {"layout", d.layout}, {"settings", d.settings}, {"audit", d.audit}, {"ttl", d.ttls}, {"places", d.places},
		{"lines", d.lines}, {"leases", d.leases}, {"workers", d.fleet},
	} {
		err := part.look(ctx, keys)
		if answered(err) {
			d.add(part.check, Unseen, keys.Queue(), "grant what an operator may", "%v", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// access says what the user of the connection may be.
func (d *Doctor) access(ctx context.Context, keys lua.Keys) error {
	var can []string
	for _, role := range roles {
		err := lua.CheckAccess(ctx, d.Client, keys, role.scripts, role.more...)
		switch {
		case err == nil:
			can = append(can, role.name)
		case errors.Is(err, lua.ErrNoAccess):
			d.add("access", Warning, keys.Queue(), "nothing, if this user is not meant to be a "+role.name+"; else grant what is named", "as a %s: %v", role.name, err)
		default:
			return err
		}
	}
	if len(can) > 0 {
		d.add("access", OK, keys.Queue(), "", "the user of this connection can be: %s", strings.Join(can, ", "))
	}
	return nil
}

func (d *Doctor) layout(ctx context.Context, keys lua.Keys) error {
	layout, err := d.Client.Do(ctx, d.Client.B().Hget().Key(keys.Meta()).Field("layout").Build()).ToString()
	switch {
	case err == nil && layout != "1":
		d.add("layout", Wrong, keys.Queue(), "run workers and producers of the version that laid it out, or drain it with those first", "the queue is laid out by version %q; this program knows 1", layout)
	case err == nil || notThere(err):
		d.add("layout", OK, keys.Queue(), "", "layout 1")
	case answered(err):
		d.add("layout", Unseen, keys.Queue(), "grant %R"+keys.Prefix()+"* +hget", "%v", err)
	default:
		return err
	}
	return nil
}

// settings looks whether a claim would obey the limits that are set.
func (d *Doctor) settings(ctx context.Context, keys lua.Keys) error {
	_, err := metrics.Budgets(ctx, d.Client, keys.Queue(), 0)
	var config *queue.ConfigError
	var corrupt *queue.CorruptError
	switch {
	case err == nil:
		d.add("settings", OK, keys.Queue(), "", "every limit is one that claims obey")
	case errors.As(err, &config):
		d.add("settings", Wrong, keys.Queue(), "emqworker limits set mends it", "nothing is handed out: %v", err)
	case errors.As(err, &corrupt):
		d.add("settings", Wrong, keys.Queue(), "emqworker limits reset mends it", "nothing is handed out: %v", err)
	case answered(err):
		d.add("settings", Unseen, keys.Queue(), "", "%v", err)
	default:
		return err
	}
	return nil
}

func (d *Doctor) audit(ctx context.Context, keys lua.Keys) error {
	entries, err := d.Client.Do(ctx, d.Client.B().Hget().Key(keys.Meta()).Field("audit").Build()).ToString()
	if err == nil && entries != "" {
		d.add("audit", Warning, keys.Queue(), "HDEL "+keys.Meta()+" audit; UNLINK "+keys.Audit(), "every script writes what it did to %s, of which %s entries are kept", keys.Audit(), entries)
	}
	return nil
}

// ttls finds counters of limits by rate that stay for ever. A claim that meets one mends it; those that none meets only take memory.
func (d *Doctor) ttls(ctx context.Context, keys lua.Keys) error {
	windows := map[string]time.Duration{} // by the name of a bucket
	all, err := metrics.Budgets(ctx, d.Client, keys.Queue(), 0)
	if err != nil {
		return nil // told by settings
	}
	inFlight := map[string]bool{}
	for _, l := range all.Limits {
		if l.Name == "" {
			windows[""] = l.Window
		}
	}
	named, err := d.Client.Do(ctx, d.Client.B().Hgetall().Key(keys.Limits()).Build()).AsStrMap()
	if err != nil {
		return err
	}
	for _, words := range named {
		w := lua.ParseNamed(words)
		bucket, _, _ := strings.Cut(words, " ")
		windows[bucket] = w.Window
		inFlight[bucket] = w.Algorithm == "concurrency"
	}
	found := 0
	err = d.eachKey(ctx, keys, "limiter*", func(key string) error {
		name := strings.TrimPrefix(strings.TrimPrefix(key, keys.Limiter()), ":")
		bucket, _, _ := strings.Cut(name, ":")
		if inFlight[bucket] {
			return nil
		}
		ttl, err := d.Client.Do(ctx, d.Client.B().Pttl().Key(key).Build()).AsInt64()
		if err != nil || ttl != -1 {
			return err
		}
		found++
		window := max(windows[bucket], time.Second)
		if !d.Fix {
			d.add("ttl", Wrong, keys.Queue(), fmt.Sprintf("--fix: PEXPIRE %s %d NX", key, window.Milliseconds()), "the counter %s has no time to live", key)
			return nil
		}
		// NX: a claim may have mended it meanwhile.
		if err := d.Client.Do(ctx, d.Client.B().Pexpire().Key(key).Milliseconds(window.Milliseconds()).Nx().Build()).Error(); err != nil {
			return err
		}
		d.add("ttl", Mended, keys.Queue(), "", "the counter %s had no time to live; it has %v now", key, window)
		return nil
	})
	if err == nil && found == 0 {
		d.add("ttl", OK, keys.Queue(), "", "every counter has a time to live")
	}
	return err
}

// eachKey calls do with the queue's keys of a form.
func (d *Doctor) eachKey(ctx context.Context, keys lua.Keys, form string, do func(key string) error) error {
	for _, node := range d.Client.Nodes() {
		for cursor := uint64(0); ; {
			entries, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(keys.Prefix()+form).Count(page).Build()).AsScanEntry()
			if answered(err) {
				d.add("keys", Unseen, keys.Queue(), "grant +scan", "the keys cannot be listed: %v", err)
				return nil
			}
			if err != nil {
				return err
			}
			for _, key := range entries.Elements {
				if err := do(key); err != nil {
					return err
				}
			}
			if cursor = entries.Cursor; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// fleet looks whether workers of several versions run.
func (d *Doctor) fleet(ctx context.Context, keys lua.Keys) error {
	f, err := metrics.Workers(ctx, d.Client, keys.Queue(), 100)
	if answered(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if f.Mixed() {
		d.add("workers", Warning, keys.Queue(), "finish the deploy", "workers of different versions run on this queue")
		return nil
	}
	d.add("workers", OK, keys.Queue(), "", "%d workers are there", f.Alive())
	return nil
}
