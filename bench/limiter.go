package main

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	throttledlib "github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"

	"github.com/echomq/emq/limiter"
)

// algorithms are those of package limiter, each with the peers that implement it or one like it.
var algorithms = []struct {
	algorithm limiter.Algorithm
	peers     []string
}{
	{limiter.FixedWindow, nil},
	{limiter.SlidingLog, nil},
	{limiter.SlidingWindowCounter, nil},
	{limiter.TokenBucket, []string{redisRate, throttled}}, // theirs is GCRA
	{limiter.LeakyBucket, []string{redisRate, throttled}},
}

// takeRate is the limit of the takes, units a second; it is never reached.
const takeRate = 100_000

// takes measures one take of one unit, a round trip on one goroutine.
func takes(algorithm limiter.Algorithm) func(context.Context, *env, string) samples {
	return func(ctx context.Context, e *env, system string) samples {
		s := startServer()
		defer s.stop()
		take, stop := taker(s, algorithm, system)
		defer stop()
		var took []float64
		n := e.size(2000, 50)
		for i := range n + n/10 {
			began := time.Now()
			if !take(ctx) {
				fail("a take within the limit was denied")
			}
			if i >= n/10 { // the first load scripts and grow buffers
				took = append(took, us(time.Since(began)))
			}
		}
		return samples{"take": took}
	}
}

// taker is how a system takes one unit.
func taker(s *server, algorithm limiter.Algorithm, system string) (take func(context.Context) bool, stop func()) {
	if system == emq {
		client := s.dial()
		l := must(limiter.New(client, limiter.Options{Timeout: time.Second}))
		limit := limiter.Limit{Algorithm: algorithm, Max: takeRate, Window: time.Second}
		if algorithm == limiter.LeakyBucket {
			limit.Burst = takeRate
		}
		return func(ctx context.Context) bool { return must(l.Take(ctx, name, limit, 1)).Allowed }, client.Close
	}
	client := redis.NewClient(&redis.Options{Addr: s.address()})
	stop = func() { check(client.Close()) }
	if system == redisRate {
		l := redis_rate.NewLimiter(client)
		limit := redis_rate.PerSecond(takeRate)
		return func(ctx context.Context) bool { return must(l.Allow(ctx, name, limit)).Allowed == 1 }, stop
	}
	store := must(goredisstore.NewCtx(client, "throttled:"))
	l := must(throttledlib.NewGCRARateLimiterCtx(store, throttledlib.RateQuota{MaxRate: throttledlib.PerSec(takeRate), MaxBurst: takeRate}))
	return func(ctx context.Context) bool {
		limited, _, err := l.RateLimitCtx(ctx, name, 1)
		check(err)
		return !limited
	}, stop
}
