package connlimit

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// WriteTimeout limits how long a connection waits for its client to read a [Chunk], unless
// a write deadline was set. So a large answer may take any time, and a client that reads
// nothing is disconnected.
const WriteTimeout = 30 * time.Second

// Listener bounds the connections of another listener, so that slow and idle
// clients do not keep others out. It accepts one connection more than it has
// slots: that one waits for its slot.
type Listener struct {
	net.Listener
	slots  *Slots
	closed context.Context
	close  func()
}

// NewListener returns a Listener that has most connections open. Close closes l.
func NewListener(l net.Listener, most int, patience time.Duration) *Listener {
	closed, cancel := context.WithCancel(context.Background())
	return &Listener{l, NewSlots(most, patience), closed, cancel}
}

// Accept returns the next connection when there is a slot for it.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	slot, err := l.slots.Acquire(l.closed, func() { _ = accepted.Close() })
	if err != nil {
		_ = accepted.Close()
		return nil, net.ErrClosed
	}
	limitUnsent(accepted)
	return &conn{Conn: accepted, slot: slot}, nil
}

// Close closes the listener. Connections stay open.
func (l *Listener) Close() error {
	l.close()
	return l.Listener.Close()
}

// updateSlot is the [http.Server.ConnState] of the server. A connection without a complete request counts
// as waiting for the client.
func (*Listener) updateSlot(of net.Conn, state http.ConnState) {
	if secured, ok := of.(*tls.Conn); ok {
		of = secured.NetConn()
	}
	if c, ok := of.(*conn); ok && (state == http.StateActive || state == http.StateIdle) {
		c.slot.Reset(state == http.StateIdle)
	}
}

// Serve answers by server until ctx ends, with TLS unless config is nil. It returns nil then, once the
// requests under way have been answered or grace has passed. It closes the listener.
func (l *Listener) Serve(ctx context.Context, server *http.Server, config *tls.Config, grace time.Duration) error {
	server.ConnState = l.updateSlot
	listener := net.Listener(l)
	if config != nil {
		listener = tls.NewListener(l, config)
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	<-stopped
	return nil
}

// conn is a client's connection. Every [Chunk] has a write deadline of its own.
type conn struct {
	net.Conn
	slot *Slot

	mu  sync.Mutex // protects end, and the write deadline of Conn
	end time.Time  // the write deadline that the server has set; zero if there is none
}

func (c *conn) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		if err = c.extendDeadline(); err != nil {
			return n, err
		}
		var m int
		c.slot.Wait()
		m, err = c.Conn.Write(b[n:min(n+Chunk, len(b))])
		c.slot.Took(m)
		n += m
	}
	return n, err
}

func (c *conn) extendDeadline() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.end.IsZero() {
		return nil
	}
	return c.Conn.SetWriteDeadline(time.Now().Add(WriteTimeout))
}

// SetWriteDeadline sets the deadline for all writes.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = t
	return c.Conn.SetWriteDeadline(t)
}

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

func (c *conn) Close() error {
	c.slot.Release()
	return c.Conn.Close()
}
