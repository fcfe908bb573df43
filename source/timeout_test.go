package source_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
)

// pipes is a network inside of a bubble: it connects the clients of Hosts with
// one server.
type pipes struct{ conns chan net.Conn }

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "bubble"} }

// bubble runs test in a bubble with a server and the Hosts that lead to it.
func bubble(t *testing.T, h http.HandlerFunc, test func(t *testing.T, hosts *source.Hosts)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := pipes{make(chan net.Conn)}
		server := &http.Server{Handler: h}
		go func() { _ = server.Serve(network) }()
		test(t, &source.Hosts{Dial: network.dial})
		close(network.conns)
		_ = server.Close()
	})
}

const feedURL = "http://shop.example.com/feed"

func TestTimeouts(t *testing.T) {
	t.Parallel()
	handler := func(w http.ResponseWriter, r *http.Request) {
		flush := http.NewResponseController(w).Flush
		switch r.URL.Path {
		case "/header": // never answers
			<-r.Context().Done()
		case "/body": // stalls in the body
			_, _ = io.WriteString(w, "first")
			_ = flush()
			<-r.Context().Done()
		case "/packed": // stalls in a compressed body
			body := pack(r.URL.RawQuery, "first")
			sendPacked(w, r.URL.RawQuery, body[:len(body)-1])
			_ = flush()
			<-r.Context().Done()
		case "/slow": // drips, but never stalls for as long as the limit
			for range 10 {
				time.Sleep(29 * time.Second)
				_, _ = io.WriteString(w, "x")
				_ = flush()
			}
		case "/error": // an error whose text never comes to its end
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(500)
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "x")
				_ = flush()
				time.Sleep(300 * time.Millisecond)
			}
		}
	}
	t.Run("case 86: no header", func(t *testing.T) {
		bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
			c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
			defer c.CloseIdle()
			start := time.Now()
			_, _, err := get(t, c, "http://shop.example.com/header")
			wantError(t, err, false, "GET http://shop.example.com/header: no answer came for 30s (timeout)")
			wantTimeout(t, err)
			if took := time.Since(start); took != 30*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	})
	t.Run("case 86: a body that stalls", func(t *testing.T) {
		bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
			c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
			defer c.CloseIdle()
			_, body, err := get(t, c, "http://shop.example.com/body")
			if body != "first" {
				t.Errorf("before the error came %q", body)
			}
			wantError(t, err, false, "GET http://shop.example.com/body: no bytes of the body came for 30s (timeout)")
			wantTimeout(t, err)
		})
	})
	for _, encoding := range encodings {
		t.Run("case 86: a compressed body that stalls: "+encoding, func(t *testing.T) {
			bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
				c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
				defer c.CloseIdle()
				_, _, err := get(t, c, "http://shop.example.com/packed?"+encoding)
				wantError(t, err, false, "no bytes of the body came for 30s (timeout)")
				wantTimeout(t, err)
			})
		})
	}
	t.Run("a slow body is no stalled one", func(t *testing.T) {
		bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
			c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
			defer c.CloseIdle()
			if _, body, err := get(t, c, "http://shop.example.com/slow"); err != nil || len(body) != 10 {
				t.Errorf("body = %q, %v", body, err)
			}
		})
	})
	t.Run("a slow reader is no stalled body", func(t *testing.T) {
		bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
			c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
			defer c.CloseIdle()
			res, err := c.Do(t.Context(), source.Request{Method: "GET", URL: "http://shop.example.com/slow"})
			must.Succeed(t, err)
			for range 10 {
				time.Sleep(time.Hour)
				if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if err := res.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("an endless error and an endless rest are given up", func(t *testing.T) {
		bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
			c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
			defer c.CloseIdle()
			start := time.Now()
			_, _, err := get(t, c, "http://shop.example.com/error")
			wantError(t, err, false, `500 Internal Server Error: "xxxx"`)
			res, err := c.Do(t.Context(), source.Request{Method: "GET", URL: "http://shop.example.com/body"})
			must.Succeed(t, err)
			if err := res.Body.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != 2*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	})
	t.Run("no connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hosts := &source.Hosts{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				time.Sleep(20 * time.Second)
				return nil, errors.New("too late")
			}}
			_, _, err := get(t, newClientWith(t, source.Options{Hosts: hosts}, feedURL), feedURL)
			wantError(t, err, false, "GET "+feedURL+": no connection was made for 10s (10s, or timeout if that is less)")
			wantTimeout(t, err)
			time.Sleep(time.Minute) // the dial ends by itself
		})
	})
}

// wantTimeout checks that err is a timeout, and that it does not look like the end of the
// caller's context.
func wantTimeout(t *testing.T, err error) {
	t.Helper()
	var late interface{ Timeout() bool }
	if !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("error %v is no timeout", err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v looks like the end of the caller's context", err)
	}
}
