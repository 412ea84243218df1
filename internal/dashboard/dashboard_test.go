package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/echomq/emq/claim"
	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/dashboard"
	"github.com/echomq/emq/internal/valkeyd"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"

	"github.com/valkey-io/valkey-go"
)

func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }

// serve starts a dashboard for the test.
func serve(t *testing.T, opts dashboard.Options) *httptest.Server {
	t.Helper()
	if opts.Client == nil {
		opts.Client = emqtest.Client(t)
	}
	d, err := dashboard.New(opts)
	require.NoError(t, err)
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	return server
}

type answer struct {
	code   int
	header http.Header
	body   string
}

func do(t *testing.T, r *http.Request) answer {
	t.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	a, err := client.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return answer{a.StatusCode, a.Header, string(body)}
}

func get(t *testing.T, url string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return do(t, r)
}

func post(t *testing.T, url string, form url.Values, set ...func(*http.Request)) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, s := range set {
		s(r)
	}
	return do(t, r)
}

func newQueue(t *testing.T, jobs ...queue.Job) *queue.Queue {
	t.Helper()
	q, err := queue.New(emqtest.Client(t), emqtest.Queue(t), queue.Options{})
	require.NoError(t, err)
	for _, j := range jobs {
		_, err := q.Enqueue(t.Context(), j)
		require.NoError(t, err)
	}
	return q
}

func TestPages(t *testing.T) {
	t.Parallel()
	q := newQueue(t, queue.Job{ID: "a", Payload: []byte("secret-payload"), Keys: map[string]string{"tenant": "<b>x"}}, queue.Job{ID: "b", Delay: time.Hour})
	_, err := q.SetLimit(t.Context(), limiter.PerMinute(10), "a reason")
	require.NoError(t, err)
	_, err = q.SetNamedLimit(t.Context(), queue.NamedLimit{Name: "per-tenant", Limit: limiter.PerMinute(1), By: "tenant"}, "")
	require.NoError(t, err)
	server := serve(t, dashboard.Options{AllowActions: true})
	page := func(path string) string {
		a := get(t, server.URL+path)
		require.Equal(t, 200, a.code, path+a.body)
		assert.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"), path)
		assert.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'self'")
		assert.NotContains(t, a.body, "<b>x", path)
		assert.NotContains(t, a.body, " style=", "the policy forbids it")
		assert.NotContains(t, a.body, "<script>", "the policy forbids it")
		return a.body
	}
	assert.Contains(t, page("/"), q.Name())
	overview := page("/q/" + q.Name())
	for _, want := range []string{"10 of 10 left", "a reason", "per-tenant", "starved - 1 job waits and no worker is there", "What if the limit were another?"} {
		assert.Contains(t, overview, want)
	}
	assert.Contains(t, page("/q/"+q.Name()+"/jobs"), ">a</a>")
	assert.Contains(t, page("/q/"+q.Name()+"/jobs?state=delayed"), ">b</a>")
	job := page("/q/" + q.Name() + "/jobs/a")
	assert.Contains(t, job, "tenant = &lt;b&gt;x")
	assert.NotContains(t, job, "secret-payload", "hidden until asked for")
	assert.Contains(t, page("/q/"+q.Name()+"/jobs/a/body"), "secret-payload")
	assert.Contains(t, page("/q/"+q.Name()+"/limit?name=per-tenant&value=%3Cb%3Ex"), "&lt;b&gt;x")
	assert.Contains(t, page("/q/"+q.Name()+"/eta?max=1"), "waiting jobs are granted")
	for path, code := range map[string]int{
		"/nothing": 404, "/q/a%20b": 400, "/q/" + q.Name() + "/jobs/none": 404, "/q/" + q.Name() + "/jobs?state=x": 400, "/q/" + q.Name() + "/limit?name=none": 404,
		"/q/" + q.Name() + "/jobs?offset=99999999": 400, "/q/" + q.Name() + "/eta?max=-1": 400, "/static/none.js": 404, "/static/app.js": 200, "/healthz": 200, "/readyz": 200,
		"/v1/none": 404, "/v1/queues/a%20b": 400, "/v1/queues/x/jobs?count=100000": 400, "/v1/queues/x/scale?mean=-1s": 400, "/v1/queues/x/jobs/none": 404,
	} {
		assert.Equal(t, code, get(t, server.URL+path).code, path)
	}
}

