// Package claim takes jobs out of a queue under leases and within its limit, and settles them. It is for programs with a loop of
// their own; most use package [github.com/echomq/emq/worker], which is such a loop.
//
// # The loop
//
//	c, err := claim.New(client, "mail", claim.Options{})
//	b, err := c.Claim(ctx, k)                                 // up to k jobs
//	late, err := c.Settle(ctx, []claim.Outcome{claim.Complete(job)})
//	woken, err := c.Await(ctx, wait)                          // until another claim is worth making
//
// [Claimer.Claim] does all that must be done at once, in one step of the server: it brings back delayed jobs that are due and
// jobs whose lease has run out, then grants waiting jobs in order of their places as far as their limits allow, and spends what
// they cost. A job is granted when every limit that it falls under grants it; else nothing is spent. To be refused is an answer, not an
// error: [Batch] then says which jobs were sent back, by which limit and for how long. When a limit that every job falls under
// refuses, it is Limited, and RetryAfter is when a claim is granted again; one refused by a limit by key or by cost stands in the line
// of its bucket, and the claim goes on with the next.
//
// [Batch].Next is when that is: 0 for at once, -1 when nothing is known to come. Sleep in [Claimer.Await], which returns when an
// enqueue, a raised limit or another claim finds that there is work: as many sleepers are woken, one after the other, as there is
// work for. A limit that another runtime changed wakes nobody, so let [Claimer.Look] look once a second; it changes nothing. A loop that
// stays, as package worker is, claims by [Claimer.Watch] instead: then the server says which process of the fleet is to look, and when.
//
// # Leases
//
// A claimed job belongs to its claimer until its lease ends (30 s unless [Options].Lease says otherwise; by the server's clock).
// [Claimer.Extend] moves the end, for many jobs in one call. A lease that runs out sends the job back to wait, at its place; after
// [Options].MaxReclaims such losses the job is dead, since it may be what kills its workers. [Job].Suspect marks the last try
// before that: its claim grants nothing after it, and a loop does well to claim nothing more until it has ended.
//
// # The ends of a job
//
// [Complete], [Retry] (the attempt is spent), [Defer] (it is kept), [HandBack] (at its place, kept), [RateLimited] (the same, and the
// queue or a key value is closed for a time) and [DeadLetter]. Each carries its lease: if that has ended the answer is [ErrLeaseLost]
// and nothing was changed. What a job cost in truth is said by [Job.SetCost]: the difference to its reservation goes back to where it
// was taken, or is charged.
//
// # What is promised
//
//   - Of one job at most one lease is live, on one primary. Its holder may still be running when the lease has ended: give
//     [Job.Token] to a store that can refuse an earlier holder.
//   - No window admits more claims than the limit's max, whoever claims, crashes or loses replies. A window opens with its first
//     claim, so that across the seam of two up to 2·max-1 claims can fall into a span shorter than one window.
//   - A settle whose reply was lost is repeated by [Claimer.Settle] itself, and answered as it was the first time.
//   - A claim is never repeated by itself. If its reply was lost, its jobs come back when their leases end, and what it spent
//     stays spent: the fleet may then run under its limit, never over.
//
// Not promised: that budgets outlive the counter (a server without persistence that restarts, a failover that lost writes, an
// eviction); the order of retried, delayed and reclaimed jobs.
//
// # Costs
//
// A claim is one script call for up to k jobs. It looks at about 128 + k of them and adds none after 256 KiB of payload, so that it
// holds the server for few milliseconds; when that was not enough, More asks to claim again at once. A claim that a limit for all jobs
// refuses sends back one job at most. One settle call is under way at a time: the server remembers each claimer's last one, for one lease.
package claim
