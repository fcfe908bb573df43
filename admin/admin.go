// Package admin shows operators a running feedbridge: a small HTTP server that
// reports whether the process works, whether its feeds are fresh, how much it
// does, and in a sentence, the present work of each feed.
//
//	/             pages for people; see package page
//	/healthz      200 as long as the process answers and can read the state of every feed
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

	"github.com/feedbridge/feedbridge/admin/page"
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
	// Buses are asked whether they answer by /readyz and /status; see [Server.AddBus].
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
	// Hosts are the names that a Host header may have besides those that are not in the
	// public DNS.
	Hosts []string
	// PerFeed selects the metrics that have a series for each feed. Default [Full].
	PerFeed PerFeed
}

// Server shows the state of a process. Its methods may be called from any
// goroutine.
type Server struct {
	opts     Options
	registry *prometheus.Registry
	times    histograms
	changes  map[string]Change // by pattern; set before the first request
	pages    *page.Pages
	config   configHistory

	mu     sync.Mutex  // protects the fields below
	buses  []*busCheck // sorted by name
	feeds  []*Feed     // sorted by name
	served []*Served   // sorted by name
}

// New returns a Server that has no feeds yet.
func New(opts Options) *Server {
	if opts.Connections <= 0 {
		opts.Connections = 64
	}
	s := &Server{opts: opts, registry: prometheus.NewRegistry(), changes: map[string]Change{}, config: configHistory{loadedAt: time.Now()}}
	for _, bus := range opts.Buses {
		s.AddBus(bus)
	}
	s.times = register(s.registry, s, opts.Version)
	s.pages = page.New(pageSource{s}, page.Options{
		Version: opts.Version, Writer: opts.Writer, Started: opts.Started, Log: opts.Log,
		// Probes and scrapes need connections, too.
		Streams: min(16, max(1, opts.Connections/4)),
	})
	return s
}

// AddChange makes the server answer POST requests for a path, which may have the wildcards of
// [http.ServeMux]. It is called before the first request.
//
// A change needs the token of [Options], or comes through the Unix socket.
func (s *Server) AddChange(path string, change Change) {
	s.changes["POST "+path] = change
}

// AddFeed returns the observer of the bridge that copies the feed. It takes the place of the
// feed of that name, if there is one, whose counters start again at zero.
func (s *Server) AddFeed(opts FeedOptions) *Feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearchFunc(s.feeds, opts.Name, func(f *Feed, name string) int { return cmp.Compare(f.opts.Name, name) })
	if found {
		s.times.forgetFeed(opts.Name)
	}
	f := newFeed(opts, s.opts.Writer, s.opts.Redact, s.times)
	if found {
		// The topic is as fresh as it was.
		f.record.freshAt = s.feeds[i].copyRecord().freshAt
		s.feeds = slices.Delete(slices.Clone(s.feeds), i, i+1)
	}
	s.feeds = slices.Insert(s.feeds, i, f)
	return f
}

// RemoveFeed removes a feed and its metrics.
func (s *Server) RemoveFeed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times.forgetFeed(name)
	s.feeds = slices.DeleteFunc(slices.Clone(s.feeds), func(f *Feed) bool { return f.opts.Name == name })
}

func (s *Server) allFeeds() []*Feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.feeds)
}

// AddServed returns what watches a topic that is served as a feed. It takes the place of the
// one of that name, if there is one.
func (s *Server) AddServed(opts ServedOptions) *Served {
	f := &Served{opts: opts, redact: s.opts.Redact, times: s.times}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearchFunc(s.served, opts.Name, func(f *Served, name string) int { return cmp.Compare(f.opts.Name, name) })
	if found {
		s.served[i].remove()
		s.served = slices.Delete(slices.Clone(s.served), i, i+1)
	}
	s.served = slices.Insert(s.served, i, f)
	return f
}

// RemoveServed removes a served topic and its metrics.
func (s *Server) RemoveServed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = slices.DeleteFunc(slices.Clone(s.served), func(f *Served) bool {
		if f.opts.Name == name {
			f.remove()
		}
		return f.opts.Name == name
	})
}

func (s *Server) allServed() []*Served {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.served)
}

// AddBus makes /readyz and /status ask a bus. It takes the place of the one of that name, if
// there is one.
func (s *Server) AddBus(bus Bus) {
	s.RemoveBus(bus.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.buses, bus.Name, func(b *busCheck, name string) int { return cmp.Compare(b.Name, name) })
	s.buses = slices.Insert(slices.Clone(s.buses), i, &busCheck{Bus: bus})
}

// RemoveBus removes a bus and its metrics.
func (s *Server) RemoveBus(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buses = slices.DeleteFunc(slices.Clone(s.buses), func(b *busCheck) bool { return b.Name == name })
}

// ConfigLoaded records an attempt to load the configuration again. If err is not nil the one
// before stays in use.
func (s *Server) ConfigLoaded(err error) { s.config.record(err) }

func (s *Server) allBuses() []*busCheck {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.buses)
}

// Handler serves the paths in the package comment to clients that come by TCP: to GET and
// HEAD, and to POST with the token.
func (s *Server) Handler() http.Handler { return hosts(s.opts.Hosts).checkHost(s.newHandler(false)) }

// newHandler returns the handler for clients that come by TCP, or by the Unix socket. The
// latter need no token.
func (s *Server) newHandler(socket bool) http.Handler {
	mux := http.NewServeMux()
	s.pages.Register(mux)
	mux.HandleFunc("GET /healthz", s.serveHealth)
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
