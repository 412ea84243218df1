// Package metrics reads numbers about queues from Valkey, for dashboards,
// autoscalers and producers that want to slow down. It changes nothing: every
// read is one read-only script, so a user who may do no more than
// %R~emq:* +@read +eval_ro +evalsha_ro +time (and connect) can use it.
//
//	b, err := metrics.ReadBudget(ctx, client, "mail")
//	fmt.Println(b.Used, "of", b.Max, "used; one more in", b.RetryAfter)
//
// [Budgets] is every limit of a queue, with those of its key values that most jobs wait for; [Explain] says why a job waits, behind
// what and until when. Both read by the claim's own script text, so they say what the next claim would find.
//
// [ReadBudget] is the queue's own limit as the next claim would judge it, by the
// same script text. [RateLimitTTL] and [GlobalRateLimit] are the two reads that
// EchoMQ has (get_rate_limit_ttl/3 and get_global_rate_limit/2). [ReadCounts] is
// how many jobs are where. Package meter is the other half: numbers and events
// that a process sends as it works.
//
// A queue need not exist: one that nobody has set up has no limit and no jobs.
// Every read fails with [lua.ErrBadName] for a name outside the allow-list; reads
// of the limit fail with a [*lua.ConfigError] when it is set to what no claim
// obeys, and with a [*lua.CorruptError] when the counter holds what is no number.
package metrics
