package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/echomq/emq/meter"
	"github.com/echomq/emq/worker"
)

// Defaults and bounds of [Options].
const (
	DefaultTimeout = 30 * time.Second
	DefaultMaxWait = time.Hour
	unsaidWait     = 5 * time.Second // of a 429 that does not say how long
	bodyRead       = 64 << 10        // bytes of an answer that are read, so that its connection can be used again
)

// Options of a [Poster]. URL is needed; zero values of the others mean the defaults.
type Options struct {
	// URL is where jobs are posted to: https, or with Private also http.
	URL string
	// Private lets jobs go to addresses that are not of the public internet, such as 127.0.0.1 or 10.0.0.8.
	Private bool
	// Timeout is how long one request may take; [DefaultTimeout] when 0.
	Timeout time.Duration
	// Secrets sign each request, see [Secrets]; unsigned when empty.
	Secrets [][]byte
	// CloseKey names the key whose value is closed when the endpoint asks to wait; the whole queue when empty.
	CloseKey string
	// NoClose defers the job alone.
	NoClose bool
	// MaxWait bounds what an endpoint may ask for; [DefaultMaxWait] when 0.
	MaxWait time.Duration
	// Concurrency is how many requests run at once at most, for the pool of connections.
	Concurrency int
}

// Poster posts jobs. Make one with [New].
type Poster struct {
	opts   Options
	client *http.Client
}

// New returns a poster; nothing is sent yet. It fails when the URL is none that jobs may be posted to.
func New(opts Options) (*Poster, error) {
	to, err := url.Parse(opts.URL)
	switch {
	case err != nil:
		return nil, errors.New("this is no URL; want one such as https://example.org/jobs")
	case to.Host == "" || to.Scheme != "https" && to.Scheme != "http":
		return nil, fmt.Errorf("%q is no URL of a web server; want one such as https://example.org/jobs", to.Redacted())
	case to.Scheme == "http" && !opts.Private:
		return nil, fmt.Errorf("%s would send jobs unencrypted; want https://, or --http-private for a server of your own network", to.Redacted())
	}
	ip, err := netip.ParseAddr(to.Hostname())
	if !opts.Private && (err == nil && !public(ip) || to.Hostname() == "localhost") {
		return nil, fmt.Errorf("%s is not of the public internet; --http-private lets jobs go there", to.Hostname())
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.MaxWait == 0 {
		opts.MaxWait = DefaultMaxWait
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: guard(opts.Private, to.Scheme == "http")}
	return &Poster{opts: opts, client: &http.Client{
		Timeout: opts.Timeout,
		Transport: &http.Transport{
			Proxy: nil, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: max(2, opts.Concurrency), IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close lets go of idle connections.
func (p *Poster) Close() { p.client.CloseIdleConnections() }

// Handle posts one job; it is a [worker.Handler].
func (p *Poster) Handle(ctx context.Context, job *worker.Job) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.opts.URL, bytes.NewReader(job.Payload))
	if err != nil {
		return worker.DeadLetter(err)
	}
	p.describe(ctx, request.Header, job)
	answer, err := p.client.Do(request)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // without the URL, which may hold a secret
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("no answer: %w", err)
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, bodyRead)
	return p.outcome(answer, time.Now())
}

// describe says in headers what job it is.
func (p *Poster) describe(ctx context.Context, h http.Header, job *worker.Job) {
	h.Set("Content-Type", "application/octet-stream")
	if json.Valid(job.Payload) {
		h.Set("Content-Type", "application/json")
	}
	h.Set("User-Agent", "emqworker")
	h.Set("Emq-Queue", job.Queue)
	h.Set("Emq-Job-Id", job.ID)
	if job.Name != "" {
		h.Set("Emq-Job-Name", job.Name)
	}
	h.Set("Emq-Attempt", strconv.Itoa(job.Attempt))
	h.Set("Emq-Deferrals", strconv.Itoa(job.Deferrals))
	h.Set("Emq-Enqueued-Ms", strconv.FormatInt(job.EnqueuedAt.UnixMilli(), 10))
	h.Set("Emq-Claimed-Ms", strconv.FormatInt(job.ClaimedAt.UnixMilli(), 10))
	h.Set("Emq-Token", job.Token())
	if deadline, ok := ctx.Deadline(); ok {
		h.Set("Emq-Deadline-Ms", strconv.FormatInt(deadline.UnixMilli(), 10))
	}
	keys := url.Values{}
	for name, value := range job.Keys {
		keys.Set(name, value)
	}
	if len(keys) > 0 {
		h.Set("Emq-Keys", keys.Encode())
	}
	cost := url.Values{}
	for unit, n := range job.Cost {
		cost.Set(unit, strconv.FormatInt(n, 10))
	}
	if len(cost) > 0 {
		h.Set("Emq-Cost", cost.Encode())
	}
	parent, state := meter.Inject(ctx)
	if parent == "" {
		parent, state = job.TraceContext()
	}
	if parent != "" {
		h.Set("Traceparent", parent)
		if state != "" {
			h.Set("Tracestate", state)
		}
	}
	now := time.Now()
	h.Set("Webhook-Id", job.ID)
	h.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	if len(p.opts.Secrets) > 0 {
		h.Set("Webhook-Signature", sign(p.opts.Secrets, job.ID, now, job.Payload))
	}
}

// again are answers of 4xx after which another attempt may help.
var again = []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests}

// outcome is what an answer means for its job.
func (p *Poster) outcome(answer *http.Response, now time.Time) error {
	code := answer.StatusCode
	said := fmt.Errorf("answer %d %s", code, http.StatusText(code))
	switch {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		wait, asked := Wait(answer.Header, now)
		if !asked && code == http.StatusTooManyRequests {
			wait, asked = unsaidWait, true
		}
		if !asked {
			return said
		}
		return p.wait(min(wait, p.opts.MaxWait), said)
	case code >= 300 && code < 400:
		return worker.DeadLetter(fmt.Errorf("%w: redirects are not followed; post to where it leads", said))
	case code >= 400 && code < 500 && !slices.Contains(again, code):
		return worker.DeadLetter(said)
	}
	return said
}

// wait lets the job, and what falls under the same limit, wait without spending an attempt.
func (p *Poster) wait(d time.Duration, why error) error {
	switch {
	case p.opts.NoClose:
		return worker.Defer(d)
	case p.opts.CloseKey != "":
		return worker.RateLimited(d, worker.Because(why), worker.Key(p.opts.CloseKey))
	}
	return worker.RateLimited(d, worker.Because(why))
}
