// Package worker runs the jobs of a queue: the fleet's side.
//
// It is for programs that work off jobs enqueued by package [github.com/echomq/emq/queue], in as many processes as they like.
// The queue's limits hold for all of them together; a worker has none of its own.
//
// # The calls that matter
//
//	w, err := worker.New(client, "mail", func(ctx context.Context, job *worker.Job) error {
//		return send(ctx, job.Payload)
//	}, worker.Options{})
//	err = w.Run(ctx) // until ctx ends
//
// [Handler] runs one job; [Mux] chooses one by the job's name, [Typed] decodes JSON payloads, [Middleware] wraps them all.
// [Worker.Run] claims and runs jobs until its context ends or [Worker.Stop] is called.
//
// # What a handler returns
//
//	nil                     the job is complete
//	an error, or a panic    another attempt after a back-off; dead when the attempts are used up
//	Defer(d)                again after d; no attempt is spent
//	RateLimited(d)          the queue, or with Key a key value, is closed for d; the job keeps its place, no attempt is spent
//	DeadLetter(err)         dead at once
//
// [Job].SetResult keeps a result with a job whose producer asked for one, [Job].SetCost says what it really cost. The handler's context ends at the job's time-out, when
// its lease is lost, and at the end of the grace; context.Cause tells which. A handler that fails after [ErrStopping] hands its job
// back with the attempt unspent.
//
// # Stopping
//
// When Run's context ends, typically by signal.NotifyContext, the worker claims no more, and running handlers have
// [Options].Grace to finish. Then their contexts end, and what is unfinished is handed back at its place. [Worker.HandBack] skips
// the grace, for a second signal. Run returns when all is settled.
//
// # What is promised
//
// Each job runs at least once, and more than once after a crash, a lost lease or a lost reply: handlers must be idempotent. While
// a handler runs its lease is extended; if that fails, its context ends before the lease does, and what it returns after the end
// of the lease is refused and changes nothing. A worker that loses the server waits for it and goes on. A job that is over budget
// is sent back with its attempt unspent and is claimed again, at its place, when the limit grants it.
//
// Not promised: that a handler stops when its context ends (one that ignores it keeps its slot and, up to
// [Options].StuckAfter, its job); that calls reach the limited service at the pace of the claims. Leave room in the limit if the
// service counts in another way.
//
// # Costs
//
// A worker takes one connection of the client for the blocking pop in which it sleeps. An idle worker does not poll for jobs: it is
// woken. Of all workers of a queue one has a timer for what comes next, one looks every 0.8 s whether work waits that nobody answers for, and of the
// others one does so every 2.5 s, whatever their number. A busy one makes one claim for all its free
// slots and one settle call for all jobs that ended meanwhile, and three times a lease one call that extends all leases.
package worker
