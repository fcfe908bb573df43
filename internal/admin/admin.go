// Package admin shows operators a running feedbridge: a small HTTP server that
// reports whether the process works, whether its feeds are fresh, how much it
// does, and in a sentence, the present work of each feed.
//
//	/             pages for people; see package statuspage
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
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/admin/statuspage"
)

// Server shows the state of a process. Its methods may be called from any
// goroutine.
type Server struct {
	*inventory
	registry *prometheus.Registry
	metrics  http.Handler      // one for all clients; see shareGather
	changes  map[string]Change // by pattern; set before the first request
	pages    *statuspage.Pages
}

// New returns a Server that has no feeds yet.
func New(opts Options) *Server {
	if opts.Connections <= 0 {
		opts.Connections = 64
	}
	shared := newVectors()
	inv := &inventory{opts: opts, redact: opts.Redact, fleet: opts.Fleet, lists: feedLists{opts.Lists, opts.Redact, opts.Fleet}, forward: newForwarder(opts.Fleet, opts.Token), shared: shared, config: configHistory{loadedAt: time.Now()}}
	for _, bus := range opts.Buses {
		inv.AddBus(bus)
	}
	rows := pageSource{inv}
	registry := newRegistry(inv, shared, opts)
	return &Server{
		inventory: inv,
		registry:  registry,
		metrics: promhttp.HandlerFor(prometheus.GathererFunc(shareGather(registry.Gather)), promhttp.HandlerOpts{
			ErrorLog:      slog.NewLogLogger(opts.Log.Handler(), slog.LevelError),
			ErrorHandling: promhttp.ContinueOnError,
		}),
		changes: map[string]Change{},
		pages: statuspage.New(statuspage.Options{
			Feeds: rows.Feeds, Feed: rows.Feed, Served: rows.Served, Token: opts.Token != nil, Program: opts.Program,
			Version: opts.Version, Writer: opts.Writer, Started: opts.Started, Log: opts.Log,
			// Probes and scrapes need connections, too.
			Streams: min(16, max(1, opts.Connections/4)),
		}),
	}
}

// AddChange makes the server answer POST requests for a path, which may have the wildcards of
// [http.ServeMux]. It is called before the first request.
//
// A change needs the token of [Options], or comes through the Unix socket.
func (s *Server) AddChange(path string, change Change) {
	s.changes["POST "+path] = change
}

// AddRead makes the server answer GET requests for a path like [Server.AddChange], for contents that not everyone who
// can see the status may read. They need the token like a change. If none is configured, they are answered at the
// addresses that only this machine reaches.
func (s *Server) AddRead(path string, read Change) {
	s.changes["GET "+path] = read
}

// Handler serves the paths in the package comment to clients that come by TCP: to GET and
// HEAD, and to POST with the token.
func (s *Server) Handler() http.Handler {
	return hosts(s.opts.Hosts).checkHost(s.forward.accept(s.newHandler(true), s.newHandler(false)))
}

// newHandler returns the handler for clients that come by TCP, or by the Unix socket. The
// latter need no token.
func (s *Server) newHandler(socket bool) http.Handler {
	mux := http.NewServeMux()
	s.pages.Register(mux)
	h := &handler{s.inventory, socket}
	mux.HandleFunc("GET /healthz", h.serveHealth)
	mux.HandleFunc("GET /readyz", h.serveReady)
	mux.Handle("GET /status", compress(http.HandlerFunc(h.serveStatus)))
	mux.Handle("GET /status/{feed}", compress(http.HandlerFunc(h.serveFeed)))
	mux.Handle("GET /metrics", s.metrics)
	for pattern, change := range s.changes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h.serveChange(w, r, change) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set(status.ConfigHeader, s.opts.Config)
		mux.ServeHTTP(w, r)
	})
}

// Forward sends a request without a body to the member of the fleet that runs a feed, and decodes its answer.
// An error of that member is a [*ChangeError]. After any other error it is not known whether the member got
// the request; the error has the cure.
func (s *Server) Forward(ctx context.Context, owner, method, at string, limit time.Duration, answer any) error {
	// A member that is frozen accepts connections. So something that takes no time is asked first.
	err := s.forward.sendWithin(ctx, min(limit, detailsTimeout), owner, http.MethodGet, "/status/"+path.Base(path.Dir(at)), &status.Feed{})
	if _, answered := errors.AsType[*ChangeError](err); err != nil && !answered {
		return err
	}
	return s.forward.sendWithin(ctx, limit, owner, method, at, answer)
}
