package claim

import (
	"context"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/echomq/emq/lua"
)

// Beat says that this claimer is there, for those who look at the queue: how many jobs it runs at once at most and how many it runs
// now, and whether it is about to stop. What is said counts for a minute, so a loop that stays says it every few seconds. Nothing
// depends on it.
func (c *Claimer) Beat(ctx context.Context, concurrency, busy int, stopping bool) error {
	host, _ := os.Hostname()
	return lua.Beat(ctx, c.client, c.keys, lua.Presence{
		Process: c.process, Host: host, Pid: os.Getpid(), Version: version(), Scripts: lua.Digest(), Concurrency: concurrency, Busy: busy,
		Stopping: stopping, Started: c.made.Truncate(time.Millisecond),
	})
}

// Leave says that this claimer is there no more.
func (c *Claimer) Leave(ctx context.Context) error {
	return lua.Leave(ctx, c.client, c.keys, c.process)
}

// version is this module's in the program that it is built into.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	const module = "github.com/echomq/emq"
	if info.Main.Path == module {
		return info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == module || strings.HasPrefix(m.Path, module+"/v") {
			if m.Replace != nil {
				return m.Replace.Version
			}
			return m.Version
		}
	}
	return "unknown"
})
