// Package meter sends the numbers and events of emq to OpenTelemetry.
//
// It uses the OpenTelemetry API only. Which SDK receives the data, or whether
// one does, is the program's choice:
//
//	m := meter.New(meter.Options{Traces: true}) // the global providers
//	q := m.Queue("mail")
//	q.Admitted(3)
//	q.RateLimitHit(800 * time.Millisecond)
//
// The global providers may be set before or after New.
//
// # Cost
//
// A nil *[Meter] does nothing, its queues are nil, and a nil *[Queue] does
// nothing. With a Meter but no SDK, every call on a Queue stays free of
// allocations and builds no attributes: the attribute sets of a queue are made
// once, in [Meter.Queue]. Spans are the exception, since even the no-op tracer
// allocates; they stay off until [Options].Traces is set.
//
// # Metrics
//
// Every one carries messaging.destination.name, the queue. Names under
// messaging follow the semantic conventions and carry messaging.system "emq",
// messaging.operation.name and messaging.operation.type too.
//
//	name                                 instrument     unit        more attributes
//	messaging.client.sent.messages       counter        {message}   error.type
//	messaging.client.consumed.messages   counter        {message}
//	messaging.client.operation.duration  histogram      s           error.type
//	messaging.process.duration           histogram      s           emq.job.outcome, error.type
//	emq.rate_limit.hit                   counter        {job}
//	emq.rate_limit.delay                 histogram      s
//	emq.rate_limit.decisions             counter        {decision}  emq.rate_limit.outcome
//	emq.job.queue_time                   histogram      s
//	emq.claim.empty                      counter        {claim}
//	emq.lease.lost                       counter        {lease}
//	emq.lease.reclaimed                  counter        {lease}
//	emq.worker.busy                      updowncounter  {job}
//
// messaging.operation.name, with its type, is enqueue (send), claim (receive),
// process (process) or settle (settle). emq.rate_limit.outcome is admitted,
// deferred or unlimited; emq.job.outcome is an [Outcome]. error.type is the Go
// type of the error, or what its ErrorType() string method says. A job that was
// deferred or handed back is no failure: it never has an error.type.
//
// All of these are counted where the work happens, so summing over workers is
// right. Job ids, key values and attempts are never metric attributes.
//
// # The event rate_limit.hit
//
// A log record with the event name rate_limit.hit, severity INFO and the
// attributes messaging.system, messaging.destination.name and
// emq.rate_limit.delay (seconds). It is emitted on the edge from granting to
// refusing, as this process sees it, so at most once per claim; with
// [Options].EveryHit, for every send-back. The counter emq.rate_limit.hit always
// counts every send-back.
//
// # Spans
//
// "enqueue <queue>" (kind PRODUCER) and "process <queue>" (kind CONSUMER).
// [Inject] gives the text of the first that travels with the job, and the
// second is linked to it, not its child: a job may run hours later. The text is
// W3C Trace Context, whatever propagator the program uses elsewhere.
package meter
