package lua_test

import (
	"time"

	"github.com/echomq/emq/lua"
)

func fixedWindow(key string, max int64) lua.Bucket {
	return lua.Bucket{Key: key, Rule: lua.Rule{Algorithm: "fixed_window", Max: max, Window: time.Second}}
}

// takingAll takes from a bucket of each algorithm. The queue's limiter is the first and holds counter; the others are full,
// so that the first decides.
func takingAll(op, counter string) scene {
	return func(q *queue) func() error {
		if counter != "" {
			q.do("SET", ":limiter", counter)
		}
		buckets := []lua.Bucket{fixedWindow(q.keys.Limiter(), 5)}
		for _, algorithm := range []string{"sliding_log", "sliding_window_counter", "token_bucket", "leaky_bucket"} {
			rule := lua.Rule{Algorithm: algorithm, Max: 9, Window: time.Minute, Burst: 9}
			buckets = append(buckets, lua.Bucket{Key: q.key("bucket:" + algorithm), Rule: rule})
		}
		return func() error {
			_, _, err := lua.TakeAll(q.ctx(), q.client, op, buckets, 1)
			return err
		}
	}
}
