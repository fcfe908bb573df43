package nats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
)

// Conn is a connection to a NATS system that is kept up for as long as it is
// not closed. Any number of sinks share it.
type Conn struct {
	cfg     Config
	servers string // for errors and logs: without user names and passwords
	log     *slog.Logger
	nc      *nats.Conn
	js      jetstream.JetStream
	// idle is how long the server keeps what a reader has there that is gone.
	idle time.Duration

	mu sync.Mutex
	// sinks counts those that were made, by stream.
	sinks map[string]int
	// session is that of the connection as it is now; nil if there is none.
	session *session
	// down says why there is no connection.
	down error
	// heard is closed when the first attempt to connect has come to an end.
	heard chan struct{}
	once  sync.Once
	// reconnected is closed, and replaced, when there is a connection again.
	reconnected chan struct{}
}

// A session lasts from one connect to the next disconnect. What a sink found
// out about a stream holds within it: the next session may be with a server
// of another version.
type session struct {
	// lost is done when the connection is lost.
	lost context.Context
	end  context.CancelFunc
	// reconnects is the connection's count of them. It tells a session that
	// ended of which the handlers have not heard yet.
	reconnects uint64
}

var errLost = errors.New("the connection to NATS was lost")

// Connect connects to the servers that cfg names. That no server answers, or
// that one refuses, is no error: the connection is tried for ever, and
// [Conn.Check] and the sinks say what is wrong with it. Errors are for what no
// retry cures, such as a URL that makes no sense or a file that cannot be read,
// and match [feed.ErrPermanent]; and for an end of ctx, which bounds the first
// attempt alone.
func Connect(ctx context.Context, cfg Config, log *slog.Logger) (*Conn, error) {
	if errs := cfg.Validate(); len(errs) > 0 {
		return nil, feed.Permanent(fmt.Errorf("nats: %w", errors.Join(errs...)))
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	opts, err := cfg.options()
	if err != nil {
		return nil, feed.Permanent(fmt.Errorf("nats: %w", err))
	}
	servers, err := cfg.servers()
	if err != nil {
		return nil, feed.Permanent(fmt.Errorf("nats: %w", err))
	}
	c := &Conn{cfg: cfg, log: log, idle: max(time.Minute, 3*cfg.Timeout), heard: make(chan struct{}), reconnected: make(chan struct{}), sinks: map[string]int{}}
	for i, u := range servers {
		if i > 0 {
			c.servers += ", "
		}
		c.servers += redacted(u)
	}
	opts = append(opts,
		nats.Name("feedbridge"),
		nats.Timeout(cfg.Timeout),
		nats.FlusherTimeout(cfg.Timeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		// A password that is refused today may be put right tomorrow.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(500*time.Millisecond),
		nats.ReconnectJitter(500*time.Millisecond, time.Second),
		// What was sent while there was no connection must not be sent when
		// there is one again: nobody waits for it any more.
		nats.ReconnectBufSize(-1),
		nats.ConnectHandler(c.connected),
		nats.ReconnectHandler(c.connected),
		nats.ReconnectErrHandler(func(nc *nats.Conn, err error) { c.disconnected(nc, "cannot connect to NATS", err) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) { c.disconnected(nc, "lost the connection to NATS", err) }),
		nats.ErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) { c.asyncError(nc, err) }),
	)
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(cfg.URL, opts...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, feed.Permanent(fmt.Errorf("nats: %s: %w", c.servers, r.err))
		}
		c.nc = r.nc
	case <-ctx.Done():
		go func() {
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
	if c.js, err = jetstream.NewWithAPIPrefix(c.nc, cfg.api()); err != nil {
		c.nc.Close()
		return nil, feed.Permanent(fmt.Errorf("nats: %w", err))
	}
	// The attempt is over; its handler runs any moment now.
	<-c.heard
	return c, nil
}

// Close closes the connection. What the sinks have under way fails.
func (c *Conn) Close() { c.nc.Close() }

// Reconnected returns a channel that is closed when there is next a new connection, after
// there was none. Each call after that returns a new one.
func (c *Conn) Reconnected() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reconnected
}

func (c *Conn) connected(nc *nats.Conn) {
	c.mu.Lock()
	if c.session != nil {
		c.session.end()
	}
	lost, end := context.WithCancel(context.Background())
	c.session = &session{lost, end, nc.Stats().Reconnects}
	c.down = nil
	close(c.reconnected)
	c.reconnected = make(chan struct{})
	c.mu.Unlock()
	c.once.Do(func() { close(c.heard) })
	c.log.Info("connected to NATS", "server", nc.ConnectedServerName(), "version", nc.ConnectedServerVersion())
}

