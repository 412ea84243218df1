package claim

import (
	"context"
	"time"

	"github.com/echomq/emq/lua"
)

// Timers are what a claimer that watches over the queue does by itself. The server gives them out so that of a whole fleet one process
// is there when the next job falls due or the next budget is back, another in case that this one dies, and the rest sleep.
type Timers struct {
	Claim time.Duration // claim after that time, or look where no slot is free; -1: another process does
	Look  time.Duration // look after that time; -1: when an answer before said
}

// Stance is what a claimer that looks could do with work.
type Stance string

// The stances.
const (
	Idle    Stance = lua.Idle    // claim it
	Busy    Stance = lua.Busy    // nothing now
	Leaving Stance = lua.Leaving // nothing any more
)

// Looked is what [Watcher.Look] found.
type Looked struct {
	// Claim: work waits that nobody answers for, and this claimer, being idle, is to claim it.
	Claim bool
	// Pushed counts the claimers that were woken for work that nobody answered for.
	Pushed int
	// Timers take the place of those given before.
	Timers Timers
}

// Watcher is a claimer that stays and takes its part in watching over the queue: it heeds the timers of every answer. Package worker
// is one.
type Watcher struct{ c *Claimer }

// Watch makes a watcher of the claimer.
func (c *Claimer) Watch() Watcher { return Watcher{c} }

// Claim is [Claimer.Claim] with timers in its answer.
func (w Watcher) Claim(ctx context.Context, k int) (Batch, error) {
	return w.c.claim(ctx, w.c.name(), k)
}

// Look sees to work that waits and that nobody answers for: an idle claimer is told to claim it, a busy one has others woken. push is how
// many are to be woken at least if there is work, for a claimer that took their wake-ups with [Claimer.Await]. A leaving one
// gives its part in watching to another. turn says that the time to look is there, as [Timers] told it.
func (w Watcher) Look(ctx context.Context, stance Stance, turn bool, push int) (Looked, error) {
	l, err := lua.Look(ctx, w.c.client, w.c.keys, w.c.name(), string(stance), turn, push)
	return Looked{l.Claim, l.Pushed, Timers(l.Timers)}, err
}

// Look says when a claim is worth making without making one: 0 now, -1 when nothing is known to come. It changes nothing.
func (c *Claimer) Look(ctx context.Context) (time.Duration, error) {
	l, err := lua.Look(ctx, c.client, c.keys, "", string(Busy), false, 0)
	return l.Next, err
}

// Await blocks until the server wakes this claimer because there is work, for at most d. It takes the wake-up with it: claim
// next, or claim with k 0 to pass it on.
func (c *Claimer) Await(ctx context.Context, d time.Duration) (woken bool, err error) {
	return lua.Await(ctx, c.client, c.keys, d)
}

// name is what the server calls this claimer.
func (c *Claimer) name() string { return c.process[:8] }
