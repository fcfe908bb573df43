package serve

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// piece is what a client has to take in stall, in bytes.
const piece = 32 << 10

// door is a listener that lets in a number of clients at a time, so that they do
// not keep each other out.
type door struct {
	net.Listener
	places *places
	closed context.Context
	close  func()
}

func newDoor(l net.Listener, most int) *door {
	closed, cancel := context.WithCancel(context.Background())
	return &door{l, newPlaces(most), closed, cancel}
}

// Accept returns the next client when there is a place for it.
func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	place, err := d.places.take(d.closed, func() { _ = conn.Close() })
	if err != nil {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	limitUnsent(conn)
	return &guest{Conn: conn, place: place}, nil
}

func (d *door) Close() error {
	d.close()
	return d.Listener.Close()
}

// saw is told what a connection is used for. Whoever has not sent a whole request
// is waited for, and so is who may send another one.
func (d *door) saw(conn net.Conn, state http.ConnState) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if g, ok := conn.(*guest); ok && (state == http.StateActive || state == http.StateIdle) {
		g.place.forget(state == http.StateIdle)
	}
}

// guest is a client's connection. Every piece that is written has its own time, so
// that a large page may take as long as it likes, and a client that takes nothing
// does not stay.
type guest struct {
	net.Conn
	place *place

	mu  sync.Mutex // guards what follows, and the connection's deadline for writing
	end time.Time  // of all writing, if somebody has set one
}

func (g *guest) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		if err = g.extend(); err != nil {
			return n, err
		}
		var m int
		g.place.wait()
		m, err = g.Conn.Write(b[n:min(n+piece, len(b))])
		g.place.took(m)
		n += m
	}
	return n, err
}

func (g *guest) extend() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.end.IsZero() {
		return nil
	}
	return g.Conn.SetWriteDeadline(time.Now().Add(stall))
}

// SetWriteDeadline sets an end to all writing.
func (g *guest) SetWriteDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end = t
	return g.Conn.SetWriteDeadline(t)
}

func (g *guest) SetDeadline(t time.Time) error {
	if err := g.SetWriteDeadline(t); err != nil {
		return err
	}
	return g.SetReadDeadline(t)
}

func (g *guest) Close() error {
	g.place.leave()
	return g.Conn.Close()
}
