package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/metrics"
	"github.com/echomq/emq/queue"
)

//go:embed templates
var templateFiles embed.FS

// pages are the templates, by name.
type pages struct {
	all *template.Template
}

func newPages(opts Options) (*pages, error) {
	sum := sha256.New()
	err := fs.WalkDir(staticFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := staticFiles.ReadFile(path)
		sum.Write(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	build := hex.EncodeToString(sum.Sum(nil))[:8]
	all, err := template.New("").Funcs(template.FuncMap{
		"static":    func(file string) string { return opts.BasePath + "/static/" + file + "?" + build },
		"base":      func() string { return opts.BasePath },
		"actions":   func() bool { return opts.AllowActions },
		"version":   func() string { return opts.Version },
		"queue":     func(name string) string { return opts.BasePath + "/q/" + url.PathEscape(name) },
		"ms":        func(t time.Time) string { return strconv.FormatInt(since1970(t), 10) },
		"until":     func(t time.Time) string { return strconv.FormatInt(t.Round(100*time.Millisecond).UnixMilli(), 10) },
		"pair":      func(a, b any) []any { return []any{a, b} },
		"clock":     clock,
		"short":     metrics.Short,
		"share":     share,
		"limit":     limitText,
		"title":     limitTitle,
		"line":      lineOf,
		"time":      timeOf,
		"more":      func(n int) int { return n + pageSize },
		"less":      func(n int) int { return max(0, n-pageSize) },
		"states":    func() []queue.State { return states },
		"thousands": thousands,
	}).ParseFS(templateFiles, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	return &pages{all}, nil
}

// render runs a template whole before anything is sent.
func (p *pages) render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := p.all.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	return b.Bytes(), nil
}

// clock is a time of day for a reader who sees the date elsewhere; the page's script makes it local.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// share is how much of a whole a part is, from 0 to 100.
func share(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return int64(100 * min(1, float64(max(0, part))/float64(whole)))
}

func limitTitle(l metrics.Limit) string {
	if l.Name == "" {
		return "the queue's limit"
	}
	return l.Name
}

// limitText is a limit in words.
func limitText(l metrics.Limit) string {
	text := queue.NamedLimit{Name: "x", Limit: l.Limit, By: l.By, Unit: l.Unit, Shadow: &l.Shadow}.String()
	if l.Name == "" {
		text = limiter.Limit{Algorithm: l.Algorithm, Max: l.Max, Window: l.Window, Burst: l.Burst}.String()
	}
	return text
}

// thousands is a number with its digits in threes.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// addPages adds the routes for people. They read.
func (s *Server) addPages(mux *http.ServeMux) {
	page := func(path, template string, data func(r *http.Request) (any, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := data(r)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			s.show(w, r, http.StatusOK, template, v)
		})
	}
	page("/{$}", "queues.html", s.queuesPage)
	page("/q/{queue}", "queue.html", s.queuePage)
	page("/q/{queue}/jobs", "jobs.html", s.jobsPage)
	page("/q/{queue}/jobs/{id}", "job.html", s.jobPage)
	page("/q/{queue}/jobs/{id}/body", "body", s.bodyPage)
	page("/q/{queue}/limit", "limit.html", s.limitPage)
	page("/q/{queue}/eta", "eta", s.etaPage)
	mux.HandleFunc("GET /events", s.queuesEvents)
	mux.HandleFunc("GET /q/{queue}/events", s.queueEvents)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, errNoRoute) })
}

