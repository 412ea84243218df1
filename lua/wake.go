package lua

import (
	"context"
	"time"

	"github.com/valkey-io/valkey-go"
)

type lookArgs struct {
	Process string `lua:"process"`
	Stance  string `lua:"stance"`
	Turn    string `lua:"turn"`
	Push    int    `lua:"push"`
}

var lookScript = bind[lookArgs]("look", "look", "misconfigured", "corrupt")

// What a process that looks could do with work.
const (
	Idle    = "idle"    // claim it
	Busy    = "busy"    // nothing now
	Leaving = "leaving" // nothing any more: its part in watching over the queue goes to another
)

// Looked is what a look found.
type Looked struct {
	Next   time.Duration // when a claim is worth making: 0 now, -1 when nothing is known to come
	Claim  bool          // work waits that nobody answers for: the caller, being idle, is to claim
	Pushed int           // work waits that nobody answers for: so many more processes were woken
	Timers Timers        // of a process that watches
}

// Look says when a claim is worth making. For a process that watches over the queue it wakes others for work that nobody answers for,
// at least push of them if there is any; turn says that the time is there at which it was told to look. With process "" it changes nothing.
func Look(ctx context.Context, c valkey.Client, keys Keys, process, stance string, turn bool, push int) (Looked, error) {
	r, err := lookScript.run(ctx, c, keys, lookArgs{process, stance, map[bool]string{true: "1"}[turn], push})
	if err != nil {
		return Looked{Next: -1}, err
	}
	return Looked{r.until(0), r.number(3) == 1, int(r.number(4)), Timers{r.until(1), r.until(2)}}, nil
}

// answerWithin is how much longer than it was asked to a blocking pop may take; then its connection is taken for dead.
const answerWithin = 2 * time.Second

// Await blocks on a connection of its own until a wake token is there, or for at most d; it says whether there was one.
func Await(ctx context.Context, c valkey.Client, keys Keys, d time.Duration) (woken bool, err error) {
	d = max(d, time.Millisecond) // the server takes 0 for no end
	// Not a deadline: with one the client would wait for it even when ctx ends before.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(d+answerWithin, cancel).Stop()
	err = c.Do(ctx, c.B().Blpop().Key(keys.Wake()).Timeout(d.Seconds()).Build()).Error()
	if valkey.IsValkeyNil(err) {
		return false, nil
	}
	return err == nil, err
}
