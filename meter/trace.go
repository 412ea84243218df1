package meter

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// spanStart is what every span of one kind starts with.
type spanStart struct {
	name string
	opts []trace.SpanStartOption
}

func newSpanStart(name string, kind trace.SpanKind, attrs []attribute.KeyValue) spanStart {
	return spanStart{name, []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attrs...)}}
}

func (s spanStart) start(ctx context.Context, t trace.Tracer, more ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.Start(ctx, s.name, append(slices.Clip(s.opts), more...)...)
}

// StartEnqueue starts the span of one enqueue call of so many jobs; the returned
// context carries it, for [Inject]. Call end once with the call's error. Without
// [Options].Traces it returns ctx itself and an end that does nothing.
func (q *Queue) StartEnqueue(ctx context.Context, jobs int) (_ context.Context, end func(err error)) {
	if q == nil || q.m.tracer == nil {
		return ctx, func(error) {}
	}
	var batch []trace.SpanStartOption
	if jobs > 1 {
		batch = append(batch, trace.WithAttributes(semconv.MessagingBatchMessageCount(jobs)))
	}
	ctx, span := q.enqueueSpan.start(ctx, q.m.tracer, batch...)
	return ctx, func(err error) {
		if err != nil {
			fail(span, err, err.Error())
		}
		span.End()
	}
}

// StartProcess starts the span of one run of a job's handler; the returned
// context carries it. The traceparent and tracestate that came with the job make a
// link to the span that enqueued it; text that is empty or malformed makes
// none. Call end once with the outcome; only Retried and Dead set the status to
// Error, with err as the reason. Without [Options].Traces it returns ctx itself
// and an end that does nothing.
func (q *Queue) StartProcess(ctx context.Context, traceparent, tracestate, jobID string, attempt int) (_ context.Context, end func(o Outcome, err error)) {
	if q == nil || q.m.tracer == nil {
		return ctx, func(Outcome, error) {}
	}
	opts := []trace.SpanStartOption{trace.WithAttributes(
		semconv.MessagingMessageID(jobID), attribute.Int("emq.job.attempt", attempt))}
	if origin := extract(traceparent, tracestate); origin.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: origin}))
	}
	ctx, span := q.processSpan.start(ctx, q.m.tracer, opts...)
	return ctx, func(o Outcome, err error) {
		if span.IsRecording() {
			span.SetAttributes(outcomeKey.String(string(o)))
		}
		if o.failed() {
			description := string(o)
			if err != nil {
				description = err.Error()
			}
			fail(span, err, description)
		}
		span.End()
	}
}

func fail(span trace.Span, err error, description string) {
	if span.IsRecording() {
		span.SetAttributes(semconv.ErrorType(err))
		span.SetStatus(codes.Error, description)
	}
}

// Inject returns the span in ctx as the W3C fields traceparent and tracestate,
// to travel with a job. Both are empty, at no allocation, when ctx has no span.
// It needs no Meter: without spans of emq's own it carries the caller's. A job
// that already has a traceparent of its user's should keep that one.
func Inject(ctx context.Context) (traceparent, tracestate string) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return "", ""
	}
	fields := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, fields)
	return fields["traceparent"], fields["tracestate"]
}

func extract(traceparent, tracestate string) trace.SpanContext {
	fields := propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate}
	ctx := propagation.TraceContext{}.Extract(context.Background(), fields)
	return trace.SpanContextFromContext(ctx)
}
