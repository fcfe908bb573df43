package source_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
)

// countConnections counts the connections that are made from now on.
func countConnections(hosts *source.Hosts) *atomic.Int64 {
	var made atomic.Int64
	dial := hosts.Dial
	hosts.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		made.Add(1)
		return dial(ctx, network, addr)
	}
	return &made
}

// Many feeds of a host that answers slowly have many requests under way. The connections that these
// need serve the next ones. (In a bubble, because [http.Transport] gives up a connection whose last
// write is not reported within 50 ms.)
func TestConnectionsOfABurstAreUsedAgain(t *testing.T) {
	t.Parallel()
	const burst = 80
	var arrived sync.WaitGroup // the requests of a burst, which are answered together
	answer := func(http.ResponseWriter, *http.Request) {
		arrived.Done()
		arrived.Wait()
	}
	bubble(t, answer, func(t *testing.T, hosts *source.Hosts) {
		made := countConnections(hosts)
		c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
		defer c.CloseIdle()
		var connections [2]int64
		for i := range connections {
			arrived.Add(burst)
			var done sync.WaitGroup
			for range burst {
				done.Go(func() {
					if res, err := c.Do(t.Context(), source.Request{Method: http.MethodHead, URL: feedURL}); err != nil {
						t.Error(err)
					} else {
						res.Body.Close()
					}
				})
			}
			done.Wait()
			connections[i] = made.Load()
		}
		if connections != [2]int64{burst, burst} {
			t.Errorf("%d connections after a burst of %d requests, and %d after the next one", connections[0], burst, connections[1])
		}
	})
}

// The end of a compressed text may come before that of its body.
func TestConnectionOfACompressedBodyIsUsedAgain(t *testing.T) {
	t.Parallel()
	answer := func(w http.ResponseWriter, r *http.Request) {
		sendPacked(w, r.URL.RawQuery, pack(r.URL.RawQuery, "text"))
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Second)
	}
	bubble(t, answer, func(t *testing.T, hosts *source.Hosts) {
		made := countConnections(hosts)
		c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
		defer c.CloseIdle()
		for _, encoding := range encodings {
			if _, body, err := get(t, c, feedURL+"?"+encoding); err != nil || body != "text" {
				t.Errorf("%s: body = %q, %v", encoding, body, err)
			}
		}
		if n := made.Load(); n != 1 {
			t.Errorf("%d connections were made for %d requests", n, len(encodings))
		}
	})
}

// trackedConn is a connection that is counted while it is open.
type trackedConn struct {
	net.Conn
	open *atomic.Int64
}

func (c trackedConn) Close() error {
	c.open.Add(-1)
	return c.Conn.Close()
}

// The name of a host may move to another address while the server at the old one still answers.
func TestConnectionsAreRenewed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ every, least, most time.Duration }{
		{200 * time.Millisecond, 75 * time.Second, 76 * time.Second},
		{time.Minute, 5 * time.Minute, 6 * time.Minute},
	} {
		bubble(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, hosts *source.Hosts) {
			var made []time.Time
			var open atomic.Int64
			dial := hosts.Dial
			hosts.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				made = append(made, time.Now())
				open.Add(1)
				conn, err := dial(ctx, network, addr)
				return trackedConn{conn, &open}, err
			}
			c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
			defer c.CloseIdle()
			for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(test.every) {
				_, _, err := get(t, c, feedURL)
				must.Succeed(t, err)
				if n := open.Load(); n != 1 {
					t.Fatalf("%d connections are open", n)
				}
			}
			for i := range made[1:] {
				if age := made[i+1].Sub(made[i]); age < test.least || age > test.most {
					t.Errorf("polls every %v: a connection was used for %v, want %v to %v", test.every, age, test.least, test.most)
				}
			}
			if len(made) < 10 {
				t.Errorf("polls every %v: %d connections within an hour", test.every, len(made))
			}
		})
	}
}
