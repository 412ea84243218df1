package dashboard

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

//go:embed static
var staticFiles embed.FS

// Options of a [Server]. Client is needed.
type Options struct {
	Client valkey.Client
	// AllowActions lets users change things; without it no route that changes anything exists.
	AllowActions bool
	// Users may look, and act; everybody when nil.
	Users Users
	// Hosts are the names under which the dashboard is reached, beside those of this machine: a page elsewhere that makes a
	// browser ask under another name is refused.
	Hosts []string
	// BasePath is where the pages begin, such as /emq; / when empty.
	BasePath string
	// Version is shown.
	Version string
	// Logger gets every change and every look at a payload; none when nil.
	Logger *slog.Logger
}

// Server is the dashboard; it is an [http.Handler].
type Server struct {
	opts   Options
	log    *slog.Logger
	pages  *pages
	routes http.Handler
	slots  chan struct{} // one token per stream that may be open
}

// Bounds.
const (
	mostStreams = 200
	readWithin  = 5 * time.Second
	mostBody    = 64 << 10 // bytes of a form
)

// New returns a dashboard; nothing is sent yet.
func New(opts Options) (*Server, error) {
	if opts.Client == nil {
		return nil, errors.New("dashboard: client is nil")
	}
	opts.BasePath = strings.TrimRight(opts.BasePath, "/")
	if opts.BasePath != "" && !strings.HasPrefix(opts.BasePath, "/") {
		return nil, fmt.Errorf("dashboard: base path %q does not begin with /", opts.BasePath)
	}
	s := &Server{opts: opts, log: opts.Logger, slots: make(chan struct{}, mostStreams)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.pages, err = newPages(opts); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	files, err := fs.Sub(staticFiles, "static")
	if err != nil {
		return nil, err
	}
	mux.Handle("GET /static/", http.StripPrefix("/static/", cached(http.FileServerFS(files))))
	s.addPages(mux)
	s.addAPI(mux)
	if opts.AllowActions {
		s.addActions(mux)
	}
	var handler http.Handler = http.StripPrefix(opts.BasePath, mux)
	handler = http.NewCrossOriginProtection().Handler(handler)
	handler = s.known(handler)
	s.routes = headers(s.host(handler))
	return s, nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes.ServeHTTP(w, r) }

// headers say what a browser may do with what this server sends.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		next.ServeHTTP(w, r)
	})
}

// host refuses requests under names that are not this server's, since a foreign page can make its own name lead here.
func (s *Server) host(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Host
		if host, _, err := net.SplitHostPort(r.Host); err == nil {
			name = host
		}
		ip := net.ParseIP(strings.Trim(name, "[]"))
		if name != "localhost" && (ip == nil || !ip.IsLoopback()) && !slices.Contains(s.opts.Hosts, name) {
			http.Error(w, "this server is not called so; name it with --host", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
