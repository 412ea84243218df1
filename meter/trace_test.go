package meter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/echomq/emq/meter"
)

// withSpan is a context with a span of the user's own.
func withSpan(t testing.TB) context.Context {
	state, err := trace.ParseTraceState("vendor=1")
	require.NoError(t, err)
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0xab}, SpanID: trace.SpanID{0xcd}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
}

const userParent = "00-ab000000000000000000000000000000-cd00000000000000-01"

func TestProcessIsLinkedToEnqueue(t *testing.T) {
	rec := newRecorder()
	q := meter.New(rec.options()).Queue("mail")

	ctx, end := q.StartEnqueue(withSpan(t), 1)
	traceparent, tracestate := meter.Inject(ctx)
	end(nil)
	_, done := q.StartProcess(t.Context(), traceparent, tracestate, "job-1", 2)
	done(meter.Completed, nil)

	require.Len(t, rec.spans, 2)
	enqueue, process := rec.spans[0], rec.spans[1]

	require.Equal(t, "enqueue mail", enqueue.name)
	require.Equal(t, trace.SpanKindProducer, enqueue.start.SpanKind())
	require.Equal(t, trace.SpanID{0xcd}, enqueue.parent.SpanID(), "child of the caller's span")
	require.Equal(t, "messaging.destination.name=mail,messaging.operation.name=enqueue,"+
		"messaging.operation.type=send,messaging.system=emq", text(enqueue.start.Attributes()))

	require.Equal(t, "process mail", process.name)
	require.Equal(t, trace.SpanKindConsumer, process.start.SpanKind())
	require.False(t, process.parent.IsValid(), "not a child of the enqueue")
	require.Len(t, process.start.Links(), 1)
	require.Equal(t, enqueue.context.WithRemote(true), process.start.Links()[0].SpanContext)
	require.Equal(t, "emq.job.attempt=2,messaging.destination.name=mail,messaging.message.id=job-1,"+
		"messaging.operation.name=process,messaging.operation.type=process,messaging.system=emq",
		text(process.start.Attributes()))

	for _, s := range rec.spans {
		require.Equal(t, 1, s.ends)
		require.Equal(t, codes.Unset, s.status)
	}
}

func TestBulkEnqueueSaysHowMany(t *testing.T) {
	rec := newRecorder()
	_, end := meter.New(rec.options()).Queue("mail").StartEnqueue(t.Context(), 7)
	end(errors.New("server down"))

	s := rec.spans[0]
	require.Contains(t, s.start.Attributes(), attribute.Int("messaging.batch.message_count", 7))
	require.Equal(t, codes.Error, s.status)
	require.Equal(t, "server down", s.description)
	require.Equal(t, "error.type=*errors.errorString", text(s.later))
	require.Equal(t, 1, s.ends)
}

func TestOnlyFailuresAreErrors(t *testing.T) {
	rec := newRecorder()
	q := meter.New(rec.options()).Queue("mail")
	bad := errors.New("bad address")
	for _, c := range []struct {
		outcome     meter.Outcome
		err         error
		status      codes.Code
		description string
		later       string
	}{
		{meter.Completed, nil, codes.Unset, "", "emq.job.outcome=completed"},
		{meter.Deferred, bad, codes.Unset, "", "emq.job.outcome=deferred"},
		{meter.HandedBack, context.Canceled, codes.Unset, "", "emq.job.outcome=handed_back"},
		{meter.Retried, bad, codes.Error, "bad address", "emq.job.outcome=retried,error.type=*errors.errorString"},
		{meter.Dead, nil, codes.Error, "dead", "emq.job.outcome=dead,error.type=_OTHER"},
	} {
		_, done := q.StartProcess(t.Context(), "", "", "job-1", 1)
		done(c.outcome, c.err)
		s := rec.spans[len(rec.spans)-1]
		require.Equal(t, c.status, s.status, c.outcome)
		require.Equal(t, c.description, s.description, c.outcome)
		require.Equal(t, c.later, text(s.later), c.outcome)
		require.Equal(t, 1, s.ends, c.outcome)
		require.Empty(t, s.start.Links(), c.outcome)
	}
}

func TestMalformedTraceparentMakesNoLink(t *testing.T) {
	rec := newRecorder()
	q := meter.New(rec.options()).Queue("mail")
	for _, text := range []string{"", "x", "\x00", userParent + "-more", "00-" + userParent} {
		_, done := q.StartProcess(t.Context(), text, "vendor=1", "job-1", 1)
		done(meter.Completed, nil)
		require.Empty(t, rec.spans[len(rec.spans)-1].start.Links(), "%q", text)
	}
	_, done := q.StartProcess(t.Context(), userParent, "not a state", "job-1", 1)
	done(meter.Completed, nil)
	require.Len(t, rec.spans[len(rec.spans)-1].start.Links(), 1, "a bad tracestate does not spoil the traceparent")
}

func TestInjectCarriesTheUsersSpan(t *testing.T) {
	user := withSpan(t)
	off := newRecorder()
	o := off.options()
	o.Traces = false
	for name, q := range map[string]*meter.Queue{"nil meter": nil, "spans off": meter.New(o).Queue("mail")} {
		ctx, end := q.StartEnqueue(user, 1)
		require.Equal(t, user, ctx, name)
		traceparent, tracestate := meter.Inject(ctx)
		require.Equal(t, userParent, traceparent, name)
		require.Equal(t, "vendor=1", tracestate, name)
		end(errors.New("ignored"))

		ctx, done := q.StartProcess(user, traceparent, tracestate, "job-1", 1)
		require.Equal(t, user, ctx, name)
		done(meter.Dead, errors.New("ignored"))
	}
	require.Empty(t, off.spans)

	traceparent, tracestate := meter.Inject(t.Context())
	require.Empty(t, traceparent+tracestate)
}
