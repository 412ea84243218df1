package meter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	lognoop "go.opentelemetry.io/otel/log/noop"
	metricnoop "go.opentelemetry.io/otel/metric/noop"

	"github.com/echomq/emq/meter"
)

type namedCall struct {
	name string
	call func()
}

// calls are all calls of a Meter and its Queue, errors and edges included.
func calls(m *meter.Meter) []namedCall {
	ctx, q, d := context.Background(), m.Queue("mail"), 250*time.Millisecond
	bad := errors.New("bad")
	return []namedCall{
		{"Meter.Queue", func() { m.Queue("mail") }},
		{"Meter.RateLimitHit", func() { m.RateLimitHit("mail", d) }},
		{"RateLimitHit", func() { q.RateLimitHit(d) }},
		{"RateLimitHit on the edge", func() { q.Admitted(1); q.RateLimitHit(d) }},
		{"Admitted", func() { q.Admitted(1) }},
		{"Unlimited", func() { q.Unlimited(1) }},
		{"Sent", func() { q.Sent(ctx, 1, d, nil) }},
		{"Sent failed", func() { q.Sent(ctx, 1, d, bad) }},
		{"Claimed", func() { q.Claimed(1, d, nil) }},
		{"Claimed none", func() { q.Claimed(0, d, nil) }},
		{"Claimed failed", func() { q.Claimed(0, d, bad) }},
		{"Settled", func() { q.Settled(d, nil) }},
		{"Settled failed", func() { q.Settled(d, bad) }},
		{"Processed", func() { q.Processed(ctx, d, meter.Completed, nil) }},
		{"Processed failed", func() { q.Processed(ctx, d, meter.Retried, bad) }},
		{"QueueTime", func() { q.QueueTime(d) }},
		{"Busy", func() { q.Busy(1) }},
		{"LeaseLost", func() { q.LeaseLost(1) }},
		{"Reclaimed", func() { q.Reclaimed(1) }},
		{"StartEnqueue", func() { _, end := q.StartEnqueue(ctx, 2); end(bad) }},
		{"StartProcess", func() { _, end := q.StartProcess(ctx, userParent, "", "job-1", 1); end(meter.Retried, bad) }},
		{"Inject", func() { meter.Inject(ctx) }},
	}
}

// silent are the Meters that nobody listens to.
func silent() map[string]*meter.Meter {
	return map[string]*meter.Meter{
		"nil":    nil,
		"global": meter.New(meter.Options{OnRateLimitHit: func(string, time.Duration) {}}),
		"no-op": meter.New(meter.Options{
			MeterProvider:  metricnoop.NewMeterProvider(),
			LoggerProvider: lognoop.NewLoggerProvider(),
		}),
	}
}

func TestNothingIsAllocatedWhenNobodyListens(t *testing.T) {
	for name, m := range silent() {
		for _, c := range calls(m) {
			require.Zero(t, testing.AllocsPerRun(100, c.call), "%s meter: %s", name, c.name)
		}
	}
}
