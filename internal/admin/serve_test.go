package admin_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func getWith(ctx context.Context, s *admin.Server, path string) {
	s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9321"+path, nil))
}

func TestListenSaysHowToCureIt(t *testing.T) {
	t.Parallel()
	l, err := admin.Listen("127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	taken := l.Addr().String()
	for _, c := range []struct{ situation, addr, want string }{
		{"another program has it", taken, "admin.listen: " + taken + ` is in use by another program; set another address or "off"`},
		{"another machine has it", "192.0.2.1:9321", `admin.listen: 192.0.2.1:9321 is not an address of this machine; set one that is, or "off"`},
		{"it is none", "9321", "admin.listen: listen tcp: address 9321: missing port in address"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			_, err := admin.Listen(c.addr)
			if err == nil || err.Error() != c.want || !errors.Is(err, feed.ErrPermanent) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// pipes is a listener whose connections stay in the process, so that they may
// be used in virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A stop lets the request under way end, for a while, and takes no other.
func TestServeStopsInGoodOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		situation   string
		answers     time.Duration // after the stop
		want        string
		servedAfter time.Duration
	}{
		{"the request under way ends soon", time.Second, "200 OK", time.Second},
		{"the request under way takes too long", 10 * time.Second, "EOF", 3 * time.Second},
	} {
		parallel.RunVirtual(t, c.situation, func(t *testing.T) {
			release := make(chan struct{})
			s := newServer()
			s.AddFeed(admin.FeedOptions{Name: "orders", Describe: func(checkpoint.Checkpoint) admin.Description {
				<-release
				return admin.Description{}
			}}).Processed(batch("a", 1, false), 0)
			l := newPipes()
			client := &http.Client{Transport: &http.Transport{DialContext: l.dial, DisableKeepAlives: true}}
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- s.Serve(ctx, l) }()
			answered := make(chan string, 1)
			go func() {
				resp, err := client.Get("http://feedbridge/status/orders")
				if err != nil {
					answered <- err.Error()
					return
				}
				resp.Body.Close()
				answered <- resp.Status
			}()
			synctest.Wait()
			stopped := time.Now()
			cancel()
			time.AfterFunc(c.answers, func() { close(release) })
			synctest.Wait()
			if _, err := l.dial(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a connection after the stop got %v", err)
			}
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
			// Shutdown looks every half second, or so, whether all have ended.
			if took := time.Since(stopped); took < c.servedAfter || took > c.servedAfter+time.Second {
				t.Errorf("Serve returned %v after the stop", took)
			}
			if got := <-answered; !strings.Contains(got, c.want) {
				t.Errorf("the request under way got %s, want %s", got, c.want)
			}
			time.Sleep(c.answers)
		})
	}
}

func TestServeReportsALostListener(t *testing.T) {
	t.Parallel()
	l, err := admin.Listen("127.0.0.1:0")
	must.Succeed(t, err)
	l.Close()
	if err := newServer().Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// Clients that are idle, that send nothing or half a request hold no more
// connections than the limit, and make room for the next client within moments.
func TestIdleClientsAreEvicted(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{"idle": "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "silent": "", "unfinished": "GET /"} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			const most = 3
			s := admin.New(admin.Options{Log: slog.New(slog.DiscardHandler), Connections: most})
			l := newPipes()
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- s.Serve(ctx, l) }()
			var open atomic.Int32
			for range 10 * most {
				conn, err := l.dial(ctx, "", "")
				must.Succeed(t, err)
				open.Add(1)
				go func() {
					_, _ = io.WriteString(conn, request)
					_, _ = io.Copy(io.Discard, conn) // until the server closes it
					open.Add(-1)
					_ = conn.Close()
				}()
				synctest.Wait()
				if n := open.Load(); n > most+1 { // one waits for its slot
					t.Fatalf("%d connections are open, of %d", n, most)
				}
			}
			begun := time.Now()
			client := &http.Client{Transport: &http.Transport{DialContext: l.dial, DisableKeepAlives: true}}
			resp, err := client.Get("http://feedbridge/healthz")
			must.Succeed(t, err)
			resp.Body.Close()
			if took := time.Since(begun); resp.StatusCode != http.StatusOK || took > time.Second {
				t.Errorf("got %s after %v", resp.Status, took)
			}
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}
