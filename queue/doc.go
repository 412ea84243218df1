// Package queue puts jobs into a queue on Valkey, and looks after them there: it is the producer's and the operator's side.
//
// It is for programs that call services with published limits (a chat API, a payment or a model provider) from a fleet of
// worker processes. The jobs enqueued here are claimed and run by package [github.com/echomq/emq/worker], and the claim itself
// spends the queue's limit: however many workers there are, all of them together stay under it.
//
// # The calls that matter
//
//	q, err := queue.New(client, "mail", queue.Options{})        // client: a valkey.Client of yours
//	before, err := q.SetLimit(ctx, limiter.PerSecond(100), why) // once, or whenever it changes
//	id, err := q.Enqueue(ctx, queue.Job{Payload: body})         // any time, from anywhere
//
// [Queue.Enqueue] puts one job in, [Queue.EnqueueMany] many; [TypedOf] does it with values of one type, as JSON. [Job] says what
// else can be asked for: an id of its own, a name that chooses the handler, a priority, a delay, the number of attempts, a
// time-out, a result that is kept. Only the payload is usual.
//
// The operator's calls:
//
//   - [Queue.SetLimit], [Queue.LiftLimit] and [Queue.Limit] rule the queue's own limit, which the whole fleet shares.
//   - [Queue.SetNamedLimit], [Queue.RemoveNamedLimit] and [Queue.NamedLimits] rule any number of further ones: by a key of the job
//     (each tenant, model or chat), by a cost (tokens), or of jobs in flight ([Concurrency]). A job is handed out when all grant it.
//   - [Queue.Close] and [Queue.Reopen], [Queue.CloseKey] and [Queue.ReopenKey] hand out nothing until an upstream wants more.
//     [Queue.Pause] and [Queue.Resume] stop and restart all claims.
//   - [Queue.Get], [Queue.List] and [Queue.Counts] show where jobs are and why.
//   - [Queue.RunNow], [Queue.Redrive], [Queue.Delete] and [Queue.Drain] move and remove them.
//
// # Where a job can be
//
// [Wait], in order of its place: by priority, then by turn. [Active], under a worker's lease. [Delayed], until its due time,
// or, if it was over budget and a limit sent it back, until that limit lets it run at the place it had. [Dead], when it was
// given up; it is kept until it is redriven or deleted. [Completed], if its Retain asks for that; else it is removed at its end.
//
// # What is promised
//
// A job whose enqueue call returned without error is handed to a handler at least once, until it succeeds, is deleted, or has
// used up its attempts and is kept as dead, as long as the Valkey primary keeps that write. It can run more than once: after a
// crash, a lost lease, a lost reply or a failover. Make handlers idempotent.
//
// A job with an id of its own is not enqueued twice while it exists: [ErrDuplicate]. So after a time-out, when nobody knows
// whether the job went in, enqueue it again with the same id. Once it has completed and is no longer kept, its id is free.
//
// Waiting jobs of one priority are claimed in the order in which they were enqueued. Retried, deferred and delayed ones join at
// the end when they fall due; a job that a limit sent back keeps its place.
//
// Not promised: that a job runs once, and only once; that jobs finish in any order; that anything survives which the server did
// not keep (choose appendfsync and replicas accordingly). An evicting maxmemory-policy is refused; see [Options].AllowEviction.
//
// # Costs
//
// Enqueue is one round trip and one script; EnqueueMany is one for each 1,000 jobs or 4 MiB. A waiting job takes about 210 bytes
// of the server's memory and its payload. Claims read payloads inside a script that the whole server waits for, so keep large
// bodies elsewhere and enqueue where they are. [Queue.Counts] costs the same for any number of jobs; a page of [Queue.List] costs
// by its length, and for waiting jobs by its offset too. When the server's memory is full, only enqueueing is refused
// ([ErrStoreFull]), so that the fleet drains the queue; when its disk is full, everything that writes is.
//
// # Errors
//
// Errors say which value is wrong and what would be right, and match one of the variables below by errors.Is. None of them leaves
// anything half done. What cannot be enqueued is refused before anything is sent.
package queue
