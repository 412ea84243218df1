package lua

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"
)

// Presence is what a worker process says of itself with each beat.
type Presence struct {
	Process     string    `json:"-"`                  // its name in the queue
	Host        string    `json:"host"`               //
	Pid         int       `json:"pid"`                //
	Version     string    `json:"version"`            // of this module, as it was built
	Scripts     string    `json:"scripts"`            // see [Digest]
	Concurrency int       `json:"concurrency"`        // jobs that it runs at once at most
	Busy        int       `json:"busy"`               // jobs that it ran when it said so
	Stopping    bool      `json:"stopping,omitempty"` // it claims no more
	Started     time.Time `json:"started,omitzero"`   // by its own clock
	Seen        time.Time `json:"-"`                  // by the server's clock
}

// presenceKept is how long a beat counts, in ms.
const presenceKept = 60_000

// Beat says that a process is there. The time is the server's. It is no script: three commands after a TIME, of which none
// needs the others.
func Beat(ctx context.Context, c valkey.Client, keys Keys, p Presence) error {
	info, err := json.Marshal(p)
	if err != nil {
		return err
	}
	clock, err := c.Do(ctx, c.B().Time().Build()).AsStrSlice()
	if err == nil && len(clock) != 2 {
		err = fmt.Errorf("TIME answered %q", clock)
	}
	if err != nil {
		return fmt.Errorf("emq: beat: %w", err)
	}
	s, _ := strconv.ParseInt(clock[0], 10, 64)
	us, _ := strconv.ParseInt(clock[1], 10, 64)
	now := s*1000 + us/1000
	list := keys.named["workers"]
	for _, r := range c.DoMulti(ctx,
		c.B().Set().Key(keys.Worker(p.Process)).Value(string(info)).PxMilliseconds(presenceKept).Build(),
		c.B().Zadd().Key(list).ScoreMember().ScoreMember(float64(now), p.Process).Build(),
		c.B().Zremrangebyscore().Key(list).Min("-inf").Max("("+strconv.FormatInt(now-presenceKept, 10)).Build(),
		c.B().Pexpire().Key(list).Milliseconds(presenceKept).Build(),
	) {
		if err := r.Error(); err != nil {
			return fmt.Errorf("emq: beat: %w", err)
		}
	}
	return nil
}

// Leave says that a process is there no more.
func Leave(ctx context.Context, c valkey.Client, keys Keys, process string) error {
	for _, r := range c.DoMulti(ctx, c.B().Zrem().Key(keys.named["workers"]).Member(process).Build(),
		c.B().Del().Key(keys.Worker(process)).Build()) {
		if err := r.Error(); err != nil {
			return fmt.Errorf("emq: leave: %w", err)
		}
	}
	return nil
}

type workersArgs struct {
	Prefix string `lua:"prefix"`
	Most   int    `lua:"most"`
}

var workersScript = bind[workersArgs]("workers", "workers")

// ReadWorkers lists the processes of a queue that were there within a minute, the one that was seen last first, at most most of
// them; all counts them all.
func ReadWorkers(ctx context.Context, c valkey.Client, keys Keys, most int) (now time.Time, all int64, workers []Presence, err error) {
	r, err := workersScript.run(ctx, c, keys, workersArgs{keys.Prefix(), most})
	if err != nil {
		return time.Time{}, 0, nil, err
	}
	for i := 2; i+2 < len(r.values); i += 3 {
		var p Presence
		_ = json.Unmarshal([]byte(r.text(i+2)), &p) // what it cannot read of another version stays empty
		p.Process, p.Seen = r.text(i), time.UnixMilli(r.number(i+1))
		workers = append(workers, p)
	}
	return time.UnixMilli(r.number(0)), r.number(1), workers, nil
}

// Digest names the text of all scripts: processes that differ in it run different scripts on one queue.
var Digest = sync.OnceValue(func() string {
	sum := sha256.New()
	for _, name := range Names() {
		sum.Write([]byte(name + "\n" + Source(name) + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
})
