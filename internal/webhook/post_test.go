package webhook_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/internal/webhook"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
	"github.com/echomq/emq/worker"
)

func TestMain(m *testing.M) { os.Exit(emqtest.Run(m)) }

// fleet posts the jobs of a queue to an endpoint until the test ends.
func fleet(t *testing.T, name string, opts webhook.Options, endpoint http.HandlerFunc) {
	server := httptest.NewServer(endpoint)
	opts.URL, opts.Private = server.URL, true
	poster, err := webhook.New(opts)
	require.NoError(t, err)
	w, err := worker.New(emqtest.Client(t), name, poster.Handle, worker.Options{Concurrency: 1, Backoff: worker.Exponential(time.Hour, time.Hour)})
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(t.Context())) })
	t.Cleanup(func() {
		w.Stop()
		running.Wait()
		poster.Close()
		server.Close()
	})
}

func add(t *testing.T, name string, jobs ...queue.Job) *queue.Queue {
	q, err := queue.New(emqtest.Client(t), name, queue.Options{})
	require.NoError(t, err)
	for _, j := range jobs {
		_, err := q.Enqueue(t.Context(), j)
		require.NoError(t, err)
	}
	return q
}

// The answer is the end of the job.
func TestAnswers(t *testing.T) {
	t.Parallel()
	type end struct {
		state    queue.State
		attempts int
	}
	ends := map[string]end{
		"200": {queue.Completed, 1}, "202": {queue.Completed, 1}, "204": {queue.Completed, 1},
		"301": {queue.Dead, 1}, "400": {queue.Dead, 1}, "401": {queue.Dead, 1}, "404": {queue.Dead, 1}, "413": {queue.Dead, 1}, "422": {queue.Dead, 1},
		"408": {queue.Delayed, 1}, "409": {queue.Delayed, 1}, "425": {queue.Delayed, 1}, "500": {queue.Delayed, 1}, "502": {queue.Delayed, 1},
		"503": {queue.Delayed, 1}, "504": {queue.Delayed, 1},
		"429": {queue.Delayed, 0}, "503-30": {queue.Delayed, 0}, "429-30": {queue.Delayed, 0},
		"hangs-up": {queue.Delayed, 1}, "slow": {queue.Delayed, 1},
	}
	release := make(chan struct{})
	name := emqtest.Queue(t)
	var jobs []queue.Job
	for what := range ends {
		jobs = append(jobs, queue.Job{Name: what, Payload: []byte("x"), Retain: time.Hour})
	}
	q := add(t, name)
	ids, err := q.EnqueueMany(t.Context(), jobs)
	require.NoError(t, err)
	fleet(t, name, webhook.Options{NoClose: true, Timeout: time.Second}, func(w http.ResponseWriter, r *http.Request) {
		switch what := r.Header.Get("Emq-Job-Name"); what {
		case "hangs-up":
			panic(http.ErrAbortHandler)
		case "slow":
			<-release
		case "503-30", "429-30":
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(map[string]int{"503-30": 503, "429-30": 429}[what])
		case "301":
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
		default:
			code := 0
			for _, c := range what {
				code = 10*code + int(c-'0')
			}
			w.WriteHeader(code)
		}
	})
	defer close(release)
	for i, stored := range ids {
		want := ends[jobs[i].Name]
		var s queue.Status
		require.Eventually(t, func() bool {
			s, err = q.Get(t.Context(), stored.ID)
			return err == nil && s.State == want.state
		}, time.Minute, 10*time.Millisecond, "%s is %s: %v", jobs[i].Name, s.State, err)
		if want.state == queue.Delayed {
			assert.Equal(t, want.attempts, s.Attempts, jobs[i].Name)
		}
		if want.attempts == 1 && want.state == queue.Delayed {
			assert.NotEmpty(t, s.LastError, jobs[i].Name)
			assert.NotContains(t, s.LastError, "http://", "the URL may hold a secret")
		}
	}
}

