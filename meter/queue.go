package meter

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Outcome is how one run of a job ended.
type Outcome string

// The outcomes. Only Retried and Dead are failures.
const (
	Completed  Outcome = "completed"
	Retried    Outcome = "retried"
	Deferred   Outcome = "deferred"
	HandedBack Outcome = "handed_back"
	Dead       Outcome = "dead"
)

const (
	system     = "emq" // the value of messaging.system
	outcomeKey = attribute.Key("emq.job.outcome")
)

func (o Outcome) failed() bool { return o == Retried || o == Dead }

// Queue sends the numbers of one queue. A nil Queue does nothing. It is safe
// for concurrent use. A number of jobs below 1 counts nothing, and a negative
// duration is recorded as 0.
//
// The calls that may run under a span take its context, so that an SDK can tie
// the number to the trace.
type Queue struct {
	m        *Meter
	name     string
	refusing atomic.Bool // the last word of the limits was a refusal

	self                          attrs // the queue's name alone
	send, claim, settle           attrs
	process                       attrs // without an outcome
	processed                     map[Outcome]attrs
	admitted, deferred, unlimited attrs
	enqueueSpan, processSpan      spanStart
}

func newQueue(m *Meter, name string) *Queue {
	destination := semconv.MessagingDestinationName(name)
	operation := func(name string, kind attribute.KeyValue) attrs {
		return newAttrs(semconv.MessagingSystemKey.String(system), destination, semconv.MessagingOperationName(name), kind)
	}
	decision := func(outcome string) attrs {
		return newAttrs(destination, attribute.String("emq.rate_limit.outcome", outcome))
	}
	q := &Queue{
		m:         m,
		name:      name,
		self:      newAttrs(destination),
		send:      operation("enqueue", semconv.MessagingOperationTypeSend),
		claim:     operation("claim", semconv.MessagingOperationTypeReceive),
		settle:    operation("settle", semconv.MessagingOperationTypeSettle),
		process:   operation("process", semconv.MessagingOperationTypeProcess),
		processed: map[Outcome]attrs{},
		admitted:  decision("admitted"),
		deferred:  decision("deferred"),
		unlimited: decision("unlimited"),
	}
	q.enqueueSpan = newSpanStart("enqueue "+name, trace.SpanKindProducer, q.send.list)
	q.processSpan = newSpanStart("process "+name, trace.SpanKindConsumer, q.process.list)
	for _, o := range []Outcome{Completed, Retried, Deferred, HandedBack, Dead} {
		q.processed[o] = q.process.with(outcomeKey.String(string(o)))
	}
	return q
}

// Sent reports one enqueue call of n jobs that took d. An err that is not nil
// says that the call failed; the jobs count as attempted.
func (q *Queue) Sent(ctx context.Context, n int, d time.Duration, err error) {
	if q == nil {
		return
	}
	a := q.failing(ctx, &q.send, err)
	add(ctx, q.m.sent, n, a.add)
	q.m.operation.Record(ctx, seconds(d), a.record...)
}

// Claimed reports one claim call that took d and granted n jobs. A claim that
// granted none counts as empty, unless it failed with err.
func (q *Queue) Claimed(n int, d time.Duration, err error) {
	if q == nil {
		return
	}
	ctx := context.Background()
	q.m.operation.Record(ctx, seconds(d), q.failing(ctx, &q.claim, err).record...)
	add(ctx, q.m.consumed, n, q.claim.add)
	if n == 0 && err == nil {
		q.m.empty.Add(ctx, 1, q.self.add...)
	}
}

// Settled reports one settle call, of one or many jobs, that took d. An err
// that is not nil says that the call failed; a lost lease is an answer to be
// reported by [Queue.LeaseLost], not a failure.
func (q *Queue) Settled(d time.Duration, err error) {
	if q == nil {
		return
	}
	ctx := context.Background()
	q.m.operation.Record(ctx, seconds(d), q.failing(ctx, &q.settle, err).record...)
}

// Processed reports one run of a handler that took d. The err says why a job
// was retried or is dead; with any other outcome it is ignored.
func (q *Queue) Processed(ctx context.Context, d time.Duration, o Outcome, err error) {
	if q == nil || !q.m.process.Enabled(ctx) {
		return
	}
	a, ok := q.processed[o]
	if !ok {
		a = q.process.with(outcomeKey.String(string(o)))
	}
	if o.failed() {
		a = a.with(semconv.ErrorType(err))
	}
	q.m.process.Record(ctx, seconds(d), a.record...)
}

// QueueTime reports that a job waited d from when it was due until it was claimed.
func (q *Queue) QueueTime(d time.Duration) {
	if q == nil {
		return
	}
	q.m.queueTime.Record(context.Background(), seconds(d), q.self.record...)
}

// Busy changes the number of running handlers by delta: 1 at the start of a
// handler, -1 at its end.
func (q *Queue) Busy(delta int) {
	if q == nil {
		return
	}
	q.m.busy.Add(context.Background(), int64(delta), q.self.add...)
}

// LeaseLost reports n jobs whose lease this worker lost while it held them.
func (q *Queue) LeaseLost(n int) {
	if q == nil {
		return
	}
	add(context.Background(), q.m.lost, n, q.self.add)
}

// Reclaimed reports n expired leases whose jobs a claim brought back to wait.
func (q *Queue) Reclaimed(n int) {
	if q == nil {
		return
	}
	add(context.Background(), q.m.reclaimed, n, q.self.add)
}

// failing is a itself, or a with the error's type if there is an error and
// somebody to tell.
func (q *Queue) failing(ctx context.Context, a *attrs, err error) *attrs {
	if err == nil || !q.m.operation.Enabled(ctx) && !q.m.sent.Enabled(ctx) {
		return a
	}
	failed := a.with(semconv.ErrorType(err))
	return &failed
}

// attrs is one attribute set in the forms that the instruments take, so that a
// call builds nothing.
type attrs struct {
	list   []attribute.KeyValue
	add    []metric.AddOption
	record []metric.RecordOption
}

func newAttrs(list ...attribute.KeyValue) attrs {
	set := metric.WithAttributeSet(attribute.NewSet(list...))
	return attrs{list, []metric.AddOption{set}, []metric.RecordOption{set}}
}

func (a attrs) with(kv attribute.KeyValue) attrs {
	return newAttrs(append(slices.Clip(a.list), kv)...)
}

func add(ctx context.Context, c metric.Int64Counter, n int, opts []metric.AddOption) {
	if n > 0 {
		c.Add(ctx, int64(n), opts...)
	}
}

func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }
