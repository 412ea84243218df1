package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"
)

// The keys of the floor: a list of ids, and a string for each job, which outlives the pop as a job must.
const floorList = "floor:wait"

func floorJob(id string) string { return "floor:job:" + id }

// floorFill stores n jobs, a thousand a round trip.
func floorFill(ctx context.Context, client valkey.Client, n int) {
	for from := 0; from < n; from += 1000 {
		var commands []valkey.Completed
		for i := from; i < min(n, from+1000); i++ {
			id := strconv.Itoa(i)
			commands = append(commands, client.B().Set().Key(floorJob(id)).Value(valkey.BinaryString(payload)).Build(),
				client.B().Lpush().Key(floorList).Element(id).Build())
		}
		for _, r := range client.DoMulti(ctx, commands...) {
			check(r.Error())
		}
	}
}

// floorDrain pops, reads and deletes n jobs, batch at a time, and says how many it did a second. A batch takes two round trips: the
// deletes of the one before go with the pop.
func floorDrain(ctx context.Context, client valkey.Client, n, batch int) float64 {
	began := time.Now()
	handle := func([]byte) error { return nil }
	var keys []string
	for done := 0; done < n || len(keys) > 0; {
		commands := []valkey.Completed{client.B().Lmpop().Numkeys(1).Key(floorList).Right().Count(int64(batch)).Build()}
		if len(keys) > 0 {
			commands = append(commands, client.B().Del().Key(keys...).Build())
		}
		replies := client.DoMulti(ctx, commands...)
		if len(keys) > 0 {
			must(replies[1].AsInt64())
		}
		keys = nil
		popped, err := replies[0].AsLMPop()
		if valkey.IsValkeyNil(err) {
			if done < n {
				fail("%d jobs are left of %d", n-done, n)
			}
			break
		}
		check(err)
		for _, id := range popped.Values {
			keys = append(keys, floorJob(id))
		}
		for _, body := range must(client.Do(ctx, client.B().Mget().Key(keys...).Build()).ToArray()) {
			check(handle(must(body.AsBytes())))
		}
		done += len(keys)
	}
	return float64(n) / time.Since(began).Seconds()
}

// floorPickup is how long a push takes to end the blocking pop of another connection.
func floorPickup(ctx context.Context, s *server, n int) (took []float64) {
	push, pop := s.dial(), s.dial()
	defer push.Close()
	defer pop.Close()
	popped := make(chan time.Time)
	ended := make(chan error, 1)
	go func() {
		for range n {
			if err := pop.Do(ctx, pop.B().Blpop().Key(floorList).Timeout(0).Build()).Error(); err != nil {
				ended <- err
				return
			}
			popped <- time.Now()
		}
	}()
	for range n {
		idle(ctx)
		began := time.Now()
		check(push.Do(ctx, push.B().Lpush().Key(floorList).Element(string(payload)).Build()).Error())
		select {
		case at := <-popped:
			took = append(took, ms(at.Sub(began)))
		case err := <-ended:
			check(err)
		case <-ctx.Done():
			check(ctx.Err())
		}
	}
	return took
}

// floorDelayed is how late timers fire that are set as delayed jobs are: due in whole milliseconds of the clock.
func floorDelayed(ctx context.Context, n int) []float64 {
	fired := make(chan float64, n)
	for range n {
		due := time.Now().Truncate(time.Millisecond).Add(randomDelay())
		time.AfterFunc(time.Until(due), func() { fired <- ms(sinceWall(due)) })
		pause(ctx, delayedEvery)
	}
	return collect(ctx, fired, n)
}

// floorReset is how late a timer fires that is set for the end of a window, n times in a row.
func floorReset(ctx context.Context, n int) (late []float64) {
	for range n {
		reset := time.Now().Truncate(time.Millisecond).Add(resetWindow)
		pause(ctx, time.Until(reset))
		late = append(late, ms(sinceWall(reset)))
	}
	return late
}

// sinceWall is the time since t by the wall clock, which the server shares.
func sinceWall(t time.Time) time.Duration { return time.Now().Round(0).Sub(t.Round(0)) }

func randomDelay() time.Duration {
	return 50*time.Millisecond + time.Duration(rand.Int64N(451))*time.Millisecond
}

// idle lets a worker fall asleep.
func idle(ctx context.Context) { pause(ctx, 3*time.Millisecond+rand.N(8*time.Millisecond)) }

// collect takes n values.
func collect(ctx context.Context, from <-chan float64, n int) (values []float64) {
	for len(values) < n {
		select {
		case v := <-from:
			values = append(values, v)
		case <-ctx.Done():
			fail("%d of %d came: %w", len(values), n, ctx.Err())
		}
	}
	return values
}
