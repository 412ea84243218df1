package webhook

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 6, 8, 49, 37, 0, time.UTC)
	const none = -1
	for _, c := range []struct {
		name   string
		header http.Header
		want   time.Duration
	}{
		{"seconds", http.Header{"Retry-After": {"120"}}, 2 * time.Minute},
		{"no time at all", http.Header{"Retry-After": {"0"}}, 0},
		{"parts of a second", http.Header{"Retry-After": {" 1.5 "}}, 1500 * time.Millisecond},
		{"a date", http.Header{"Retry-After": {"Fri, 06 Nov 2026 08:50:00 GMT"}}, 23 * time.Second},
		{"a date by the sender's clock", http.Header{"Retry-After": {"Fri, 06 Nov 2026 09:50:00 GMT"}, "Date": {"Fri, 06 Nov 2026 09:49:50 GMT"}}, 10 * time.Second},
		{"a date that is past", http.Header{"Retry-After": {"Fri, 06 Nov 2026 08:40:00 GMT"}}, 0},
		{"a duration", http.Header{"Retry-After": {"1m30s"}}, 90 * time.Second},
		{"milliseconds", http.Header{"Retry-After-Ms": {"250"}}, 250 * time.Millisecond},
		{"outright beats windows", http.Header{"Retry-After": {"2"}, "Ratelimit-Reset": {"50"}}, 2 * time.Second},
		{"the draft's field", http.Header{"Ratelimit": {`"default";r=0;t=14`}}, 14 * time.Second},
		{"several policies, one used up", http.Header{"Ratelimit": {`"burst";r=0;t=7, "daily";r=5;t=3600`}}, 7 * time.Second},
		{"several used up", http.Header{"Ratelimit": {`"burst";r=0;t=7`, `"daily";r=0;t=3600`}}, time.Hour},
		{"an earlier draft", http.Header{"Ratelimit": {`limit=100, remaining=0, reset=50`}}, 50 * time.Second},
		{"an earlier draft, something left", http.Header{"Ratelimit": {`limit=100, remaining=9, reset=50`}}, none},
		{"fields of their own", http.Header{"Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {"31"}}, 31 * time.Second},
		{"something left", http.Header{"X-Ratelimit-Remaining": {"4"}, "X-Ratelimit-Reset": {"31"}}, none},
		{"a moment in seconds", http.Header{"X-Ratelimit-Reset": {"1793955007"}}, 30 * time.Second},
		{"a moment in milliseconds", http.Header{"X-Ratelimit-Reset": {"1793954977500"}}, 500 * time.Millisecond},
		{"after", http.Header{"X-Ratelimit-Reset-After": {"1.25"}, "X-Ratelimit-Remaining": {"0"}}, 1250 * time.Millisecond},
		{"each of several", http.Header{"X-Ratelimit-Reset-Requests": {"6m0s"}, "X-Ratelimit-Remaining-Requests": {"0"},
			"X-Ratelimit-Reset-Tokens": {"20m"}, "X-Ratelimit-Remaining-Tokens": {"149984"}}, 6 * time.Minute},
		{"nothing", http.Header{"Content-Type": {"text/plain"}}, none},
		{"nonsense", http.Header{"Retry-After": {"soon"}, "Ratelimit": {"=;;,"}, "X-Ratelimit-Reset": {"nan"}, "Retry-After-Ms": {"-3"}}, none},
	} {
		wait, asked := Wait(c.header, now)
		if !asked {
			wait = none
		}
		assert.Equal(t, c.want, wait, c.name)
	}
}

func FuzzWait(f *testing.F) {
	for _, s := range []string{"1", "-1", "1e309", "9223372036854775808", "0x1p-2", "Fri, 06 Nov 2026 08:50:00 GMT", "292y", "2562047h47m16.854775807s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, name := range []string{"Retry-After", "Retry-After-Ms", "Ratelimit", "X-Ratelimit-Reset"} {
			if wait, _ := Wait(http.Header{name: {s}}, time.Now()); wait < 0 {
				t.Fatalf("%s: %q is %v", name, s, wait)
			}
		}
	})
}
