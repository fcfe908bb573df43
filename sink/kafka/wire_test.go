package kafka_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire breaks connections at the broker's end, where a request has been answered
// and the answer has not left.
type wire struct {
	mu sync.Mutex
	// lose reports whether the answer to a request with that key is lost.
	lose func(key kmsg.Key) bool
	// mute reports whether the connection is silent from the answer to a request with that
	// key on, as after a packet filter has forgotten it.
	mute func(key kmsg.Key) bool
	// delay is how long each answer takes.
	delay time.Duration
	// throttle is the time that each answer to a Produce asks the client to wait.
	throttle time.Duration
}

// throttling sets the time that each answer to a Produce asks the client to wait from now on.
func (w *wire) throttling(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.throttle = d
}

func (w *wire) throttles() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.throttle
}

// losing sets which answers are lost from now on; nil for none.
func (w *wire) losing(f func(kmsg.Key) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = f
}

func (w *wire) loses(key kmsg.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lose != nil && w.lose(key)
}

// takes sets how long each answer takes. In a bubble it takes no time otherwise.
func (w *wire) takes(delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = delay
}

func (w *wire) wait() {
	w.mu.Lock()
	delay := w.delay
	w.mu.Unlock()
	time.Sleep(delay)
}

// muting sets what makes a connection silent from now on; nil for nothing.
func (w *wire) muting(f func(kmsg.Key) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = f
}

func (w *wire) mutes(key kmsg.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mute != nil && w.mute(key)
}

// startWired starts a cluster whose answers can be lost.
func startWired(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *wire) {
	w := &wire{}
	listenWired := func(network, address string) (net.Listener, error) {
		l, err := listen(network, address)
		return wired{l, w}, err
	}
	return startCluster(t, append(opts, kfake.ListenFn(listenWired))...), w
}

type wired struct {
	net.Listener
	wire *wire
}

func (l wired) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &frames{Conn: c, wire: l.wire, asked: map[uint32]kmsg.Key{}}, nil
}

// frames is a connection that knows which request each answer is for.
type frames struct {
	net.Conn
	wire *wire

	mu    sync.Mutex
	in    []byte // of the request that is being read, without its body
	skip  int    // the rest of its body
	asked map[uint32]kmsg.Key
	muted bool
}

func (f *frames) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	for rest := p[:n]; len(rest) > 0; {
		if f.skip > 0 {
			k := min(f.skip, len(rest))
			f.skip, rest = f.skip-k, rest[k:]
			continue
		}
		// The length, the key, the version and the correlation id.
		k := min(12-len(f.in), len(rest))
		f.in, rest = append(f.in, rest[:k]...), rest[k:]
		if len(f.in) == 12 {
			f.asked[binary.BigEndian.Uint32(f.in[8:])] = kmsg.Key(binary.BigEndian.Uint16(f.in[4:]))
			f.skip, f.in = int(binary.BigEndian.Uint32(f.in))-8, nil
		}
	}
	return n, err
}

func (f *frames) Write(p []byte) (int, error) {
	f.wire.wait()
	if len(p) >= 8 {
		f.mu.Lock()
		id := binary.BigEndian.Uint32(p[4:])
		key, ok := f.asked[id]
		delete(f.asked, id)
		f.mu.Unlock()
		if ok && f.wire.loses(key) {
			f.Close()
			return 0, errors.New("the answer is lost")
		}
		if wait := f.wire.throttles(); ok && key == kmsg.Produce && wait > 0 {
			p = bytes.Clone(p)
			// The time is the last field, before the count of tagged fields.
			binary.BigEndian.PutUint32(p[len(p)-5:], uint32(wait.Milliseconds()))
		}
		f.mu.Lock()
		f.muted = f.muted || ok && f.wire.mutes(key)
		muted := f.muted
		f.mu.Unlock()
		if muted {
			return len(p), nil
		}
	}
	return f.Conn.Write(p)
}
