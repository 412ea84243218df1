package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/lua"
)

// MostWorkers is the largest most of [Workers].
const MostWorkers = 1000

// aliveWithin is how old the last beat of a worker may be that is taken for alive: three of its beats.
const aliveWithin = 15 * time.Second

// Fleet is the worker processes of a queue at one moment.
type Fleet struct {
	At      time.Time // the server's clock
	All     int64     // processes that were there within the last minute
	Workers []Worker  // as many of them as were asked for, the one that was seen last first
}

// Slots is how many jobs the workers that are alive and go on can run at once.
func (f Fleet) Slots() (n int) {
	for _, w := range f.Workers {
		if w.Alive && !w.Stopping {
			n += w.Concurrency
		}
	}
	return n
}

// Alive counts the workers that are alive and go on.
func (f Fleet) Alive() (n int) {
	for _, w := range f.Workers {
		if w.Alive && !w.Stopping {
			n++
		}
	}
	return n
}

// Mixed says that workers that are alive run different scripts on the queue, as while a new version is rolled out.
func (f Fleet) Mixed() bool {
	var scripts string
	for _, w := range f.Workers {
		if !w.Alive {
			continue
		}
		if scripts != "" && w.Scripts != scripts {
			return true
		}
		scripts = w.Scripts
	}
	return false
}

// Worker is a worker process as it said of itself. What others than package worker say may be missing.
type Worker struct {
	Process     string    // its name in the queue, new with each start
	Host        string    //
	Pid         int       //
	Version     string    // of this module
	Scripts     string    // names the text of its scripts
	Concurrency int       // jobs that it runs at once at most
	Busy        int       // jobs that it ran at its last beat
	Stopping    bool      // it claims no more
	Started     time.Time // by its own clock
	Seen        time.Time // its last beat, by the server's clock
	Alive       bool      // it was seen within the last 15 s
}

// Workers reads the worker processes of a queue, at most most of them, which is at most [MostWorkers].
func Workers(ctx context.Context, client valkey.Client, queue string, most int) (Fleet, error) {
	keys, err := lua.ForQueue(queue)
	if err != nil {
		return Fleet{}, err
	}
	if most < 0 || most > MostWorkers {
		return Fleet{}, fmt.Errorf("emq: reading workers: most is %d; want 0 to %d", most, MostWorkers)
	}
	now, all, seen, err := lua.ReadWorkers(ctx, client, keys, most)
	if err != nil {
		return Fleet{}, err
	}
	fleet := Fleet{At: now, All: all}
	for _, p := range seen {
		fleet.Workers = append(fleet.Workers, Worker{
			Process: p.Process, Host: p.Host, Pid: p.Pid, Version: p.Version, Scripts: p.Scripts, Concurrency: p.Concurrency, Busy: p.Busy,
			Stopping: p.Stopping, Started: p.Started, Seen: p.Seen, Alive: now.Sub(p.Seen) <= aliveWithin,
		})
	}
	return fleet, nil
}
