package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/internal/connlimit"
	"github.com/feedbridge/feedbridge/internal/limit"
)

// The limits of clients. A slow client stays connected as long as it reads a
// [connlimit.Chunk] in [connlimit.WriteTimeout] and no other client waits for its
// slot.
const (
	// DefaultConnections limits the number of clients connected at a time.
	DefaultConnections = 4096

	// patience limits how long a client may keep the server waiting while others wait for
	// its connection.
	patience = 2 * time.Second

	headerFor   = 10 * time.Second
	idleFor     = 2 * time.Minute
	headerBytes = 16 << 10
	// grace limits how long requests may continue after the end of Serve's context.
	grace = 5 * time.Second
)

// ServerOptions describe a server.
type ServerOptions struct {
	// Connections limits the number of clients connected at a time. For one more, the
	// slowest or longest idle one is disconnected. If none is slow or idle, the new client
	// waits. Default 4096.
	Connections int
	// TLS has the server's certificate; nil serves without.
	TLS *tls.Config
	// Wrap returns a Handler that answers by the one that it is given, to trace the requests.
	// It may be nil.
	Wrap func(http.Handler) http.Handler
	// Log gets the errors of the server itself.
	Log *slog.Logger
}

// Server serves feeds, and a page at / that lists them for people.
type Server struct {
	opts ServerOptions

	mu    sync.Mutex // protects the fields below
	feeds []*Feed    // sorted by name
	// run starts to build the snapshots of a feed; nil while the server does not serve.
	run func(f *Feed)
	// stop ends that, by feed.
	stop map[*Feed]context.CancelFunc
}

// NewServer returns a Server of feeds, whose names differ.
func NewServer(opts ServerOptions, feeds ...*Feed) *Server {
	if opts.Connections <= 0 {
		opts.Connections = DefaultConnections
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: opts, stop: map[*Feed]context.CancelFunc{}}
	s.Replace(nil, feeds)
	return s
}

// Replace removes feeds from the server and adds others. Requests that are under way
// end with the feed that they began with.
func (s *Server) Replace(remove, add []*Feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds = slices.DeleteFunc(slices.Clone(s.feeds), func(f *Feed) bool { return slices.Contains(remove, f) })
	s.feeds = append(s.feeds, add...)
	slices.SortFunc(s.feeds, func(a, b *Feed) int { return strings.Compare(a.cfg.Name, b.cfg.Name) })
	for _, f := range remove {
		if stop := s.stop[f]; stop != nil {
			stop()
			delete(s.stop, f)
		}
	}
	if s.run != nil {
		for _, f := range add {
			s.run(f)
		}
	}
}

// currentFeeds returns the feeds of now. The caller does not change them.
func (s *Server) currentFeeds() []*Feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feeds
}

// runFeeds builds the snapshots of all feeds, also of those that are added later, until ctx
// ends. building counts the feeds that do.
func (s *Server) runFeeds(ctx context.Context, building *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = func(f *Feed) {
		if ctx.Err() != nil {
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		s.stop[f] = cancel
		building.Go(func() { f.Run(ctx) })
	}
	for _, f := range s.feeds {
		s.run(f)
	}
}

// endFeeds keeps feeds that are added from now on from being run.
func (s *Server) endFeeds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = nil
}

// policy keeps a browser from executing or loading what entities contain: a document of Atom may have
// elements of XHTML. The pages for people have a style sheet in them.
const policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP answers at /feeds/NAME/ for every feed, and at /.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", policy)
	rest, ok := strings.CutPrefix(r.URL.Path, "/feeds/")
	name, _, _ := strings.Cut(rest, "/")
	for _, f := range s.currentFeeds() {
		if ok && f.cfg.Name == name {
			f.ServeHTTP(w, r)
			return
		}
	}
	if r.URL.Path == "/" {
		s.serveIndex(w, r)
		return
	}
	http.Error(w, "There is nothing here. The feeds are listed at /.", http.StatusNotFound)
}

// Serve answers on l until ctx ends, and returns nil then, once the requests
// under way have been answered or 5s have passed. Snapshots are built meanwhile.
// It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	handler := http.Handler(s)
	if s.opts.Wrap != nil {
		handler = s.opts.Wrap(s)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerFor,
		ReadTimeout:       headerFor, // includes bodies, which requests to a feed do not have
		IdleTimeout:       idleFor,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelWarn),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waits := &waits{ended: ctx, slots: limit.New(max(1, s.opts.Connections/2), 0)}
	server.BaseContext = func(net.Listener) context.Context {
		return context.WithValue(context.WithoutCancel(ctx), waitsKey{}, waits)
	}
	var building sync.WaitGroup
	defer building.Wait()
	s.runFeeds(ctx, &building)
	defer s.endFeeds()
	if err := connlimit.NewListener(l, s.opts.Connections, patience).Serve(ctx, server, s.opts.TLS, grace); err != nil {
		cancel()
		return fmt.Errorf("serve feeds on %s: %w", l.Addr(), err)
	}
	return nil
}
