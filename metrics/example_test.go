package metrics_test

import (
	"context"
	"fmt"
	"time"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/metrics"
)

// A producer that slows down while the queue's budget is spent.
func Example() {
	ctx := context.Background()
	client, _ := emqtest.Start() // or valkey.NewClient(valkey.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})

	// Any runtime may set the limit and spend it.
	client.Do(ctx, client.B().Hset().Key("emq:{example-metrics}:meta").FieldValue().
		FieldValue("max", "100").FieldValue("duration", "60000").Build())
	client.Do(ctx, client.B().Set().Key("emq:{example-metrics}:limiter").Value("100").Px(time.Minute).Build())
	defer client.Do(ctx, client.B().Del().Key("emq:{example-metrics}:meta", "emq:{example-metrics}:limiter").Build())

	b, err := metrics.ReadBudget(ctx, client, "example-metrics")
	if err != nil {
		panic(err)
	}
	fmt.Println(b.Used, "of", b.Max, "used, limited:", b.Limited)
	fmt.Println("one more in", b.RetryAfter.Round(time.Second))

	max, _ := metrics.GlobalRateLimit(ctx, client, "example-metrics")
	ttl, _ := metrics.RateLimitTTL(ctx, client, "example-metrics", 0)
	fmt.Println(max, ttl.Round(time.Second))
	// Output:
	// 100 of 100 used, limited: true
	// one more in 1m0s
	// 100 1m0s
}
