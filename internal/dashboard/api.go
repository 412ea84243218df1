package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/valkey-io/valkey-go"

	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

// Bounds of a page of jobs.
const (
	pageSize   = 50
	mostPage   = 200
	mostOffset = 10_000
)

// addAPI adds the routes that answer in JSON. They read.
func (s *Server) addAPI(mux *http.ServeMux) {
	get := func(path string, answer func(r *http.Request) (any, error)) {
		mux.HandleFunc("GET /v1/"+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := answer(r)
			if err != nil {
				s.failJSON(w, r, err)
				return
			}
			if b, ok := v.(withHeaders); ok {
				b.headers(w.Header())
			}
			w.Header().Set("Content-Type", "application/json")
			encoder := json.NewEncoder(w)
			encoder.SetEscapeHTML(true)
			_ = encoder.Encode(v)
		})
	}
	get("queues", s.apiQueues)
	get("queues/{queue}", s.apiQueue)
	get("queues/{queue}/counts", s.apiCounts)
	get("queues/{queue}/budgets", s.apiBudgets)
	get("queues/{queue}/workers", s.apiWorkers)
	get("queues/{queue}/scale", s.apiScale)
	get("queues/{queue}/jobs", s.apiJobs)
	get("queues/{queue}/jobs/{id}", s.apiJob)
	get("queues/{queue}/jobs/{id}/explain", s.apiExplain)
	mux.HandleFunc("GET /v1/", func(w http.ResponseWriter, r *http.Request) { s.failJSON(w, r, errNoRoute) })
}

// withHeaders is an answer that says something in headers too.
type withHeaders interface{ headers(h http.Header) }

var errNoRoute = errors.New("no such resource")

// badRequest is an error in what was asked.
type badRequest struct{ error }

// status is the HTTP status that goes with an error.
func status(err error) int {
	var bad badRequest
	switch {
	case errors.As(err, &bad), errors.Is(err, queue.ErrBadName), errors.Is(err, queue.ErrBadJob):
		return http.StatusBadRequest
	case errors.Is(err, errNoRoute), errors.Is(err, queue.ErrNotFound), errors.Is(err, metrics.ErrNotFound), errors.Is(err, queue.ErrNoLimit):
		return http.StatusNotFound
	case errors.Is(err, queue.ErrWrongState), broken(err):
		return http.StatusConflict
	}
	if _, answered := valkey.IsValkeyErr(err); answered && !errors.Is(err, queue.ErrUnavailable) {
		return http.StatusInternalServerError
	}
	return http.StatusServiceUnavailable
}

