package meter

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scope names emq as the source of its telemetry.
const scope = "github.com/echomq/emq"

// Options configure a [Meter]. The zero value sends metrics and events, but no
// spans, to the global OpenTelemetry providers.
type Options struct {
	// MeterProvider receives the metrics; nil means the global one.
	MeterProvider metric.MeterProvider

	// TracerProvider receives the spans if Traces is set; nil means the global one.
	TracerProvider trace.TracerProvider

	// LoggerProvider receives the event rate_limit.hit; nil means the global one.
	LoggerProvider log.LoggerProvider

	// Traces turns spans on. They are off by default because starting a span
	// allocates even when no SDK is installed.
	Traces bool

	// OnRateLimitHit, if set, is called for every send-back with the queue and
	// the time until the job is due again. The claiming goroutines call it
	// themselves, several at a time, so it must return quickly.
	OnRateLimitHit func(queue string, delay time.Duration)

	// EveryHit emits the event rate_limit.hit for every send-back instead of
	// only on the edge from granting to refusing.
	EveryHit bool
}

// Meter makes the [Queue] of each queue name. A nil Meter does nothing and
// costs nothing. It is safe for concurrent use.
type Meter struct {
	instruments
	tracer   trace.Tracer // nil without Options.Traces
	logger   log.Logger
	onHit    func(queue string, delay time.Duration)
	everyHit bool

	mu     sync.RWMutex
	queues map[string]*Queue // guarded by mu
}

// New makes a Meter. An instrument that its provider refuses is replaced by one
// that does nothing, and the error goes to the OpenTelemetry error handler.
func New(o Options) *Meter {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.LoggerProvider == nil {
		o.LoggerProvider = otel.GetLoggerProvider()
	}
	m := &Meter{
		instruments: newInstruments(o.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))),
		logger:      o.LoggerProvider.Logger(scope, log.WithSchemaURL(semconv.SchemaURL)),
		onHit:       o.OnRateLimitHit,
		everyHit:    o.EveryHit,
		queues:      map[string]*Queue{},
	}
	if o.Traces {
		m.tracer = o.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	}
	return m
}

// Queue returns the queue's own part of the Meter, the same one for the same
// name; nil if m is nil. It is kept as long as the Meter, so names should be few.
func (m *Meter) Queue(name string) *Queue {
	if m == nil {
		return nil
	}
	m.mu.RLock()
	q := m.queues[name]
	m.mu.RUnlock()
	if q != nil {
		return q
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if q = m.queues[name]; q == nil {
		q = newQueue(m, name)
		m.queues[name] = q
	}
	return q
}

// RateLimitHit reports one job of the queue sent back over budget, due again
// after delay. It is [Queue.RateLimitHit] for callers that hold only the name.
func (m *Meter) RateLimitHit(queue string, delay time.Duration) {
	m.Queue(queue).RateLimitHit(delay)
}
