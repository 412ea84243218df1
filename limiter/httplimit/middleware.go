package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/lua"
)

// Taker takes units of a bucket; [limiter.Limiter] is one.
type Taker interface {
	Take(ctx context.Context, key string, limit limiter.Limit, n int64) (limiter.Decision, error)
}

// Options of a middleware. Key is needed; the zero value of the others is the default.
type Options struct {
	// Limit is the rule for each key. The zero Limit limits nothing.
	Limit limiter.Limit
	// Key names the bucket of a request, for example by its user. A request with an empty key is not limited. A key made of what
	// the client sends lets it choose its bucket: use what it has proved.
	Key func(*http.Request) string
	// Cost is how many units a request takes; nil for 1.
	Cost func(*http.Request) int64
	// Name is what clients know the limit by, in printable ASCII; "default" when empty.
	Name string
	// Dialect of the fields; [Draft11] when 0.
	Dialect Dialect
	// Denied answers denied requests, after the fields were set; nil for 429 with a line of text.
	Denied http.Handler
	// Failed answers a request that the limiter returned an error for; nil for 400 when the key or the cost is one that no
	// bucket has, else 503. With [limiter.FailOpen] or [limiter.FailClosed] a store that is down is no error.
	Failed func(w http.ResponseWriter, r *http.Request, err error)
}

// New returns a middleware that asks the limiter about each request, sets the fields, and hands it on if it is allowed. A request
// that a [limiter.LeakyBucket] delays is held back until its turn, or until its client gives up. New refuses nonsense in the
// options.
func New(l Taker, opts Options) (func(http.Handler) http.Handler, error) {
	if l == nil {
		return nil, errors.New("httplimit: the limiter is nil; make one with limiter.New")
	}
	if opts.Key == nil {
		return nil, errors.New("httplimit: Key is nil; want a function that names the bucket of a request")
	}
	if err := opts.Limit.Validate(); err != nil {
		return nil, fmt.Errorf("httplimit: Limit: %w", err)
	}
	if opts.Dialect < Draft11 || opts.Dialect > Legacy {
		return nil, fmt.Errorf("httplimit: Dialect is %d; want Draft11, Draft12 or Legacy", opts.Dialect)
	}
	if !printable(opts.Name) {
		return nil, fmt.Errorf("httplimit: Name is %q; want printable ASCII", opts.Name)
	}
	if opts.Denied == nil {
		opts.Denied = http.HandlerFunc(tooMany)
	}
	if opts.Failed == nil {
		opts.Failed = unavailable
	}
	return func(next http.Handler) http.Handler { return &handler{l, opts, next} }, nil
}

type handler struct {
	limiter Taker
	opts    Options
	next    http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := h.opts.Key(r)
	if key == "" {
		h.next.ServeHTTP(w, r)
		return
	}
	cost := int64(1)
	if h.opts.Cost != nil {
		cost = h.opts.Cost(r)
	}
	d, err := h.limiter.Take(r.Context(), key, h.opts.Limit, cost)
	if err != nil {
		h.opts.Failed(w, r, err)
		return
	}
	Set(w.Header(), h.opts.Dialect, Policy{h.opts.Name, h.opts.Limit, d})
	if !d.Allowed {
		h.opts.Denied.ServeHTTP(w, r)
		return
	}
	if d.Delay > 0 {
		turn := time.NewTimer(d.Delay)
		defer turn.Stop()
		select {
		case <-turn.C:
		case <-r.Context().Done():
			return
		}
	}
	h.next.ServeHTTP(w, r)
}

func tooMany(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "too many requests", http.StatusTooManyRequests)
}

func unavailable(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, lua.ErrBadName) || errors.Is(err, limiter.ErrBadCost) {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	http.Error(w, "the rate limit cannot be checked", http.StatusServiceUnavailable)
}