func (s *Server) show(w http.ResponseWriter, r *http.Request, code int, template string, data any) {
	text, err := s.pages.render(template, data)
	if err != nil {
		s.log.Error("page failed", "path", r.URL.Path, "error", err)
		http.Error(w, "this page has a fault; the log says which", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(text)
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	code := status(err)
	if code >= 500 {
		s.log.Warn("request failed", "path", r.URL.Path, "error", err)
	}
	s.show(w, r, code, "error.html", map[string]any{"Code": code, "Text": err.Error()})
}

// ready: the server of the queues answers.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if _, err := s.names(r.Context()); err != nil {
		http.Error(w, "the server of the queues does not answer", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *Server) queuesPage(r *http.Request) (any, error) { return s.all(r.Context()) }

func (s *Server) queuePage(r *http.Request) (any, error) {
	v, err := s.look(r.Context(), r.PathValue("queue"))
	return v, err
}

// jobsView is one page of jobs.
type jobsView struct {
	Queue  string
	State  queue.State
	Offset int
	Jobs   []queue.Status
	More   bool
}

func (s *Server) jobsPage(r *http.Request) (any, error) {
	state, offset, _, err := asked(r)
	if err != nil {
		return nil, err
	}
	v := jobsView{Queue: r.PathValue("queue"), State: state, Offset: offset}
	if v.Jobs, err = s.page(r.Context(), v.Queue, state, offset, pageSize+1); err != nil {
		return nil, err
	}
	if len(v.Jobs) > pageSize {
		v.Jobs, v.More = v.Jobs[:pageSize], offset+pageSize <= mostOffset
	}
	return v, nil
}

// jobView is one job.
type jobView struct {
	Queue string
	Job   queue.Status
	Why   metrics.Explanation
}

func (s *Server) jobPage(r *http.Request) (any, error) {
	v := jobView{Queue: r.PathValue("queue")}
	var err error
	if v.Job, err = s.job(r.Context(), v.Queue, r.PathValue("id")); err != nil {
		return nil, err
	}
	v.Why, err = s.explain(r.Context(), v.Queue, v.Job.ID)
	return v, err
}

// bodyView is what a job carries, cut to what a page can show.
type bodyView struct {
	Payload, Error, Result string
	Cut                    bool
}

const mostShown = 16 << 10 // bytes

// bodyPage shows what is hidden otherwise, and says so in the log.
func (s *Server) bodyPage(r *http.Request) (any, error) {
	j, err := s.job(r.Context(), r.PathValue("queue"), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	s.log.Info("payload shown", "queue", r.PathValue("queue"), "job", j.ID, "user", user(r))
	v := bodyView{Error: j.LastError}
	shown := func(b []byte) string {
		if len(b) > mostShown {
			b, v.Cut = b[:mostShown], true
		}
		return readable(b)
	}
	v.Payload, v.Result = shown(j.Payload), shown(j.Result)
	return v, nil
}

// limitView is one limit with its key values.
type limitView struct {
	Queue string
	At    time.Time
	Limit metrics.Limit
	Value string // searched for
}

func (s *Server) limitPage(r *http.Request) (any, error) {
	name, limit, value := r.PathValue("queue"), r.FormValue("name"), r.FormValue("value")
	var also []metrics.KeyValue
	if value != "" && limit != "" {
		also = append(also, metrics.KeyValue{Limit: limit, Value: value})
	}
	all, err := metrics.Budgets(r.Context(), s.opts.Client, name, 100, also...)
	if err != nil {
		return nil, err
	}
	for _, l := range all.Limits {
		if l.Name == limit {
			return limitView{name, all.At, l, value}, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", queue.ErrNoLimit, cut(limit, 128))
}

// etaView is when the backlog is done at another max of the queue's limit.
type etaView struct {
	Max  int64
	ETA  metrics.ETA
	Jobs int64
}

func (s *Server) etaPage(r *http.Request) (any, error) {
	most, err := bounded(r, "max", 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	v, err := s.look(r.Context(), r.PathValue("queue"))
	if err != nil {
		return nil, err
	}
	for i := range v.All.Limits {
		l := &v.All.Limits[i]
		if l.Name != "" || most == 0 || len(l.Buckets) == 0 {
			continue
		}
		b := &l.Buckets[0]
		l.Max, b.Max = int64(most), int64(most)
		b.Remaining = max(0, int64(most)-b.Used)
	}
	return etaView{int64(most), v.All.Backlog(v.Runnable(), 0, 0), v.Runnable()}, nil
}
