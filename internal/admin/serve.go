package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/connlimit"
)

const (
	// grace limits how long requests may continue after the end of Serve's context.
	grace = 3 * time.Second
	// patience limits how long a client may keep the server waiting while others wait for
	// its connection. It is short because probes wait for no more than a second or so, and
	// clients are near.
	patience = 250 * time.Millisecond
)

// Listen opens the address of the configuration's admin.listen. Its errors contain
// their cure and match [feed.ErrPermanent].
func Listen(addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("%s is in use by another program; set another address or \"off\"", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		err = fmt.Errorf("%s is not an address of this machine; set one that is, or \"off\"", addr)
	case errors.Is(err, syscall.EACCES):
		err = fmt.Errorf("the system does not let this user listen on %s; set a port above 1023, or \"off\"", addr)
	}
	return nil, feed.Permanent(fmt.Errorf("admin.listen: %w", err))
}

// Serve answers on l until ctx ends, and returns nil then, once the requests
// under way have been answered or 3s have passed. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return s.serveHandler(ctx, l, s.Handler())
}

// ServeSocket is [Server.Serve] for the Unix socket of [ListenSocket], whose clients need no
// token.
func (s *Server) ServeSocket(ctx context.Context, l net.Listener) error {
	return s.serveHandler(ctx, l, s.newHandler(true))
}

func (s *Server) serveHandler(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelWarn),
	}
	server.RegisterOnShutdown(s.pages.Close)
	if err := connlimit.NewListener(l, s.opts.Connections, patience).Serve(ctx, server, nil, grace); err != nil {
		return fmt.Errorf("serve health and status on %s: %w", l.Addr(), err)
	}
	return nil
}
