package meter

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

const hitEvent = "rate_limit.hit"

// Admitted reports n jobs that a claim granted under at least one limit. Report
// the grants of a claim before its send-backs: a claim that spends the last of
// a budget and is then refused leaves the queue refusing.
func (q *Queue) Admitted(n int) {
	if q != nil {
		q.granted(n, &q.admitted)
	}
}

// Unlimited reports n jobs that a claim granted with no limit set.
func (q *Queue) Unlimited(n int) {
	if q != nil {
		q.granted(n, &q.unlimited)
	}
}

func (q *Queue) granted(n int, decision *attrs) {
	if n > 0 && q.refusing.Load() {
		q.refusing.Store(false)
	}
	add(context.Background(), q.m.decisions, n, decision.add)
}

// RateLimitHit reports one job sent back over budget, due again after delay. It
// counts the send-back, records the delay, calls [Options].OnRateLimitHit and,
// on the edge from granting to refusing, emits the event rate_limit.hit.
func (q *Queue) RateLimitHit(delay time.Duration) {
	if q == nil {
		return
	}
	ctx := context.Background()
	q.m.hits.Add(ctx, 1, q.self.add...)
	q.m.decisions.Add(ctx, 1, q.deferred.add...)
	q.m.delay.Record(ctx, seconds(delay), q.self.record...)
	if edge := !q.refusing.Swap(true); edge || q.m.everyHit {
		q.emitHit(ctx, delay)
	}
	if q.m.onHit != nil {
		q.m.onHit(q.name, delay)
	}
}

func (q *Queue) emitHit(ctx context.Context, delay time.Duration) {
	if !q.m.logger.Enabled(ctx, log.EnabledParameters{Severity: log.SeverityInfo, EventName: hitEvent}) {
		return
	}
	var r log.Record
	r.SetEventName(hitEvent)
	r.SetTimestamp(time.Now())
	r.SetSeverity(log.SeverityInfo)
	r.AddAttributes(
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingDestinationName(q.name),
		attribute.Float64("emq.rate_limit.delay", seconds(delay)),
	)
	q.m.logger.Emit(ctx, r)
}