func TestWhatAnEndpointGets(t *testing.T) {
	t.Parallel()
	secrets, err := webhook.Secrets([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	require.NoError(t, err)
	type request struct {
		header http.Header
		body   string
	}
	got := make(chan request, 2)
	name := emqtest.Queue(t)
	add(t, name, queue.Job{ID: "a", Name: "send", Payload: []byte(`{"to":"ana"}`), Keys: map[string]string{"tenant": "x y\n&"}, Cost: map[string]int64{"tokens": 7}},
		queue.Job{ID: "b", Payload: []byte("\x00\xff")})
	fleet(t, name, webhook.Options{Secrets: secrets}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header, string(body)}
	})
	a, b := <-got, <-got
	assert.Equal(t, `{"to":"ana"}`, a.body)
	for header, want := range map[string]string{
		"Emq-Queue": name, "Emq-Job-Id": "a", "Emq-Job-Name": "send", "Emq-Attempt": "1", "Emq-Deferrals": "0", "Content-Type": "application/json",
		"Emq-Keys": "tenant=x+y%0A%26", "Emq-Cost": "tokens=7", "Webhook-Id": "a",
	} {
		assert.Equal(t, want, a.header.Get(header), header)
	}
	for _, header := range []string{"Emq-Token", "Emq-Claimed-Ms", "Emq-Enqueued-Ms", "Webhook-Timestamp"} {
		assert.NotEmpty(t, a.header.Get(header), header)
	}
	assert.Regexp(t, `^v1,[A-Za-z0-9+/]{43}=$`, a.header.Get("Webhook-Signature"))
	assert.Equal(t, "\x00\xff", b.body)
	assert.Equal(t, "application/octet-stream", b.header.Get("Content-Type"))
}

// A 429 closes the bucket for the whole fleet: nothing is claimed until it is over.
func TestTooManyRequestsCloses(t *testing.T) {
	t.Parallel()
	name := emqtest.Queue(t)
	q := add(t, name, queue.Job{ID: "a"}, queue.Job{ID: "b"})
	var mu sync.Mutex
	var at []time.Time
	endpoint := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		if len(at) == 1 {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	fleet(t, name, webhook.Options{}, endpoint)
	require.Eventually(t, func() bool {
		n, err := q.Counts(t.Context())
		return err == nil && n.Wait+n.Active+n.Delayed == 0
	}, time.Minute, 10*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, at, 3, "a refused job is tried again")
	assert.GreaterOrEqual(t, at[1].Sub(at[0]), 3*time.Second-10*time.Millisecond)
}

// With a key only its value is closed.
func TestTooManyRequestsClosesAKey(t *testing.T) {
	t.Parallel()
	name := emqtest.Queue(t)
	q := add(t, name, queue.Job{ID: "a", Keys: map[string]string{"model": "x"}}, queue.Job{ID: "b", Keys: map[string]string{"model": "x"}},
		queue.Job{ID: "c", Keys: map[string]string{"model": "y"}, Retain: time.Hour})
	fleet(t, name, webhook.Options{CloseKey: "model", MaxWait: 30 * time.Minute}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Emq-Keys") == "model=x" {
			w.Header().Set("Retry-After", "7200")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	require.Eventually(t, func() bool {
		s, err := q.Get(t.Context(), "c")
		return err == nil && s.State == queue.Completed
	}, time.Minute, 10*time.Millisecond)
	budgets, err := metrics.Budgets(t.Context(), emqtest.Client(t), name, 0)
	require.NoError(t, err)
	require.Len(t, budgets.Closed, 1)
	closed := budgets.Closed
	assert.Equal(t, []any{"model", "x"}, []any{closed[0].Key, closed[0].Value})
	assert.InDelta(t, 30*time.Minute, time.Until(closed[0].Until), float64(time.Minute), "the bound of --http-max-wait")
	assert.Contains(t, closed[0].Reason, "429")
}