// The figures are those that package metrics reads, for every algorithm, at the same time.
func TestFiguresAreThoseOfMetrics(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingWindowCounter, limiter.TokenBucket, limiter.LeakyBucket} {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			server, clock, err := valkeyd.StartWithClock(valkeyd.Options{})
			require.NoError(t, err)
			t.Cleanup(server.Stop)
			client, err := valkey.NewClient(server.Options())
			require.NoError(t, err)
			t.Cleanup(client.Close)
			clock.Advance(0) // it stands still from here on
			q, err := queue.New(client, "q", queue.Options{})
			require.NoError(t, err)
			_, err = q.SetLimit(t.Context(), limiter.Limit{Algorithm: algorithm, Max: 5, Window: time.Minute}, "")
			require.NoError(t, err)
			_, err = q.EnqueueMany(t.Context(), make([]queue.Job, 9))
			require.NoError(t, err)
			c, err := claim.New(client, "q", claim.Options{})
			require.NoError(t, err)
			_, err = c.Claim(t.Context(), 3)
			require.NoError(t, err)
			_, err = q.Close(t.Context(), 90*time.Second, "429")
			require.NoError(t, err)
			clock.Advance(1234 * time.Millisecond)
			page := serve(t, dashboard.Options{Client: client})

			var budgets struct {
				AtMS   int64 `json:"at_ms"`
				Limits []struct {
					Buckets []struct {
						Used, Remaining int64
						RetryAfterMS    int64 `json:"retry_after_ms"`
						ResetAfterMS    int64 `json:"reset_after_ms"`
					}
				}
				Closed []struct {
					UntilMS int64 `json:"until_ms"`
				}
			}
			a := get(t, page.URL+"/v1/queues/q/budgets")
			require.Equal(t, 200, a.code, a.body)
			require.NoError(t, json.Unmarshal([]byte(a.body), &budgets))
			b, err := metrics.ReadBudget(t.Context(), client, "q")
			require.NoError(t, err)
			all, err := metrics.Budgets(t.Context(), client, "q", 1)
			require.NoError(t, err)
			got := budgets.Limits[0].Buckets[0]
			assert.Equal(t, b.At.UnixMilli(), budgets.AtMS)
			assert.Equal(t, []int64{b.Used, b.Remaining, b.RetryAfter.Milliseconds(), b.ResetAfter.Milliseconds()},
				[]int64{got.Used, got.Remaining, got.RetryAfterMS, got.ResetAfterMS})
			assert.Equal(t, all.Closed[0].Until.UnixMilli(), budgets.Closed[0].UntilMS)
			assert.Regexp(t, `^"q";q=5;w=60$`, a.header.Get("RateLimit-Policy"))
			assert.Regexp(t, `^"q";r=\d+;t=\d+$`, a.header.Get("RateLimit"))
		})
	}
}