func (s *Server) failJSON(w http.ResponseWriter, r *http.Request, err error) {
	code := status(err)
	if code >= 500 {
		s.log.Warn("request failed", "path", r.URL.Path, "error", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

// sortedNames lists the known queues.
func sortedNames(ctx context.Context, client valkey.Client) ([]string, error) {
	names, err := queue.Names(ctx, client)
	slices.Sort(names)
	return names, err
}

// queueJSON is a queue at a glance.
type queueJSON struct {
	Queue   string      `json:"queue"`
	AtMS    int64       `json:"at_ms"`
	Verdict string      `json:"verdict"`        // one word
	Text    string      `json:"text"`           // the same for people
	UntilMS int64       `json:"until_ms"`       // when it goes on by itself; 0: not known
	Counts  countsJSON  `json:"counts"`         //
	Workers int         `json:"workers"`        // alive
	Slots   int         `json:"slots"`          // jobs that they run at once at most
	ETAMS   int64       `json:"backlog_eta_ms"` // when the last of the waiting jobs is granted, by the limits that all jobs fall under
	Limits  []limitJSON `json:"limits"`         //
	Broken  string      `json:"broken,omitempty"`
}

func (v view) json() queueJSON {
	return queueJSON{
		Queue: v.Queue, AtMS: since1970(v.At), Verdict: string(v.Verdict.Word), Text: v.Verdict.Text, UntilMS: since1970(v.Verdict.Until),
		Counts: countsOf(v.Counts), Workers: v.Fleet.Alive(), Slots: v.Fleet.Slots(), ETAMS: v.ETA.In().Milliseconds(), Limits: limitsOf(v.All),
		Broken: v.Broken,
	}
}

func since1970(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func (s *Server) apiQueues(r *http.Request) (any, error) {
	views, err := s.all(r.Context())
	all := []queueJSON{}
	for _, v := range views {
		all = append(all, v.json())
	}
	return map[string]any{"queues": all}, err
}

func (s *Server) apiQueue(r *http.Request) (any, error) {
	v, err := s.look(r.Context(), r.PathValue("queue"))
	return v.json(), err
}

// countsJSON is how many jobs are where.
type countsJSON struct {
	AtMS       int64 `json:"at_ms"`
	Wait       int64 `json:"wait"`
	Active     int64 `json:"active"`
	Delayed    int64 `json:"delayed"`     // all …
	DelayedOwn int64 `json:"delayed_own"` // … those that wait for a time of their own …
	SentBack   int64 `json:"sent_back"`   // … and those that limits sent back
	Dead       int64 `json:"dead"`
	Completed  int64 `json:"completed"`
	Paused     bool  `json:"paused"`
}

func countsOf(n metrics.Counts) countsJSON {
	return countsJSON{since1970(n.At), n.Wait, n.Active, n.Delayed, n.Delayed - n.SentBack, n.SentBack, n.Dead, n.Completed, n.Paused}
}

func (s *Server) apiCounts(r *http.Request) (any, error) {
	n, err := metrics.ReadCounts(r.Context(), s.opts.Client, r.PathValue("queue"))
	return countsOf(n), err
}

// limitJSON is one limit; the queue's own has no name.
type limitJSON struct {
	Name      string       `json:"name"`
	Algorithm string       `json:"algorithm"`
	Max       int64        `json:"max"`
	WindowMS  int64        `json:"window_ms"` // 0: it counts jobs in flight
	Burst     int64        `json:"burst,omitempty"`
	By        string       `json:"by,omitempty"`
	Unit      string       `json:"unit,omitempty"`
	Shadow    bool         `json:"shadow,omitempty"`
	Refused   int64        `json:"refused,omitempty"` // by a shadow
	Waiting   int64        `json:"waiting"`
	Lines     int64        `json:"lines"`
	Reason    string       `json:"reason,omitempty"`
	ChangedMS int64        `json:"changed_ms,omitempty"`
	Buckets   []bucketJSON `json:"buckets"`
}

// bucketJSON is the state of a limit, or of it for one key value.
type bucketJSON struct {
	Value        string `json:"value"`
	Max          int64  `json:"max"`
	WindowMS     int64  `json:"window_ms"`
	Used         int64  `json:"used"`
	Remaining    int64  `json:"remaining"` // -1: no limit
	RetryAfterMS int64  `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	Waiting      int64  `json:"waiting"`
}

func limitsOf(all metrics.All) []limitJSON {
	limits := []limitJSON{}
	for _, l := range all.Limits {
		one := limitJSON{Name: l.Name, Algorithm: string(l.Algorithm), Max: l.Max, WindowMS: l.Window.Milliseconds(), Burst: l.Burst, By: l.By,
			Unit: l.Unit, Shadow: l.Shadow, Refused: l.Refused, Waiting: l.Waiting, Lines: l.Lines, Reason: l.Reason,
			ChangedMS: since1970(l.ChangedAt), Buckets: []bucketJSON{}}
		for _, b := range l.Buckets {
			one.Buckets = append(one.Buckets, bucketJSON{b.Value, b.Max, b.Window.Milliseconds(), b.Used, b.Remaining, milliseconds(b.RetryAfter),
				milliseconds(b.ResetAfter), b.Waiting})
		}
		limits = append(limits, one)
	}
	return limits
}

// milliseconds are whole ones; -1 for never.
func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

// budgetsJSON is every limit of a queue.
type budgetsJSON struct {
	Queue       string       `json:"queue"`
	AtMS        int64        `json:"at_ms"`
	Paused      bool         `json:"paused"`
	PauseReason string       `json:"pause_reason,omitempty"`
	Closed      []closedJSON `json:"closed"`
	Limits      []limitJSON  `json:"limits"`
}

type closedJSON struct {
	Key     string `json:"key"` // "": the queue
	Value   string `json:"value"`
	UntilMS int64  `json:"until_ms"`
	Reason  string `json:"reason,omitempty"`
	Waiting int64  `json:"waiting"`
}

// headers are the RateLimit fields of the IETF draft, for the limits that all jobs fall under.
func (b budgetsJSON) headers(h http.Header) {
	for _, l := range b.Limits {
		if l.By != "" || l.WindowMS == 0 || len(l.Buckets) == 0 || l.Shadow {
			continue
		}
		name, bucket := l.Name, l.Buckets[0]
		if name == "" {
			name = b.Queue
		}
		h.Add("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", name, bucket.Max, ceilSeconds(bucket.WindowMS)))
		reset := bucket.ResetAfterMS
		if bucket.Remaining == 0 {
			reset = bucket.RetryAfterMS
		}
		h.Add("RateLimit", fmt.Sprintf("%q;r=%d;t=%d", name, max(0, bucket.Remaining), ceilSeconds(reset)))
	}
}

func ceilSeconds(ms int64) int64 { return (ms + 999) / 1000 }

func (s *Server) apiBudgets(r *http.Request) (any, error) {
	name := r.PathValue("queue")
	top, err := bounded(r, "top", topValues, metrics.MostTop)
	if err != nil {
		return nil, err
	}
	var also []metrics.KeyValue
	if limit, value := r.FormValue("limit"), r.FormValue("value"); limit != "" {
		if !utf8.ValidString(value) {
			return nil, badRequest{errors.New("value is no valid UTF-8")}
		}
		also = append(also, metrics.KeyValue{Limit: limit, Value: value})
	}
	all, err := metrics.Budgets(r.Context(), s.opts.Client, name, top, also...)
	if err != nil {
		return nil, err
	}
	b := budgetsJSON{Queue: name, AtMS: all.At.UnixMilli(), Paused: all.Paused, PauseReason: all.PauseReason, Closed: []closedJSON{}, Limits: limitsOf(all)}
	for _, c := range all.Closed {
		b.Closed = append(b.Closed, closedJSON{c.Key, c.Value, c.Until.UnixMilli(), c.Reason, c.Waiting})
	}
	return b, nil
}

// bounded is a whole number of the query from 0 to most.
func bounded(r *http.Request, name string, otherwise, most int) (int, error) {
	text := r.FormValue(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, badRequest{fmt.Errorf("%s is %q; want 0 to %d", name, cut(text, 40), most)}
	}
	return n, nil
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

type workerJSON struct {
	Process     string `json:"process"`
	Host        string `json:"host"`
	Pid         int    `json:"pid"`
	Version     string `json:"version"`
	Scripts     string `json:"scripts"`
	Concurrency int    `json:"concurrency"`
	Busy        int    `json:"busy"`
	Alive       bool   `json:"alive"`
	Stopping    bool   `json:"stopping"`
	StartedMS   int64  `json:"started_ms"`
	SeenMS      int64  `json:"seen_ms"`
}

func (s *Server) apiWorkers(r *http.Request) (any, error) {
	most, err := bounded(r, "most", mostWorkers, metrics.MostWorkers)
	if err != nil {
		return nil, err
	}
	fleet, err := metrics.Workers(r.Context(), s.opts.Client, r.PathValue("queue"), most)
	if err != nil {
		return nil, err
	}
	workers := []workerJSON{}
	for _, w := range fleet.Workers {
		workers = append(workers, workerJSON{w.Process, w.Host, w.Pid, w.Version, w.Scripts, w.Concurrency, w.Busy, w.Alive, w.Stopping,
			since1970(w.Started), since1970(w.Seen)})
	}
	return map[string]any{"queue": r.PathValue("queue"), "at_ms": fleet.At.UnixMilli(), "all": fleet.All, "mixed_scripts": fleet.Mixed(), "workers": workers}, nil
}

// Defaults and bounds of a scale.
const (
	assumedMean  = time.Second
	assumedSlots = 20 // of a worker, where none is there to ask
	mostMean     = 24 * time.Hour
)

type scaleJSON struct {
	Queue   string `json:"queue"`
	AtMS    int64  `json:"at_ms"`
	Desired int64  `json:"desired"` // worker processes
	Slots   int64  `json:"slots"`   // jobs at once
	Jobs    int64  `json:"jobs"`    // that could run if there were no limits
	Bound   string `json:"bound"`   // jobs, limit, concurrency, closed or paused
	Limit   string `json:"limit,omitempty"`
	MeanMS  int64  `json:"mean_ms"` // how long a job was taken to run
	Each    int64  `json:"each"`    // slots that a worker was taken to have
}

func (s *Server) apiScale(r *http.Request) (any, error) {
	mean := assumedMean
	if text := r.FormValue("mean"); text != "" {
		var err error
		if mean, err = time.ParseDuration(text); err != nil || mean <= 0 || mean > mostMean {
			return nil, badRequest{fmt.Errorf("mean is %q; want how long a job runs, such as 250ms, at most %v", cut(text, 40), mostMean)}
		}
	}
	v, err := s.look(r.Context(), r.PathValue("queue"))
	if err != nil {
		return nil, err
	}
	if v.Broken != "" {
		return nil, fmt.Errorf("%s", v.Broken)
	}
	each := int64(assumedSlots)
	if alive := v.Fleet.Alive(); alive > 0 {
		each = max(1, int64(v.Fleet.Slots()/alive))
	}
	asked, err := bounded(r, "each", int(each), 1000)
	if err != nil {
		return nil, err
	}
	each = max(1, int64(asked))
	scale := metrics.ScaleFor(v.All, v.Counts, mean, each)
	return scaleJSON{v.Queue, v.At.UnixMilli(), scale.Workers, scale.Slots, scale.Jobs, scale.Bound, scale.Limit, mean.Milliseconds(), each}, nil
}
