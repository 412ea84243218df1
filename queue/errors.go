package queue

import (
	"errors"

	"github.com/echomq/emq/lua"
)

// What can go wrong, for errors.Is. Each error says beside it which value is wrong, where, and what would be right. None of
// them leaves anything half done.
var (
	// ErrBadName: a queue, job or key name or a job id outside the allow-list. Before anything is sent.
	ErrBadName = lua.ErrBadName
	// ErrBadJob: a job that cannot be enqueued as it is (priority, delay, cost, …). Before anything is sent.
	ErrBadJob = errors.New("bad job")
	// ErrPayloadTooLarge: a payload above [Options].MaxPayload. Before anything is sent.
	ErrPayloadTooLarge = errors.New("payload too large")
	// ErrDuplicate: a job with this id exists, in whatever state. It was not touched.
	ErrDuplicate = errors.New("duplicate job id")
	// ErrTooHeavy: a cost of the job is above what a limit ever grants at once. It is not stored.
	ErrTooHeavy = errors.New("job too heavy")
	// ErrNoLimit: the queue has no limit of that name.
	ErrNoLimit = errors.New("no such limit")
	// ErrNotFound: no job of this id exists (it never did, or it completed and was not kept).
	ErrNotFound = errors.New("job not found")
	// ErrWrongState: the job exists but is not in the state that the call is for. It was not touched.
	ErrWrongState = errors.New("job in another state")
	// ErrUnavailable: the server answered that it cannot serve now. Nothing ran; the call may be repeated.
	ErrUnavailable = lua.ErrUnavailable
	// ErrStoreFull: the server has no memory for new jobs (claims and settles go on), or no disk for anything. Nothing ran.
	ErrStoreFull = lua.ErrStoreFull
	// ErrServerTooOld: the server is older than Valkey 7.2 or Redis 7.0.
	ErrServerTooOld = lua.ErrServerTooOld
	// ErrEvicts: the server's maxmemory-policy may evict keys, limiters and leases first; see [Options].AllowEviction.
	ErrEvicts = lua.ErrEvicts
	// ErrNoAccess: the user of the connection may not run a command that a script runs, which would end half done. It says which.
	ErrNoAccess = lua.ErrNoAccess
)

// ConfigError says that the queue's settings are such that no claim obeys them; claims refuse until they are mended.
type ConfigError = lua.ConfigError

// CorruptError says that a key of the queue holds what it should not. Nothing was changed.
// Resetting the limit heals a limiter; no other key may be deleted by hand.
type CorruptError = lua.CorruptError
