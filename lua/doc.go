// Package lua is what emq and a Valkey server say to each other: the names of the keys, the scripts, and a typed Go call for
// each script. Programs use packages queue, claim and worker, which are built on it; another runtime may use the scripts alone,
// see [Source].
//
// # The wire contract
//
// All keys of a queue q begin with emq:{q}: and so lie in one cluster slot ([Slot]); only [Queues], the set of the names of known
// queues, lies elsewhere. [Keys] makes the names.
//
//	meta            hash    settings: max, duration, algorithm, burst, paused, layout, audit; others are ignored
//	limiter         string  units spent in the fixed window, whose end its TTL is; other algorithms keep their state there
//	state           hash    seq, seen, alarm, largest: what scripts keep between calls
//	wait:1 … wait:4 list    waiting jobs by priority, in order of their places
//	wait:back       zset    waiting jobs that came back to an earlier place, by place
//	delayed         zset    jobs with a due time, by server ms
//	delayed:sent    zset    those of them that the limit sent back, by place
//	active          zset    id|token of each lease, by its end in server ms
//	dead            zset    by server ms of death
//	completed       zset    kept jobs, by server ms of their end
//	errors          hash    id to reason, line feed, last error
//	wake            list    wake tokens: idle workers pop them
//	audit           stream  what each script changed, while meta's field audit says how many entries to keep
//	job:<id>        string  the record: counters, header, payload (see include/record.lua and [Record])
//	result:<id>     string  what a kept job's handler left
//	settled:<p>     string  the last settle of process p and its answers, for a resend
//
// meta's max and duration and the limiter are public: any runtime may read, set or spend them. Times are the server's, in
// milliseconds; numbers are plain digits up to 2^53-1. A value that is no such number closes the queue with a [*ConfigError] or
// [*CorruptError]; it never counts as no limit.
//
// # How scripts are bound
//
// A script is a file; its Go twin is a call beside it. The script's first lines declare its keys and arguments by name,
//
//	local meta      = KEYS[1]
//	local k         = tonumber(ARGV[2])
//	local rest      = 3            -- the arguments from here on are a list
//
// and the fields of the call's argument struct carry the same names in their tags. They are matched when the package is
// initialised, with the names of keys and the first word of each reply; a difference panics, so the first test that runs finds
// it. A line "-- include num.lua" is replaced by that file of include/; errors of the server are mapped back to the file and line
// they came from. A reply is a word and its values, and a word that Go does not know is an error.
//
// Keys of single jobs and processes are not declared, since a claim learns ids only as it runs. They share the slot, so a
// cluster serves them.
//
// # When a call is sent again
//
// After an answer that proves that the script did not run (LOADING, BUSY, READONLY, TRYAGAIN, CLUSTERDOWN and the like) it is
// sent again for about a second; then the error wraps [ErrUnavailable]. A script that the server does not know is sent along.
// After a time-out or a broken connection it may have run:
//
//   - a claim is never sent again: its jobs come back when their leases end, and what it spent stays spent;
//   - a settle may be, with the same process and sequence: it gets the answers of the first;
//   - an enqueue may be, with the same ids: jobs that exist are not touched;
//   - reads, and calls that set something, may be.
//
// # What a script may do
//
// The server runs a script alone, but does not undo it: what was written before an error stays. So a script reads everything it
// needs, checks everything it read, and only then writes, by commands that can no longer fail. Every declared key that it may
// write is read first, for its type and so that a slot that is being moved answers before the first write. The clock is read
// once. Loops and lists of arguments are bounded; what is left over is told by "more" in the reply. Payloads are passed on and
// never parsed. Times in the arguments that are out of range count as the nearest that is right.
//
// The first line says when the server lets it run: enqueue is "#!lua" and refused when memory is full; all others that write add
// allow-oom, so that the fleet drains the queue; reads are no-writes.
//
// # To add a script
//
//  1. Write name.lua: the line of flags, a comment that begins with the name and says what it does, the declarations, the
//     includes, then read, check, write.
//  2. Name a new key in keyTypes, with its type, and in the table above.
//  3. Write its call in Go: an argument struct with tags, a bind with the words of its replies, a typed result.
//  4. If it changes the queue, let it end with record_audit.
//  5. Add its flags and, if it writes, its scenes to the tests. They try every wrong type on every key, garbage in records and
//     state, another layout, and the audit.
package lua
