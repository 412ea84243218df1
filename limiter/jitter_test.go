package limiter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestJitterIsATenthAndNoMoreThanItsBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ wait, most, bound time.Duration }{
		{100 * time.Millisecond, 50 * time.Millisecond, 10 * time.Millisecond},
		{time.Hour, 50 * time.Millisecond, 50 * time.Millisecond},
		{time.Hour, -1, 0},
		{time.Nanosecond, time.Hour, 0},
	} {
		var largest time.Duration
		for range 1000 {
			j := jitter(c.wait, c.most)
			assert.GreaterOrEqual(t, j, time.Duration(0))
			assert.LessOrEqual(t, j, c.bound)
			largest = max(largest, j)
		}
		assert.GreaterOrEqual(t, largest, c.bound/2)
	}
}
