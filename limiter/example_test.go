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

// A chat service takes about 30 posts a second from one bot, and one a second for each chat. A post may be sent only when both
// grant; what one of them refuses is not spent on the other.
func ExampleLimiter_TakeAll() {
	ctx := context.Background()
	client, _ := emqtest.Start()
	l, err := limiter.New(client, limiter.Options{Prefix: "example:{bot}:", Timeout: time.Second}) // one {hashtag}, one slot
	if err != nil {
		panic(err)
	}
	all := limiter.Bucket{Key: "all", Limit: limiter.Limit{Algorithm: limiter.TokenBucket, Max: 30, Window: time.Second}}
	send := func(chat string) {
		one := limiter.Bucket{Key: "chat:" + chat, Limit: limiter.Limit{Algorithm: limiter.TokenBucket, Max: 1, Window: time.Second}}
		defer l.Reset(ctx, one.Key)
		for range 2 {
			d, err := l.TakeAll(ctx, []limiter.Bucket{all, one}, 1)
			switch {
			case err != nil:
				fmt.Println(err)
			case d.Allowed:
				fmt.Println("send to", chat)
			default:
				fmt.Println(chat, "again within", d.RetryAfter.Round(time.Second), "refused by", d.DeniedBy())
			}
		}
	}
	defer l.Reset(ctx, all.Key)
	send("ann")
	send("bob")
	// Output:
	// send to ann
	// ann again within 1s refused by [1]
	// send to bob
	// bob again within 1s refused by [1]
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

// A leaky bucket lets a burst in and says when each unit leaves: evenly, 200 ms apart. A token bucket of the same size lets it
// through at once.
func ExampleModel_leakyBucket() {
	limit := limiter.Limit{Algorithm: limiter.LeakyBucket, Max: 5, Window: time.Second, Burst: 3}
	var m limiter.Model
	for range 4 {
		d, _ := m.Take(1000, limit, 1)
		fmt.Println(d.Allowed, d.Delay, d.RetryAfter)
	}
	// Output:
	// true 0s 0s
	// true 200ms 0s
	// true 400ms 0s
	// false 0s 200ms
}

// The model needs no server and takes the time as an argument.
func ExampleModel() {
	var m limiter.Model
	limit := limiter.Every(3 * time.Second)
	for _, now := range []int64{1000, 2000, 3999, 4000} {
		d, err := m.Take(now, limit, 1)
		fmt.Println(now, d.Allowed, d.RetryAfter, err)
	}
	// Output:
	// 1000 true 0s <nil>
	// 2000 false 2s <nil>
	// 3999 false 1ms <nil>
	// 4000 true 0s <nil>
}
