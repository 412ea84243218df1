package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/limiter/httplimit"
)

func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }

// fields are all that Set wrote.
func fields(dialect httplimit.Dialect, policies ...httplimit.Policy) map[string]string {
	h := http.Header{}
	httplimit.Set(h, dialect, policies...)
	all := map[string]string{}
	for name, values := range h {
		all[name] = strings.Join(values, " | ")
	}
	return all
}

func TestVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/headers.json")
	require.NoError(t, err)
	var file struct {
		Vectors []struct {
			Retry     int64 `json:"retry_after_ms"`
			Reset     int64 `json:"reset_after_ms"`
			Remaining int64
			Allowed   bool
			Expect    struct {
				RetryAfter *string `json:"Retry-After"`
				T, R       *int64
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &file))
	require.NotEmpty(t, file.Vectors)
	for _, v := range file.Vectors {
		d := limiter.Decision{Allowed: v.Allowed, Limit: 5, Remaining: v.Remaining, RetryAfter: limiter.Never, Source: limiter.Store,
			ResetAfter: time.Duration(v.Reset) * time.Millisecond}
		if v.Retry >= 0 {
			d.RetryAfter = time.Duration(v.Retry) * time.Millisecond
		}
		p := httplimit.Policy{Limit: limiter.PerMinute(5), Decision: d}
		for dialect, format := range map[httplimit.Dialect]string{httplimit.Draft11: `"default";r=%d;t=%d`, httplimit.Draft12: `"default";a=%d;w=%d`} {
			want := map[string]string{}
			if v.Expect.R != nil {
				want["Ratelimit"], want["Ratelimit-Policy"] = fmt.Sprintf(format, *v.Expect.R, *v.Expect.T), `"default";q=5;w=60`
			}
			if v.Expect.RetryAfter != nil {
				want["Retry-After"] = *v.Expect.RetryAfter
			}
			assert.Equal(t, want, fields(dialect, p), "%+v", v)
		}
		legacy := fields(httplimit.Legacy, p)
		if v.Expect.R == nil {
			assert.Empty(t, legacy)
			continue
		}
		if v.Expect.RetryAfter != nil {
			assert.Equal(t, *v.Expect.RetryAfter, legacy["Retry-After"])
			delete(legacy, "Retry-After")
		}
		assert.Equal(t, map[string]string{
			"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": fmt.Sprint(*v.Expect.R), "X-Ratelimit-Reset": fmt.Sprint((v.Reset + 999) / 1000),
		}, legacy)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	policy := func(name string, limit limiter.Limit, remaining int64, retry time.Duration) httplimit.Policy {
		d := limiter.Decision{Allowed: retry == 0, Remaining: remaining, RetryAfter: retry, ResetAfter: time.Hour, Source: limiter.Store}
		return httplimit.Policy{Name: name, Limit: limit, Decision: d}
	}
	burst, day := policy("burst", limiter.PerMinute(100), 7, 0), policy("daily", limiter.Limit{Max: 1000, Window: 24 * time.Hour}, 0, time.Minute+1)
	assert.Equal(t, map[string]string{
		"Ratelimit-Policy": `"burst";q=100;w=60, "daily";q=1000;w=86400`,
		"Ratelimit":        `"burst";r=7;t=3600, "daily";r=0;t=61`,
		"Retry-After":      "61",
	}, fields(httplimit.Draft11, burst, day))
	assert.Equal(t, map[string]string{
		"X-Ratelimit-Limit": "1000", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "3600", "Retry-After": "61",
	}, fields(httplimit.Legacy, burst, day))
	never := policy("never", limiter.PerSecond(1), 1, limiter.Never)
	assert.NotContains(t, fields(httplimit.Legacy, never, day), "Retry-After")
	assert.NotContains(t, fields(httplimit.Legacy, day, never), "Retry-After")

	odd := policy(`a "b" \`, limiter.Limit{Max: limiter.Most, Window: 1500 * time.Millisecond}, limiter.Most, 0)
	assert.Equal(t, map[string]string{
		"Ratelimit-Policy": `"a \"b\" \\";q=999999999999999`, "Ratelimit": `"a \"b\" \\";a=999999999999999;w=3600`,
	}, fields(httplimit.Draft12, odd))
	assert.Equal(t, `"default";q=3;w=1`, fields(httplimit.Draft11, policy("", limiter.Limit{Max: 3}, 1, 0))["Ratelimit-Policy"])

	day.Decision.Source = limiter.FailedClosed
	assert.Equal(t, map[string]string{"Retry-After": "61"}, fields(httplimit.Draft11, day))
	assert.Empty(t, fields(httplimit.Draft11))
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
	return w
}

var served = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })

func byPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

func TestMiddleware(t *testing.T) {
	t.Parallel()
	l, err := limiter.New(emqtest.Client(t), limiter.Options{Prefix: emqtest.Queue(t) + ":", Timeout: 30 * time.Second})
	require.NoError(t, err)
	cost := func(r *http.Request) int64 { return int64(len(r.URL.RawQuery)) }
	limit, err := httplimit.New(l, httplimit.Options{Limit: limiter.PerHour(2), Key: byPath, Cost: cost, Name: "calls"})
	require.NoError(t, err)
	h := limit(served)

	w := get(t, h, "/a?x")
	assert.Equal(t, "200 served", fmt.Sprint(w.Code, " ", w.Body))
	assert.Equal(t, `"calls";r=1;t=3600`, w.Header().Get("RateLimit"))
	assert.Equal(t, `"calls";q=2;w=3600`, w.Header().Get("RateLimit-Policy"))
	assert.Equal(t, 200, get(t, h, "/a?x").Code)
	w = get(t, h, "/a?x")
	assert.Equal(t, "429 too many requests\n", fmt.Sprint(w.Code, " ", w.Body))
	assert.Contains(t, []string{"3600", "3599"}, w.Header().Get("Retry-After"))
	assert.Equal(t, 200, get(t, h, "/b?xx").Code, "another key")
	w = get(t, h, "/a?xxx")
	assert.Equal(t, 429, w.Code)
	assert.NotContains(t, w.Header(), "Retry-After", "never")
	w = get(t, h, "/")
	assert.Equal(t, 200, w.Code, "not limited")
	assert.Empty(t, w.Header()["Ratelimit"])
	assert.Equal(t, 400, get(t, h, "/"+strings.Repeat("k", limiter.MaxKey+1)+"?x").Code)
}

// taker answers what it is.
type taker struct {
	limiter.Decision
	err error
}

func (t taker) Take(context.Context, string, limiter.Limit, int64) (limiter.Decision, error) {
	return t.Decision, t.err
}

func TestMiddlewareAnswers(t *testing.T) {
	t.Parallel()
	handler := func(answer taker, change func(*httplimit.Options)) http.Handler {
		opts := httplimit.Options{Limit: limiter.PerSecond(1), Key: byPath}
		change(&opts)
		limit, err := httplimit.New(answer, opts)
		require.NoError(t, err)
		return limit(served)
	}
	none := func(*httplimit.Options) {}
	assert.Equal(t, 503, get(t, handler(taker{err: errors.New("down")}, none), "/a").Code)
	assert.Equal(t, 400, get(t, handler(taker{err: limiter.ErrBadCost}, none), "/a").Code)
	teapot := func(o *httplimit.Options) {
		o.Dialect = httplimit.Legacy
		o.Denied = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		o.Failed = func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}
	w := get(t, handler(taker{Decision: limiter.Decision{RetryAfter: 1, Source: limiter.Store}}, teapot), "/a")
	assert.Equal(t, http.StatusTeapot, w.Code)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
	assert.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
	w = get(t, handler(taker{err: errors.New("down")}, teapot), "/a")
	assert.Equal(t, "502 down\n", fmt.Sprint(w.Code, " ", w.Body))
	assert.Equal(t, 200, get(t, handler(taker{Decision: limiter.Decision{Allowed: true, Source: limiter.FailedOpen}}, none), "/a").Code)

	// A delay is kept, and ends with the request.
	start := time.Now()
	delayed := taker{Decision: limiter.Decision{Allowed: true, Delay: 20 * time.Millisecond, Source: limiter.Store}}
	assert.Equal(t, "served", get(t, handler(delayed, none), "/a").Body.String())
	assert.GreaterOrEqual(t, time.Since(start), delayed.Delay)
	delayed.Delay = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w = httptest.NewRecorder()
	handler(delayed, none).ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/a", nil))
	assert.Empty(t, w.Body.String())
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	good := httplimit.Options{Key: byPath}
	for says, opts := range map[string]httplimit.Options{
		"Key is nil":            {},
		"Limit: emq: bad limit": {Key: byPath, Limit: limiter.PerSecond(-1)},
		"Dialect is 3":          {Key: byPath, Dialect: 3},
		`Name is "ü"`:           {Key: byPath, Name: "ü"},
	} {
		_, err := httplimit.New(taker{}, opts)
		require.ErrorContains(t, err, says)
	}
	_, err := httplimit.New(nil, good)
	require.ErrorContains(t, err, "the limiter is nil")
	_, err = httplimit.New(taker{}, good)
	require.NoError(t, err)
}
