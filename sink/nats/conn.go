package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
	"github.com/feedbridge/feedbridge/internal/setting"
)

// Conn is a connection to a NATS system. It reconnects until it is closed. Any number of
// sinks and logs share it.
//
// nats.go closes its connection for ever after an error of the server that it does not know, such as an
// error of a newer server or of a proxy. Then Conn makes a new connection, which begins a new session.
type Conn struct {
	client  *client
	streams openStreams
	fast    fastBatches
	watch   *watch

	opts []nats.Option
	// lost gets the reason when nats.go has closed the connection.
	lost  chan error
	close context.CancelFunc // ends sessionTracker.closed

	mu sync.Mutex // held while there is a subscription made, also for the next connection
	// committed is called by the subscription to the checkpoints; nil without one.
	committed func(topic, writer string)
}

// Connect connects to the servers that cfg names. If no server answers, or one refuses the
// connection, that is no error: the connection is retried for ever, and [Conn.Check] and
// the sinks return the reason. Connect returns errors that no retry can cure, such as an
// invalid URL or a file that cannot be read; they match [feed.ErrPermanent]. It also
// returns an error if ctx ends, which bounds the first attempt only.
func Connect(ctx context.Context, cfg Config, log *slog.Logger) (*Conn, error) {
	if errs := cfg.Validate(); len(errs) > 0 {
		return nil, feed.Permanent(fmt.Errorf("nats: %w", errors.Join(errs...)))
	}
	setting.Complete(&cfg)
	opts, err := cfg.credentialOptions()
	if err != nil {
		return nil, feed.Permanent(fmt.Errorf("nats: %w", err))
	}
	urls, _ := cfg.ServerURLs() // Validate has found no error
	shown := make([]string, len(urls))
	for i, u := range urls {
		shown[i] = redactURL(u)
	}
	servers := strings.Join(shown, ", ")
	watch := &watch{log: log}
	closed, closeConn := context.WithCancel(context.Background())
	sessions := newSessionTracker(closed, servers, log, watch.refuse)
	watch.client = &client{
		cfg: cfg, log: log, sessions: sessions,
		repeatAfter: defaultRepeatAfter,
		consumerTTL: max(time.Minute, 3*cfg.Timeout), keptLifetime: defaultKeptLifetime,
	}
	c := &Conn{client: watch.client, fast: fastBatches{client: watch.client}, watch: watch, close: closeConn, lost: make(chan error, 1)}
	c.opts = slices.Concat(opts, sessions.handlers(), connectionOptions(cfg.Timeout), []nats.Option{nats.ClosedHandler(c.onClosed)})
	if err := c.open(ctx); err != nil {
		c.close()
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, feed.Permanent(fmt.Errorf("nats: %s: %w", servers, err))
	}
	// The first attempt has ended; its handler is called at any moment.
	<-sessions.attempted
	go c.replaceLost(closed, c.open)
	return c, nil
}

// open makes a connection of nats.go, and uses it from now on.
func (c *Conn) open(ctx context.Context) error {
	inUse := make(chan struct{})
	defer close(inUse)
	nc, err := connectServer(ctx, c.client.cfg.URL, slices.Concat(c.opts, []nats.Option{nats.ConnectHandler(func(nc *nats.Conn) {
		<-inUse // before those who wait for a connection learn of it
		c.client.sessions.onConnect(nc)
	})}))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.committed != nil {
		c.watch.subscribe(nc, c.committed) // before a look; see watch.subscribed
	}
	c.client.sessions.nc.Store(nc)
	return nil
}

// onClosed passes on that nats.go has closed the connection.
func (c *Conn) onClosed(nc *nats.Conn) {
	select {
	case c.lost <- nc.LastError():
	default: // one that was never in use
	}
}

// The waits before a connection that nats.go has closed is replaced. After a connection that lasted longer
// than the longest of them, the waits begin again.
const (
	minReplaceWait = 500 * time.Millisecond
	maxReplaceWait = 30 * time.Second
)

// replaceLost opens a new connection each time that nats.go has closed the one in use, until ctx ends.
func (c *Conn) replaceLost(ctx context.Context, open func(context.Context) error) {
	var wait retry.Backoff
	for opened := (time.Time{}); ; opened = time.Now() {
		var err error
		select {
		case err = <-c.lost:
		case <-ctx.Done():
			return
		}
		if time.Since(opened) > maxReplaceWait {
			wait = retry.Backoff{Min: minReplaceWait, Max: maxReplaceWait}
		}
		for {
			c.client.sessions.onDisconnect("lost the connection to NATS", err)
			if wait.Wait(ctx) != nil {
				return
			}
			if err = open(ctx); err == nil {
				break
			}
		}
		if ctx.Err() != nil { // Close may have closed the connection before
			c.client.nc().Close()
			return
		}
	}
}

// connectionOptions returns the options of all connections.
func connectionOptions(timeout time.Duration) []nats.Option {
	return []nats.Option{
		nats.Name("feedbridge"),
		nats.Timeout(timeout),
		nats.FlusherTimeout(timeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		// A password that is refused today may be corrected tomorrow.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectJitter(500*time.Millisecond, time.Second),
		// Do not buffer messages while there is no connection: their publishers have timed
		// out when it is back.
		nats.ReconnectBufSize(-1),
	}
}

// connectServer is [nats.Connect]. If ctx ends first, it returns the cause of that, and the
// connection is closed when there is one.
func connectServer(ctx context.Context, url string, opts []nats.Option) (*nats.Conn, error) {
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(url, opts...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		return r.nc, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// Close closes the connection. Requests and commits of the sinks that are in flight fail.
func (c *Conn) Close() {
	c.close()
	c.client.nc().Close()
}

// Reconnected returns a context that ends when there is next a new connection, after
// there was none. Each call after that returns a new one.
func (c *Conn) Reconnected() context.Context { return c.client.sessions.nextConnection() }

// Check returns an error unless there is a connection, to a server that is new
// enough, whose JetStream this account may use.
func (c *Conn) Check(ctx context.Context) error {
	ctx, cancel := c.client.withTimeout(ctx)
	defer cancel()
	return c.client.runSession(ctx, scope{}, func(ctx context.Context, _ *session) error {
		_, err := c.client.js().AccountInfo(ctx)
		return err
	})
}

// WatchCheckpoints looks at the streams of all sinks until ctx ends; see [Sink.Unchanged]. It also
// subscribes to the checkpoints of all topics, as an ordinary subscriber: it needs no consumer,
// whatever the number of topics. committed is called with the topic of each commit and the writer of
// its checkpoint. The commit may not be stored yet, or never. It is called from any goroutine, also
// at the same time, and must not block.
//
// Any call may be missing: the server drops messages for a client that is too slow. A user without
// permission to subscribe can work without. With an api_prefix the messages of the
// streams may not pass the server of the connection, so there is no subscription. It is called once.
func (c *Conn) WatchCheckpoints(ctx context.Context, committed func(topic, writer string)) {
	if c.client.cfg.APIPrefix == "" {
		c.subscribe(committed)
	}
	go visitAll(ctx, c.streams.list, c.watch.lookAt)
}

// subscribe subscribes to the checkpoints, on this connection of nats.go and on those after it.
func (c *Conn) subscribe(committed func(topic, writer string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed = committed
	c.watch.subscribe(c.client.nc(), committed)
}