// disconnected notes that there is no connection and why. It logs what is new:
// a server that is away for a day makes one line.
func (c *Conn) disconnected(nc *nats.Conn, what string, err error) {
	if err == nil {
		err = errors.New("closed by the server")
	}
	if errors.Is(err, nats.ErrNoServers) {
		// At the first attempt nats.go hides this reason, and this one alone.
		err = errors.New("connection refused")
	}
	c.mu.Lock()
	fresh := c.down == nil || c.down.Error() != err.Error()
	if c.session != nil {
		c.session.end()
		c.session = nil
	}
	c.down = err
	c.mu.Unlock()
	c.once.Do(func() { close(c.heard) })
	if fresh && !nc.IsClosed() {
		c.log.Warn(what, "servers", c.servers, "error", err)
	}
}

func (c *Conn) asyncError(nc *nats.Conn, err error) {
	if isAuth(err) {
		c.disconnected(nc, "NATS refused the connection", err)
		return
	}
	c.log.Warn("NATS reported an error", "error", err)
}

func isAuth(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// current returns the session, or an error that says why there is none.
func (c *Conn) current() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil && c.nc.IsConnected() && c.nc.Stats().Reconnects == c.session.reconnects {
		return c.session, nil
	}
	down := c.down
	// What a server says once it is connected to, nats.go tells the handlers
	// only if there was a connection before.
	if last := c.nc.LastError(); last != nil && c.nc.IsReconnecting() {
		down = last
	}
	if down == nil {
		down = errLost
	}
	var untrusted *tls.CertificateVerificationError
	switch {
	case c.nc.IsClosed():
		return nil, fmt.Errorf("the connection to %s is closed", c.servers)
	case isAuth(down):
		return nil, feed.Permanent(fmt.Errorf("NATS at %s refuses the connection: %s; check %s",
			c.servers, strings.ToLower(strings.TrimPrefix(down.Error(), "nats: ")), c.cfg.proof()))
	case errors.As(down, &untrusted):
		return nil, feed.Permanent(fmt.Errorf("the certificate of NATS at %s is not trusted: %w; check the server's name, or set tls.ca_file", c.servers, untrusted.Err))
	}
	return nil, fmt.Errorf("no NATS server answers at %s: %w; is it running?", c.servers, down)
}

// within returns a context that ends after d or when ses does, and says so by
// its cause.
func (c *Conn) within(ctx context.Context, ses *session, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, stop := context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer from NATS within %v", d))
	unhook := context.AfterFunc(ses.lost, func() { cancel(errLost) })
	return ctx, func() {
		unhook()
		stop()
		cancel(nil)
	}
}

// ask runs f with a session, for a topic, and makes its errors understandable. The context
// ends with the session; f bounds its requests.
func (c *Conn) ask(ctx context.Context, topic string, f func(context.Context, *session) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ses, err := c.current()
	if err != nil {
		return err
	}
	if err := c.checkVersion(); err != nil {
		return err
	}
	before := c.nc.LastError()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ses.lost, func() { cancel(errLost) })()
	if err := f(ctx, ses); err != nil {
		return fmt.Errorf("topic %q: %w", topic, c.explain(ctx, before, err))
	}
	return nil
}

// insist makes a request that changes nothing again and again until it is
// answered or its time is over. A server that is not the leader of a stream drops
// what it is asked about it, as all do while they elect one.
func (c *Conn) insist(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for {
		once, cancel := context.WithTimeout(ctx, min(time.Second, c.cfg.Timeout/4))
		err := request(once)
		silence := once.Err()
		cancel()
		if err == nil || silence == nil || !errors.Is(err, silence) || ctx.Err() != nil {
			return causeOf(ctx, err)
		}
	}
}

// bounded is ctx for one request.
func (c *Conn) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	d := c.cfg.Timeout
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer from NATS within %v", d))
}

// Check returns an error unless there is a connection, to a server that is new
// enough, whose JetStream this account may use.
func (c *Conn) Check(ctx context.Context) error {
	ses, err := c.current()
	if err != nil {
		return err
	}
	if err := c.checkVersion(); err != nil {
		return err
	}
	before := c.nc.LastError()
	ctx, cancel := c.within(ctx, ses, c.cfg.Timeout)
	defer cancel()
	if _, err := c.js.AccountInfo(ctx); err != nil {
		return c.explain(ctx, before, err)
	}
	return nil
}

// minor is the first minor version of 2.x that has atomic batches.
const minor = 12

func (c *Conn) checkVersion() error {
	if c.cfg.api() != jetstream.DefaultAPIPrefix {
		// The streams may be on another server than this one. What their configuration
		// and the acknowledgements say shows whether that one has atomic batches.
		return nil
	}
	version := c.nc.ConnectedServerVersion()
	var major, n int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &n); err != nil || major > 2 || major == 2 && n >= minor {
		// A version that makes no sense is that of a private build.
		return nil
	}
	return feed.Permanent(fmt.Errorf("the NATS server at %s has version %s, which has no atomic batches; feedbridge needs 2.%d or newer",
		c.servers, version, minor))
}