func TestActions(t *testing.T) {
	t.Parallel()
	q := newQueue(t, queue.Job{ID: "a"}, queue.Job{ID: "b", Delay: time.Hour})
	ctx := t.Context()
	server := serve(t, dashboard.Options{AllowActions: true})
	act := func(code int, path string, form ...string) {
		t.Helper()
		values := url.Values{"reason": {"because"}}
		for i := 0; i < len(form); i += 2 {
			values.Set(form[i], form[i+1])
		}
		a := post(t, server.URL+"/q/"+q.Name()+"/"+path, values)
		require.Equal(t, code, a.code, path+a.body)
		if code == 303 {
			assert.Contains(t, a.header.Get("Location"), "/q/"+q.Name())
		}
	}
	budgets := func() metrics.All {
		all, err := metrics.Budgets(ctx, emqtest.Client(t), q.Name(), 1)
		require.NoError(t, err)
		return all
	}
	act(303, "pause")
	assert.Equal(t, "dashboard: because", budgets().PauseReason)
	act(303, "resume")
	assert.False(t, budgets().Paused)
	act(303, "limit", "max", "7", "window", "3s")
	assert.Equal(t, []any{int64(7), 3 * time.Second, "dashboard: because"}, []any{budgets().Limits[0].Max, budgets().Limits[0].Window, budgets().Limits[0].Reason})
	act(400, "limit", "max", "0")
	act(400, "limit", "max", "7", "window", "soon")
	act(404, "limit", "max", "7", "name", "none")
	act(303, "reset")
	act(303, "close", "for", "1m")
	act(303, "close", "for", "1m", "key", "model", "value", "x")
	require.Len(t, budgets().Closed, 2)
	act(400, "close", "for", "never")
	act(303, "reopen")
	act(303, "reopen", "key", "model", "value", "x")
	assert.Empty(t, budgets().Closed)
	act(303, "jobs/b/run")
	s, err := q.Get(ctx, "b")
	require.NoError(t, err)
	assert.Equal(t, queue.Wait, s.State)
	act(409, "jobs/b/redrive")
	act(303, "jobs/b/delete")
	act(404, "jobs/b/delete")

	c, err := claim.New(emqtest.Client(t), q.Name(), claim.Options{})
	require.NoError(t, err)
	die := func() {
		batch, err := c.Claim(ctx, 1)
		require.NoError(t, err)
		require.Len(t, batch.Jobs, 1)
		_, err = c.Settle(ctx, []claim.Outcome{claim.DeadLetter(batch.Jobs[0], queue.ReasonDeadLettered, nil)})
		require.NoError(t, err)
	}
	die()
	act(303, "dead/redrive", "why", "lost")
	s, err = q.Get(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, queue.Dead, s.State, "for another reason")
	act(303, "jobs/a/redrive")
	die()
	act(303, "dead/redrive", "why", "dead_lettered")
	die()
	act(303, "dead/delete")
	_, err = q.Get(ctx, "a")
	assert.ErrorIs(t, err, queue.ErrNotFound)
}

// A read-only dashboard has no route that changes anything.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	q := newQueue(t, queue.Job{ID: "a"})
	server := serve(t, dashboard.Options{})
	for _, path := range []string{"pause", "resume", "limit", "reset", "close", "reopen", "dead/redrive", "dead/delete", "jobs/a/redrive", "jobs/a/run", "jobs/a/delete"} {
		a := post(t, server.URL+"/q/"+q.Name()+"/"+path, url.Values{"reason": {"x"}, "max": {"1"}, "for": {"1m"}})
		assert.Equal(t, 405, a.code, path)
	}
	all, err := metrics.Budgets(t.Context(), emqtest.Client(t), q.Name(), 1)
	require.NoError(t, err)
	assert.Equal(t, []any{false, 0, 0}, []any{all.Paused, len(all.Limits), len(all.Closed)})
	_, err = q.Get(t.Context(), "a")
	assert.NoError(t, err)
	assert.NotContains(t, get(t, server.URL+"/q/"+q.Name()).body, "<form class=\"card\"")
	assert.Contains(t, get(t, server.URL+"/q/"+q.Name()).body, "read-only")
}

