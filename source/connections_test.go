package source_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
