package source_test

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
)

// countedConn counts the bytes that are read.
type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// A body that is closed unread is read to its end if it is small, so that its connection can be used
// again. A large one is not read at all: the connection is lost in any case.
func TestUnreadBodyIsClosed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		size, most  int
		connections int64
	}{
		{64 << 10, 80 << 10, 1},
		{1 << 20, 16 << 10, 2},
	} {
		parallel.Run(t, strconv.Itoa(test.size), func(t *testing.T) {
			answer := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(test.size))
				_, _ = w.Write(make([]byte, test.size)) // the client may have closed the connection
			}
			bubble(t, answer, func(t *testing.T, hosts *source.Hosts) {
				var read atomic.Int64
				dial := hosts.Dial
				hosts.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					return countedConn{conn, &read}, err
				}
				connections := countConnections(hosts)
				c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
				defer c.CloseIdle()
				res, err := c.Do(t.Context(), source.Request{Method: http.MethodGet, URL: feedURL})
				must.Succeed(t, err)
				res.Body.Close()
				if n := read.Load(); n > int64(test.most) {
					t.Errorf("%d bytes of %d were read, want %d at most", n, test.size, test.most)
				}
				if res, err = c.Do(t.Context(), source.Request{Method: http.MethodHead, URL: feedURL}); err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if n := connections.Load(); n != test.connections {
					t.Errorf("%d connections, want %d", n, test.connections)
				}
			})
		})
	}
}
