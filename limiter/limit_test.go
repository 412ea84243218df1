package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/limiter"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]limiter.Limit{
		"3/s":                     limiter.PerSecond(3),
		"5/1s":                    limiter.PerSecond(5),
		"100/1m":                  limiter.PerMinute(100),
		"7/h":                     limiter.PerHour(7),
		"2000/1d":                 {Max: 2000, Window: 24 * time.Hour},
		"2000/d":                  {Max: 2000, Window: 24 * time.Hour},
		"1/3s":                    limiter.Every(3 * time.Second),
		"1/ms":                    limiter.Every(time.Millisecond),
		"5/.5s":                   {Max: 5, Window: 500 * time.Millisecond},
		"5/1m30s":                 {Max: 5, Window: 90 * time.Second},
		"0/1s":                    {Window: time.Second},
		"9007199254740991/1000ms": limiter.PerSecond(limiter.Most),
		"unlimited":               {},

		"5/1s fixed_window aligned count_denied": {Algorithm: limiter.FixedWindow, Max: 5, Window: time.Second, Aligned: true, CountDenied: true},
		"5/1s count_denied  sliding_log":         {Algorithm: limiter.SlidingLog, Max: 5, Window: time.Second, CountDenied: true},
		"5/s sliding_window_counter":             {Algorithm: limiter.SlidingWindowCounter, Max: 5, Window: time.Second},
		"30/1s token_bucket burst=60":            {Algorithm: limiter.TokenBucket, Max: 30, Window: time.Second, Burst: 60},
		"30/1s leaky_bucket":                     {Algorithm: limiter.LeakyBucket, Max: 30, Window: time.Second},
	} {
		got, err := limiter.Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"":                       "want max/window",
		"5":                      "want max/window",
		"x/1s":                   "want max/window",
		"/1s":                    "want max/window",
		"1.5/1s":                 "want max/window",
		"99999999999999999999/s": "want max/window",
		"5/":                     `window "" of "5/" is no length of time`,
		"5/0s":                   "no length of time",
		"5/-1s":                  "no length of time",
		"5/1":                    "no length of time",
		"5/1x":                   "no length of time",
		"5/fortnight":            `window "fortnight" of`,
		"5/1s/1s":                "no length of time",
		"1/768614336404564651d":  "no length of time", // 24 times that wraps around to 8
		"5/1.5ms":                "window is 1.5ms; want whole milliseconds",
		"5/1us":                  "want 1ms or more",
		"-1/1s":                  "max is -1; want 0 (not limited) to 9007199254740991",
		"9007199254740992/s":     "max is 9007199254740992",
		"5/1s magic":             `word "magic" of "5/1s magic"; want an algorithm, burst=60, aligned or count_denied`,
		"5/1s burst=x":           `word "burst=x"`,
		"5/1s burst=2":           "burst is 2; want 0: fixed_window has none",
	} {
		got, err := limiter.Parse(text)
		require.ErrorIs(t, err, limiter.ErrBadLimit, text)
		assert.ErrorContains(t, err, want, text)
		assert.Zero(t, got, text)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"3/s", "100/1m", "2000/1d", "5/.5s", "unlimited", "0/1s", "5/1.5ms", "1/768614336404564651d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limit, err := limiter.Parse(text)
		if err != nil {
			require.ErrorIs(t, err, limiter.ErrBadLimit)
			return
		}
		require.NoError(t, limit.Validate())
		again, err := limiter.Parse(limit.String())
		require.NoError(t, err, limit)
		require.Equal(t, limit.String(), again.String())
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, limit := range []limiter.Limit{
		{}, {Algorithm: limiter.FixedWindow, Max: 5}, {Algorithm: limiter.SlidingLog, Max: limiter.MostLogged},
		{Algorithm: limiter.SlidingWindowCounter, Max: 9007199254740, Window: time.Second},
		{Algorithm: limiter.TokenBucket, Max: 1 << 40, Window: time.Second, Burst: 1 << 40},
		{Algorithm: limiter.TokenBucket, Max: 7, Window: time.Second, Burst: 9007199254740},
		{Algorithm: limiter.LeakyBucket, Burst: limiter.Most}, // limits nothing
	} {
		require.NoError(t, limit.Validate(), limit)
	}
	for field, limit := range map[string]limiter.Limit{
		`algorithm "fixed" is unknown; want one of fixed_window sliding_log sliding_window_counter token_bucket leaky_bucket`: {Algorithm: "fixed", Max: 5},
		"max is -1":                            {Max: -1},
		"window is -1s":                        {Max: 5, Window: -time.Second},
		"window is 999µs":                      {Max: 5, Window: 999 * time.Microsecond},
		"burst is -1; want 0 (the default) to": {Max: 5, Algorithm: limiter.TokenBucket, Burst: -1},
		"burst is 5; want 0: sliding_log has none, token_bucket and leaky_bucket have":                   {Max: 5, Algorithm: limiter.SlidingLog, Burst: 5},
		"aligned is true; want false: only fixed_window":                                                 {Max: 5, Algorithm: limiter.SlidingLog, Aligned: true},
		"count_denied is true; want false: only fixed_window and sliding_log":                            {Max: 5, Algorithm: limiter.TokenBucket, CountDenied: true},
		"max is 1000001; want 1000000 or less: sliding_log keeps":                                        {Max: 1000001, Algorithm: limiter.SlidingLog},
		"max is 9007199254741; want 9007199254740 or less with a window of 1s":                           {Max: 9007199254741, Algorithm: limiter.SlidingWindowCounter},
		"burst is 9007199254741; want 9007199254740 or less at a rate of 7 in 1s: token_bucket":          {Max: 7, Burst: 9007199254741, Algorithm: limiter.TokenBucket},
		"max is 9007199254741; want 9007199254740 or less at a rate of 9007199254741 in 1s: token":       {Max: 9007199254741, Algorithm: limiter.TokenBucket},
		"max is 9007199254740991; want 9007199254740 or less at a rate of 9007199254740991 in 1s: leaky": {Max: limiter.Most, Window: time.Second, Algorithm: limiter.LeakyBucket},
	} {
		err := limit.Validate()
		require.ErrorIs(t, err, limiter.ErrBadLimit)
		assert.ErrorContains(t, err, field)
	}
}

func TestFromMeta(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		max, duration string
		want          limiter.Limit
	}{
		{"", "", limiter.Limit{}},
		{"0", "500", limiter.Limit{}},
		{"abc", "500", limiter.Limit{}},
		{"-5", "500", limiter.Limit{}},
		{"5", "", limiter.Limit{Algorithm: limiter.FixedWindow, Max: 5, Window: time.Second}},
		{"5", "250", limiter.Limit{Algorithm: limiter.FixedWindow, Max: 5, Window: 250 * time.Millisecond}},
		{"5", "9007199254740991", limiter.Limit{Algorithm: limiter.FixedWindow, Max: 5, Window: 9223372036854 * time.Millisecond}},
	} {
		assert.Equal(t, c.want, limiter.FromMeta(c.max, c.duration, "", ""), "%s/%s", c.max, c.duration)
	}
	assert.Equal(t, limiter.Limit{Algorithm: limiter.TokenBucket, Max: 5, Window: time.Second, Burst: 8}, limiter.FromMeta("5", "", "token_bucket", "8"))
}
