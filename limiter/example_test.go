package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
)

// Three calls an hour for each user, whatever the number of processes that ask.
func ExampleLimiter_Take() {
	ctx := context.Background()
	client, _ := emqtest.Start() // or valkey.NewClient(valkey.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
	l, err := limiter.New(client, limiter.Options{Prefix: "example:take:", Timeout: time.Second})
	if err != nil {
		panic(err)
	}
	defer l.Reset(ctx, "user:7")

	for range 4 {
		d, err := l.Take(ctx, "user:7", limiter.PerHour(3), 1)
		switch {
		case err != nil:
			fmt.Println(err)
		case d.Allowed:
			fmt.Println("go on,", d.Remaining, "left")
		default:
			fmt.Println("too many calls, again in", d.RetryAfter.Round(time.Minute))
		}
	}
	// Output:
	// go on, 2 left
	// go on, 1 left
	// go on, 0 left
	// too many calls, again in 1h0m0s
}

// A store that is down is answered within the time-out as the options say, from the first call.
func ExampleNewLazy() {
	l, err := limiter.NewLazy(func() (valkey.Client, error) {
		return valkey.NewClient(valkey.ClientOption{InitAddress: []string{"127.0.0.1:1"}}) // nobody listens
	}, limiter.Options{
		OnError: limiter.FailOpen,
		Observe: func(key string, err error) {
			fmt.Println(key, "was not judged:", errors.Is(err, limiter.ErrUnavailable))
		},
	})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	d, err := l.Take(context.Background(), "user:7", limiter.PerHour(3), 1)
	fmt.Println(d.Allowed, d.Source, err)
	// Output:
	// user:7 was not judged: true
	// true failed open <nil>
}

// The model needs no server and takes the time as an argument.
func ExampleWindow() {
	var w limiter.Window
	limit := limiter.Every(3 * time.Second)
	for _, now := range []int64{1000, 2000, 3999, 4000} {
		d, err := w.Take(now, limit, 1)
		fmt.Println(now, d.Allowed, d.RetryAfter, err)
	}
	// Output:
	// 1000 true 0s <nil>
	// 2000 false 2s <nil>
	// 3999 false 1ms <nil>
	// 4000 true 0s <nil>
}
