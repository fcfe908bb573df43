package source_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/feedbridge/feedbridge/source"
)

// Many feeds of a host that answers slowly have many requests under way. The connections that these
// need serve the next ones.
func TestConnectionsOfABurstAreUsedAgain(t *testing.T) {
	const burst = 80
	var made atomic.Int64
	var arrived sync.WaitGroup // the requests of a burst, which are answered together
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived.Done()
		arrived.Wait()
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			made.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c := newClient(t, server.URL)
	var connections [2]int64
	for i := range connections {
		arrived.Add(burst)
		var done sync.WaitGroup
		for range burst {
			done.Go(func() {
				if res, err := c.Do(t.Context(), source.Request{Method: http.MethodHead, URL: server.URL}); err != nil {
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
}
