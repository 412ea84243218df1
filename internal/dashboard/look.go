package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

// How much of a queue a look reads.
const (
	topValues   = 20
	mostWorkers = 100
)

// view is a queue at a glance. Its parts are read one after the other, so each has its own time; At is the last.
type view struct {
	Queue   string
	At      time.Time
	Counts  metrics.Counts
	All     metrics.All
	Fleet   metrics.Fleet
	Verdict metrics.Verdict
	ETA     metrics.ETA
	Broken  string // why no claim obeys its settings
}

// Runnable is how many jobs would be handed out if no limit refused.
func (v view) Runnable() int64 { return v.Counts.Wait + v.Counts.SentBack }

// DelayedOwn is how many jobs wait for a time of their own.
func (v view) DelayedOwn() int64 { return v.Counts.Delayed - v.Counts.SentBack }

// Own is the queue's own limit; nil when it has none.
func (v view) Own() *metrics.Limit {
	if len(v.All.Limits) > 0 && v.All.Limits[0].Name == "" && len(v.All.Limits[0].Buckets) > 0 {
		return &v.All.Limits[0]
	}
	return nil
}

// Workers are those of the fleet in an order that stays.
func (v view) Workers() []metrics.Worker {
	workers := slices.Clone(v.Fleet.Workers)
	slices.SortFunc(workers, func(a, b metrics.Worker) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Process, b.Process))
	})
	return workers
}

// Tabs is what the row of places of a queue's pages needs.
func (v view) Tabs() jobsView { return jobsView{Queue: v.Queue} }

// WhatIf is the highest max that the slider offers: ten times what is set.
func (v view) WhatIf() int64 { return min(10*max(1, v.Own().Max), 1<<31-1) }

// Now is when the backlog is done as things are.
func (v view) Now() etaView { return etaView{0, v.ETA, v.Runnable()} }

// look reads a queue, with the key values that also names.
func (s *Server) look(ctx context.Context, name string, also ...metrics.KeyValue) (view, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	v := view{Queue: name}
	var err error
	if v.Counts, err = metrics.ReadCounts(ctx, s.opts.Client, name); err != nil {
		return view{}, err
	}
	if v.Fleet, err = metrics.Workers(ctx, s.opts.Client, name, mostWorkers); err != nil {
		return view{}, err
	}
	v.All, err = metrics.Budgets(ctx, s.opts.Client, name, topValues, also...)
	v.At = v.All.At
	switch {
	case broken(err):
		v.At, v.Broken = v.Counts.At, err.Error()
		v.Verdict = metrics.Verdict{Word: metrics.Broken, Text: "broken - " + v.Broken}
	case err != nil:
		return view{}, err
	default:
		v.Verdict = metrics.Judge(v.All, v.Counts, v.Fleet)
		v.ETA = v.All.Backlog(v.Runnable(), 0, 0)
	}
	return v, nil
}

// broken: the settings are at fault, not the server.
func broken(err error) bool {
	var config *queue.ConfigError
	var corrupt *queue.CorruptError
	return errors.As(err, &config) || errors.As(err, &corrupt)
}

// queue is a handle of a queue for what metrics does not read.
func (s *Server) queue(name string) (*queue.Queue, error) {
	return queue.New(s.opts.Client, name, queue.Options{})
}

// all looks at every known queue. One whose name no queue can have, which somebody else put there, is told of as it is.
func (s *Server) all(ctx context.Context) ([]view, error) {
	names, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	var all []view
	for _, name := range names {
		v, err := s.look(ctx, name)
		if errors.Is(err, queue.ErrBadName) {
			v = view{Queue: name, Broken: err.Error(), Verdict: metrics.Verdict{Word: metrics.Broken, Text: "broken - no queue can be called so"}}
		} else if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// names lists the known queues, sorted.
func (s *Server) names(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	return sortedNames(ctx, s.opts.Client)
}
