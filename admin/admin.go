// Package admin shows operators a running feedbridge: a small HTTP server that
// reports whether the process works, whether its feeds are fresh, how much it
// does, and in a sentence, the present work of each feed.
//
//	/healthz      200 as long as the process answers
//	/readyz       200 if every bus answers that feeds are copied to, and every such feed is fresh, else 503; the body says why
//	/metrics      Prometheus
//	/status       JSON, a row per feed, copied or served; /status/NAME has one that is copied
//
// Requests that change something are POST. They need a token, or come through a Unix socket;
// see [Server.AddChange].
//
// A [Feed] watches one bridge: it is a [bridge.Observer]. Every call
// updates one record, which metrics, status and readiness are made from when they
// are requested, so that they cannot disagree.
//
// Scripts read what is served here. Keys, metrics and labels are only added.
package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/feedbridge/feedbridge/credential"
	"github.com/feedbridge/feedbridge/safetext"
)

// Options describe the process.
type Options struct {
	// Version is the version of the program.
	Version string
	// Started holds the time when the process started.
	Started time.Time
	// Writer names this copy, as its checkpoints do.
	Writer string
	// Buses are asked whether they answer by /readyz and /status.
	Buses []Bus
	// Log gets the errors of the server itself.
	Log *slog.Logger
	// Connections limits the number of clients connected at a time. For one more, the
	// client that has been idle or slow for longest is disconnected, once it has been so
	// for 250ms. Default 64.
	Connections int
	// Redact hides the secrets of URLs in all answers. Nil means one that
	// knows the usual names of parameters.
	Redact *safetext.Redactor
	// Token returns the token that a change by TCP needs. It is called for each of them.
	// Nil means that the TCP address is read-only.
	Token func() (credential.Secret, error)
	// Hosts returns the names that a Host header may have besides those that are not in
	// the public DNS. Nil means none.
	Hosts func() []string
	// PerFeed selects the metrics that have a series for each feed. Default [Full].
	PerFeed PerFeed
}

// Server shows the state of a process. Its methods may be called from any
// goroutine.
type Server struct {
	opts     Options
	buses    []*busCheck
	registry *prometheus.Registry
	times    histograms
	changes  map[string]Change // by pattern; set before the first request

	mu     sync.Mutex // protects feeds and served
	feeds  []*Feed    // sorted by name
	served []*Served  // sorted by name
}

// New returns a Server that has no feeds yet.
func New(opts Options) *Server {
	if opts.Connections <= 0 {
		opts.Connections = 64
	}
	if opts.Hosts == nil {
		opts.Hosts = func() []string { return nil }
	}
	s := &Server{opts: opts, registry: prometheus.NewRegistry(), changes: map[string]Change{}}
	for _, bus := range opts.Buses {
		s.buses = append(s.buses, &busCheck{Bus: bus})
	}
	s.times = register(s.registry, s, opts.Version)
	return s
}

// AddFeed returns the observer of the bridge that copies the feed. Names are
// unique among a Server's feeds.
func (s *Server) AddFeed(opts FeedOptions) *Feed {
	f := newFeed(opts, s.opts.Writer, s.opts.Redact, s.times)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.feeds, f, func(a, b *Feed) int { return cmp.Compare(a.opts.Name, b.opts.Name) })
	s.feeds = slices.Insert(s.feeds, i, f)
	return f
}

func (s *Server) allFeeds() []*Feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.feeds)
}

// AddServed returns what watches a topic that is served as a feed. Names are unique
// among them.
func (s *Server) AddServed(opts ServedOptions) *Served {
	f := &Served{opts: opts, redact: s.opts.Redact, times: s.times}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.served, f, func(a, b *Served) int { return cmp.Compare(a.opts.Name, b.opts.Name) })
	s.served = slices.Insert(s.served, i, f)
	return f
}

func (s *Server) allServed() []*Served {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.served)
}

const index = `feedbridge
/healthz      whether the process answers
/readyz       whether every bus answers and every feed is fresh, and if not, why
/metrics      Prometheus metrics
/status       what every feed is doing; /status/NAME for one that is copied
`

// Handler serves the paths in the package comment to clients that come by TCP: to GET and
// HEAD, and to POST with the token.
func (s *Server) Handler() http.Handler { return s.checkHost(s.newHandler(false)) }

// newHandler returns the handler for clients that come by TCP, or by the Unix socket. The
// latter need no token.
func (s *Server) newHandler(socket bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", textHandler(index))
	mux.HandleFunc("GET /healthz", textHandler("ok\n"))
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.HandleFunc("GET /status", s.serveStatus)
	mux.HandleFunc("GET /status/{feed}", s.serveFeed)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	}))
	for pattern, change := range s.changes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serveChange(w, r, change, socket) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

func textHandler(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(body))
	}
}

// writeJSON answers with v, indented: people read it with curl.
func (s *Server) writeJSON(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		s.opts.Log.Error("cannot encode the status as JSON", "error", err)
		http.Error(w, "cannot encode the status as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(s.opts.Redact.JSON(body.Bytes(), longestText))
}
