package admin_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/feed"
)

func getWith(ctx context.Context, s *admin.Server, path string) {
	s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
}

func TestListenSaysHowToCureIt(t *testing.T) {
	t.Parallel()
	l, err := admin.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// A stop lets the request under way end, and takes no other.
func TestServeStopsInGoodOrder(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	s := newServer(admin.Bus{Name: "main", Check: func(context.Context) error {
		close(asked)
		<-answer
		return nil
	}})
	l, err := admin.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()

	got := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + l.Addr().String() + "/readyz")
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		got <- resp.Status + " " + string(body)
	}()
	<-asked
	cancel()
	for { // until the door is closed
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break
		}
		conn.Close()
	}
	close(answer)
	if body := <-got; !strings.HasPrefix(body, "200 OK") {
		t.Errorf("the request under way got %s", body)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestServeReportsALostListener(t *testing.T) {
	t.Parallel()
	l, err := admin.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := newServer().Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