// Pages of others cannot act through a browser, nor read under a name of their own.
func TestOtherOrigins(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	server := serve(t, dashboard.Options{AllowActions: true, Hosts: []string{"emq.example.org"}})
	target := server.URL + "/q/" + q.Name() + "/pause"
	form := url.Values{"reason": {"x"}}
	from := func(header, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(header, value) }
	}
	assert.Equal(t, 403, post(t, target, form, from("Origin", "https://evil.example")).code)
	assert.Equal(t, 403, post(t, target, form, from("Sec-Fetch-Site", "cross-site")).code)
	assert.Equal(t, 303, post(t, target, form, from("Sec-Fetch-Site", "same-origin")).code)
	for host, code := range map[string]int{"localhost:9464": 200, "127.0.0.1": 200, "[::1]:80": 200, "emq.example.org": 200, "evil.example": 421, "10.0.0.1": 421, "emq.example.org.evil.example": 421} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/queues/"+q.Name(), nil)
		require.NoError(t, err)
		r.Host = host
		assert.Equal(t, code, do(t, r).code, host)
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	hash, err := bcrypt.GenerateFromPassword([]byte("right"), bcrypt.MinCost)
	require.NoError(t, err)
	users, err := dashboard.ParseUsers([]byte("# people\nana:" + string(hash) + "\n\n"))
	require.NoError(t, err)
	q := newQueue(t)
	server := serve(t, dashboard.Options{AllowActions: true, Users: users})
	as := func(name, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(name, password) }
	}
	target, form := server.URL+"/q/"+q.Name()+"/pause", url.Values{"reason": {"deploy"}}
	assert.Equal(t, 401, get(t, server.URL+"/").code)
	assert.Equal(t, 401, get(t, server.URL+"/static/app.js").code)
	assert.Equal(t, 401, post(t, target, form, as("ana", "wrong")).code)
	assert.Equal(t, 401, post(t, target, form, as("bob", "right")).code)
	for range 2 {
		assert.Equal(t, 303, post(t, target, form, as("ana", "right")).code)
	}
	all, err := metrics.Budgets(t.Context(), emqtest.Client(t), q.Name(), 1)
	require.NoError(t, err)
	assert.Equal(t, "ana: deploy", all.PauseReason)

	for text, want := range map[string]string{"": "no user", "ana": "line 1", ":x": "line 1", "ana:hunter2": "none of bcrypt", "a:" + string(hash) + "\na:" + string(hash): "line 2: a is there twice"} {
		_, err := dashboard.ParseUsers([]byte(text))
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}

// A name that no queue can have is text like any other.
func TestNamesAreText(t *testing.T) {
	t.Parallel()
	server, err := valkeyd.Start(valkeyd.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := valkey.NewClient(server.Options())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, client.Do(t.Context(), client.B().Sadd().Key("emq:queues").Member("<script>alert(1)</script>", "mail").Build()).Error())
	page := serve(t, dashboard.Options{Client: client, BasePath: "/emq/"})
	a := get(t, page.URL+"/emq/")
	require.Equal(t, 200, a.code)
	assert.Contains(t, a.body, "&lt;script&gt;alert(1)&lt;/script&gt;")
	assert.NotContains(t, a.body, "<script>alert")
	assert.Contains(t, a.body, `href="/emq/q/mail"`)
	assert.Equal(t, 404, get(t, page.URL+"/").code)
}

// The pages follow the queue.
func TestEvents(t *testing.T) {
	t.Parallel()
	q := newQueue(t, queue.Job{ID: "a"})
	server := serve(t, dashboard.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for path, event := range map[string]string{"/q/" + q.Name() + "/events": "queue", "/events": "queues"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		a, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer a.Body.Close()
		assert.Equal(t, "text/event-stream", a.Header.Get("Content-Type"))
		lines := bufio.NewScanner(a.Body)
		next := func(want string) {
			for lines.Scan() {
				if strings.Contains(lines.Text(), want) {
					return
				}
			}
			t.Errorf("%s ended without %q", path, want)
		}
		next("event: " + event)
		next("starved")
		_, err = q.Pause(ctx, "deploy")
		require.NoError(t, err)
		next("paused: deploy")
		_, err = q.Resume(ctx, "")
		require.NoError(t, err)
	}
	cancel()
	http.DefaultClient.CloseIdleConnections()
}
