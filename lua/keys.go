package lua

import "maps"

// Queues is the set of the names of known queues. It lies in a slot of its own; each process adds a queue once.
const Queues = "emq:queues"

// keyTypes is every key of a queue that a script may declare, by the name the script gives it: what follows the queue's
// prefix, and the type it holds. Keys of single jobs (job:<id>, result:<id>) and of processes (settled:<process>) are built
// by the scripts from the prefix; they share the queue's slot.
var keyTypes = map[string]struct{ suffix, kind string }{
	"meta":      {"meta", "hash"},             // the queue's settings; public
	"limiter":   {"limiter", "string"},        // the counter of the queue's own limit, its TTL is the window; public
	"limits":    {"limits", "hash"},           // further limits, by name
	"overrides": {"limits:overrides", "hash"}, // their rules for single key values, by <name>:<value>
	"removed":   {"limits:removed", "hash"},   // what buckets of removed limits were called
	"closed":    {"closed", "zset"},           // the queue, or <key>:<value>, by the server ms at which it opens
	"reasons":   {"closed:reasons", "hash"},   // why
	"lines":     {"lines", "zset"},            // buckets with jobs in line, by the ms at which the head is judged again
	"open":      {"lines:open", "zset"},       // those whose head is judged by the next claim, by its place
	"stale":     {"lines:stale", "zset"},      // those that are judged anew because a limit changed
	"tally":     {"tally", "hash"},            // jobs in the lines of each limit, and what shadow limits would have refused
	"leases":    {"leases", "hash"},           // what a lease holds beside its job, by id|token
	"uncounted": {"leases:uncounted", "zset"}, // leases that a new concurrency limit has still to count
	"state":     {"state", "hash"},            // sequence, clock, alarm
	"wait1":     {"wait:1", "list"},           // waiting jobs by priority, in order of place
	"wait2":     {"wait:2", "list"},           //
	"wait3":     {"wait:3", "list"},           //
	"wait4":     {"wait:4", "list"},           //
	"back":      {"wait:back", "zset"},        // waiting jobs that came back to their own place
	"delayed":   {"delayed", "zset"},          // jobs with a due time, by server ms
	"sent":      {"delayed:sent", "zset"},     // those of them that a limit sent back, by place
	"active":    {"active", "zset"},           // id|token by lease end in server ms
	"dead":      {"dead", "zset"},             // by server ms of death
	"completed": {"completed", "zset"},        // kept results, by server ms of their end
	"errors":    {"errors", "hash"},           // id to reason and last error
	"wake":      {"wake", "list"},             // wake tokens
	"workers":   {"workers", "zset"},          // worker processes, by server ms of their last beat
	"audit":     {"audit", "stream"},          // what every script did, when asked for
}

// Keys makes the key names of one queue; nothing else in the module does. The zero value is not valid; see [ForQueue].
type Keys struct {
	queue  string
	prefix string
	named  map[string]string
}

// ForQueue returns the keys of a queue. It fails with [ErrBadName] when the name is outside the allow-list.
func ForQueue(queue string) (Keys, error) {
	if err := CheckName("queue name", queue); err != nil {
		return Keys{}, err
	}
	k := Keys{queue: queue, prefix: "emq:{" + queue + "}:", named: make(map[string]string, len(keyTypes))}
	for name, key := range keyTypes {
		k.named[name] = k.prefix + key.suffix
	}
	return k, nil
}

// Queue is the queue's name.
func (k Keys) Queue() string { return k.queue }

// Prefix is what all keys of the queue begin with: emq:{queue}:
func (k Keys) Prefix() string { return k.prefix }

// Meta is the hash of the queue's settings, a public wire format: max, duration, paused, layout, audit and others.
func (k Keys) Meta() string { return k.named["meta"] }

// Limiter is the counter of the queue's own limit, a public wire format: its TTL is the window.
func (k Keys) Limiter() string { return k.named["limiter"] }

// Limits is the hash of the queue's limits by name.
func (k Keys) Limits() string { return k.named["limits"] }

// Wake is the list of wake tokens that idle workers pop from.
func (k Keys) Wake() string { return k.named["wake"] }

// Audit is the stream in which every script that changes state says what it did, when meta's field audit asks for it.
func (k Keys) Audit() string { return k.named["audit"] }

// Job is the record of one job.
func (k Keys) Job(id string) string { return k.prefix + "job:" + id }

// Worker is what a worker process says of itself.
func (k Keys) Worker(process string) string { return k.prefix + "worker:" + process }

// All are the keys of the queue that are not of a single job, limit or process, by the names that scripts give them.
func (k Keys) All() map[string]string { return maps.Clone(k.named) }

// Has says whether name, without the prefix, is a key of the queue that is not of a single job, limit or process.
func (k Keys) Has(name string) bool {
	for _, key := range k.named {
		if key == k.prefix+name {
			return true
		}
	}
	return false
}
