package source_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
)

// closedBody records that it was closed.
type closedBody struct {
	io.Reader
	closed bool
}

func (b *closedBody) Close() error {
	b.closed = true
	return nil
}

// A response that was handed over answers the next request if that asks for the same soon enough.
// In any other case it is closed.
func TestHandedOverResponse(t *testing.T) {
	t.Parallel()
	const page = "http://feed.invalid/"
	for name, test := range map[string]struct {
		after   time.Duration
		request source.Request
		want    bool
	}{
		"at once":          {0, source.Request{Method: http.MethodGet, URL: page}, true},
		"just in time":     {10*time.Second - 1, source.Request{Method: http.MethodGet, URL: page}, true},
		"too late":         {10 * time.Second, source.Request{Method: http.MethodGet, URL: page}, false},
		"another URL":      {0, source.Request{Method: http.MethodGet, URL: page + "2"}, false},
		"another method":   {0, source.Request{Method: http.MethodHead, URL: page}, false},
		"with a condition": {0, source.Request{Method: http.MethodGet, URL: page, IfNoneMatch: `"1"`}, false},
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			hosts := &source.Hosts{Dial: refuseDial}
			c := newClientWith(t, source.Options{Hosts: hosts}, page)
			rest := &closedBody{Reader: http.NoBody}
			c.HandOver(source.Request{Method: http.MethodGet, URL: page}, &source.Response{Status: 200, Body: rest, Answered: time.Now()}, []byte("the page"))
			time.Sleep(test.after)
			_, body, err := do(t, c, test.request)
			if got := err == nil && body == "the page"; got != test.want {
				t.Errorf("read %q, %v", body, err)
			}
			if !rest.closed {
				t.Error("the response is not closed")
			}
			if _, _, err := do(t, c, source.Request{Method: http.MethodGet, URL: page}); err == nil {
				t.Error("the response answered two requests")
			}
		})
	}
}

// refuseDial makes no connection.
func refuseDial(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
