package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/feed"
)

// A session lasts from one connect to the next disconnect. The properties of a stream that
// a sink has checked hold within it: the next session may be with a server of another
// version.
type session struct {
	// lost is done when the connection is lost.
	lost context.Context
	end  context.CancelFunc
	// reconnects is the number of reconnects of the connection when the session began. If
	// it has grown, the session is over although no handler has been called yet.
	reconnects uint64
}

var errLost = errors.New("the connection to NATS was lost")

// bindContext returns a context that ends when the session does, with [errLost] as its
// cause.
func (s *session) bindContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.lost, func() { cancel(errLost) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// sessionTracker follows the sessions of one connection through the handlers of nats.go,
// logs their changes, and knows why there is no session. It is safe for concurrent use.
type sessionTracker struct {
	servers string // for errors and logs: without user names and passwords
	log     *slog.Logger
	// watchRefused is called when the server has refused the subscription to the checkpoints.
	watchRefused func(error)
	// nc is the connection of nats.go in use. It is set before activeSession is called, and replaced when
	// nats.go has closed it.
	nc atomic.Pointer[nats.Conn]
	// closed ends when the connection is closed on purpose.
	closed context.Context

	mu sync.Mutex
	// active is the session of the connection as it is now; nil if there is none.
	active *session
	// down is the reason why there is no connection.
	down error
	// attempted is closed when the first attempt to connect has ended.
	attempted chan struct{}
	once      sync.Once
	// reconnected is ended by announce, and replaced, when there is a connection again.
	reconnected context.Context
	announce    context.CancelFunc
	violations  violations
}

func newSessionTracker(closed context.Context, servers string, log *slog.Logger, watchRefused func(error)) *sessionTracker {
	t := &sessionTracker{closed: closed, servers: servers, log: log, watchRefused: watchRefused, attempted: make(chan struct{})}
	t.reconnected, t.announce = context.WithCancel(context.Background())
	return t
}

// handlers returns the options that report the state of a connection to t.
func (t *sessionTracker) handlers() []nats.Option {
	return []nats.Option{
		nats.ReconnectHandler(t.onConnect),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { t.onDisconnect("cannot connect to NATS", err) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			t.onDisconnect("lost the connection to NATS", cmp.Or(err, nc.LastError()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.onAsyncError(err) }),
	}
}

// nextConnection returns a context that ends when the next session begins.
func (t *sessionTracker) nextConnection() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reconnected
}

func (t *sessionTracker) onConnect(nc *nats.Conn) {
	t.mu.Lock()
	// onDisconnect has ended the session before.
	lost, end := context.WithCancel(context.Background())
	t.active = &session{lost, end, nc.Stats().Reconnects}
	t.down = nil
	t.announce()
	t.reconnected, t.announce = context.WithCancel(context.Background())
	t.mu.Unlock()
	t.once.Do(func() { close(t.attempted) })
	t.log.Info("connected to NATS", "server", nc.ConnectedServerName(), "version", nc.ConnectedServerVersion())
}

// onDisconnect records that there is no connection, and why. It logs a reason only when it
// differs from the one before: a server that is away for a day makes one line, and one
// that is closed on purpose none.
func (t *sessionTracker) onDisconnect(text string, err error) {
	if err == nil {
		err = errors.New("closed by the server")
	}
	t.mu.Lock()
	changed := t.down == nil || t.down.Error() != err.Error()
	if t.active != nil {
		t.active.end()
		t.active = nil
	}
	t.down = err
	t.mu.Unlock()
	t.once.Do(func() { close(t.attempted) })
	if changed && t.closed.Err() == nil {
		t.log.Warn(text, "servers", t.servers, "error", err)
	}
}

func (t *sessionTracker) onAsyncError(err error) {
	if isRefusedWatch(err) {
		t.watchRefused(err)
		return
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		t.violations.add(err)
	}
	if isAuthError(err) {
		t.onDisconnect("NATS refused the connection", err)
		return
	}
	t.log.Warn("NATS reported an error", "error", err)
}

func isAuthError(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// activeSession returns the session, or an error with the reason why there is none.
func (t *sessionTracker) activeSession() (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	nc := t.nc.Load()
	if t.active != nil && nc.IsConnected() && nc.Stats().Reconnects == t.active.reconnects {
		return t.active, nil
	}
	down := t.down
	// nats.go passes an error of the server during the handshake to the handlers only if
	// there was a connection before.
	if last := nc.LastError(); last != nil && nc.IsReconnecting() {
		down = last
	}
	if down == nil {
		down = errLost
	}
	var untrusted *tls.CertificateVerificationError
	switch {
	case t.closed.Err() != nil:
		return nil, fmt.Errorf("the connection to %s is closed", t.servers)
	case isAuthError(down):
		return nil, feed.Permanent(fmt.Errorf("NATS at %s refuses the connection: %s; check the bus's credentials_file, nkey_file, username and password, token or tls.cert_file",
			t.servers, strings.ToLower(strings.TrimPrefix(down.Error(), "nats: "))))
	case errors.As(down, &untrusted):
		return nil, feed.Permanent(fmt.Errorf("the certificate of NATS at %s is not trusted: %w; check the server's name, or set tls.ca_file", t.servers, untrusted.Err))
	}
	if nc.IsClosed() {
		return nil, fmt.Errorf("NATS at %s has ended the connection: %w; feedbridge makes a new one", t.servers, down)
	}
	return nil, fmt.Errorf("no NATS server answers at %s: %w; is it running?", t.servers, down)
}
