package meter_test

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/echomq/emq/meter"
)

// The hook sees every job that was sent back over budget, with or without an
// OpenTelemetry SDK.
func ExampleMeter_RateLimitHit() {
	m := meter.New(meter.Options{
		OnRateLimitHit: func(queue string, delay time.Duration) {
			fmt.Printf("%s is over budget: sent back for %v\n", queue, delay)
		},
	})
	m.RateLimitHit("mail", 1500*time.Millisecond)

	var none *meter.Meter
	none.RateLimitHit("mail", time.Second) // does nothing
	// Output: mail is over budget: sent back for 1.5s
}

func ExampleInject() {
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	}))
	traceparent, _ := meter.Inject(ctx)
	fmt.Println(traceparent)
	// Output: 00-01000000000000000000000000000000-0200000000000000-01
}
