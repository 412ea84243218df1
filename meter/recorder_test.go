package meter_test

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/log"
	lognoop "go.opentelemetry.io/otel/log/noop"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/echomq/emq/meter"
)

// recorder keeps everything a Meter sends, in order.
type recorder struct {
	mu     sync.Mutex
	made   map[string]instrument
	lines  []string // one per measurement: "name value {attributes}"
	spans  []*span
	events []log.Record
	refuse error // answer to every new instrument
}

type instrument struct {
	unit, description string
	buckets           []float64
}

func newRecorder() *recorder { return &recorder{made: map[string]instrument{}} }

// options send everything, spans too, to the recorder.
func (r *recorder) options() meter.Options {
	return meter.Options{
		MeterProvider:  meterProvider{rec: r},
		TracerProvider: tracerProvider{rec: r},
		LoggerProvider: loggerProvider{rec: r},
		Traces:         true,
	}
}

// take returns the measurements since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

func (r *recorder) line(name string, value any, set attribute.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%s %v {%s}", name, value, set.Encoded(attribute.DefaultEncoder())))
}

func (r *recorder) make(name string, i instrument) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made[name] = i
	return r.refuse
}

type (
	meterProvider struct {
		metricnoop.MeterProvider
		rec *recorder
	}
	otelMeter struct {
		metricnoop.Meter
		rec *recorder
	}
	counter struct {
		metricnoop.Int64Counter
		name string
		rec  *recorder
	}
	upDownCounter struct {
		metricnoop.Int64UpDownCounter
		name string
		rec  *recorder
	}
	histogram struct {
		metricnoop.Float64Histogram
		name string
		rec  *recorder
	}
)

func (p meterProvider) Meter(string, ...metric.MeterOption) metric.Meter {
	return otelMeter{rec: p.rec}
}

func (m otelMeter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c := metric.NewInt64CounterConfig(opts...)
	if err := m.rec.make(name, instrument{unit: c.Unit(), description: c.Description()}); err != nil {
		return nil, err
	}
	return counter{name: name, rec: m.rec}, nil
}

func (m otelMeter) Int64UpDownCounter(name string, opts ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	c := metric.NewInt64UpDownCounterConfig(opts...)
	if err := m.rec.make(name, instrument{unit: c.Unit(), description: c.Description()}); err != nil {
		return nil, err
	}
	return upDownCounter{name: name, rec: m.rec}, nil
}

func (m otelMeter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	c := metric.NewFloat64HistogramConfig(opts...)
	i := instrument{unit: c.Unit(), description: c.Description(), buckets: c.ExplicitBucketBoundaries()}
	if err := m.rec.make(name, i); err != nil {
		return nil, err
	}
	return histogram{name: name, rec: m.rec}, nil
}

func (counter) Enabled(context.Context) bool { return true }

func (c counter) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	c.rec.line(c.name, n, metric.NewAddConfig(opts).Attributes())
}

func (c upDownCounter) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	c.rec.line(c.name, n, metric.NewAddConfig(opts).Attributes())
}

func (histogram) Enabled(context.Context) bool { return true }

func (h histogram) Record(_ context.Context, v float64, opts ...metric.RecordOption) {
	h.rec.line(h.name, v, metric.NewRecordConfig(opts).Attributes())
}

type (
	loggerProvider struct {
		lognoop.LoggerProvider
		rec *recorder
	}
	logger struct {
		lognoop.Logger
		rec *recorder
	}
)

func (p loggerProvider) Logger(string, ...log.LoggerOption) log.Logger { return logger{rec: p.rec} }

func (logger) Enabled(context.Context, log.EnabledParameters) bool { return true }

func (l logger) Emit(_ context.Context, record log.Record) {
	l.rec.mu.Lock()
	defer l.rec.mu.Unlock()
	l.rec.events = append(l.rec.events, record)
}

type (
	tracerProvider struct {
		tracenoop.TracerProvider
		rec *recorder
	}
	tracer struct {
		tracenoop.Tracer
		rec *recorder
	}
	// span is used by one goroutine.
	span struct {
		tracenoop.Span
		name        string
		context     trace.SpanContext
		parent      trace.SpanContext
		start       trace.SpanConfig
		later       []attribute.KeyValue
		status      codes.Code
		description string
		ends        int
	}
)

func (p tracerProvider) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{rec: p.rec} }

func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	t.rec.mu.Lock()
	defer t.rec.mu.Unlock()
	id := byte(len(t.rec.spans) + 1)
	s := &span{
		name: name,
		context: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{id}, SpanID: trace.SpanID{id}, TraceFlags: trace.FlagsSampled,
		}),
		parent: trace.SpanContextFromContext(ctx),
		start:  trace.NewSpanStartConfig(opts...),
	}
	t.rec.spans = append(t.rec.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SpanContext() trace.SpanContext         { return s.context }
func (s *span) IsRecording() bool                      { return s.ends == 0 }
func (s *span) SetStatus(c codes.Code, text string)    { s.status, s.description = c, text }
func (s *span) SetAttributes(kv ...attribute.KeyValue) { s.later = append(s.later, kv...) }
func (s *span) End(...trace.SpanEndOption)             { s.ends++ }

// text renders attributes sorted by key.
func text(list []attribute.KeyValue) string {
	set := attribute.NewSet(list...)
	return set.Encoded(attribute.DefaultEncoder())
}
