package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

var _ bridge.Observer = (*admin.Feed)(nil)

const own = "host-7"

func newServer(buses ...admin.Bus) *admin.Server {
	s := admin.New(admin.Options{
		Version: "v1.2.3",
		Started: time.Now(),
		Writer:  own,
		Buses:   buses,
		Log:     slog.New(slog.DiscardHandler),
	})
	s.AddRead("/feeds/{feed}/newest", func(context.Context, *http.Request) (any, error) {
		return map[string]any{"messages": []any{}}, nil
	})
	return s
}

func addOrders(s *admin.Server) *admin.Feed { return addOrdersAs(s, "orders") }

// addOrdersAs adds a feed that lacks what its cursor says: "2 gaps, 3 deletes".
func addOrdersAs(s *admin.Server, name string) *admin.Feed {
	return s.AddFeed(admin.FeedOptions{
		Name: name, URL: "https://shop.example.com/feed/latest", Format: "auto",
		Bus: "main", Topic: "orders.v1",
		Every: 10 * time.Second, Freshness: 5 * time.Minute,
		Describe: func(cp checkpoint.Checkpoint) (d admin.Description) {
			if len(cp.Cursor) == 0 {
				return d
			}
			d = admin.Description{Format: "datareplication", Cursor: map[string]string{"after": string(cp.Cursor)}, Lacking: &admin.Lacking{Until: time.Date(2026, 1, 1, 0, 15, 0, 0, time.UTC)}}
			_, _ = fmt.Sscanf(string(cp.Cursor), "%d gaps, %d deletes", &d.Lacking.Gaps, &d.Lacking.Deletes)
			if target, found := strings.CutPrefix(string(cp.Cursor), "search for "); found {
				d.Search = target
			}
			if strings.HasPrefix(string(cp.Cursor), "page ") {
				d.Snapshot = string(cp.Cursor)
			}
			return d
		},
	})
}

// get returns the answer to a request for path.
func get(t *testing.T, s *admin.Server, path string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9321"+path, nil))
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("GET %s: Cache-Control is %q", path, got)
	}
	return w.Code, w.Body.String()
}

// row returns one feed's row of /status.
func row(t *testing.T, s *admin.Server) map[string]any {
	t.Helper()
	code, body := get(t, s, "/status/orders")
	if code != http.StatusOK {
		t.Fatalf("GET /status/orders: %d %s", code, body)
	}
	var m map[string]any
	must.Succeed(t, json.Unmarshal([]byte(body), &m))
	return m
}

// at is the checkpoint after n entities, made that long ago.
func at(n uint64, writer string, ago time.Duration) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{
		Feed: "orders", Source: "datareplication", Cursor: feed.Cursor(strings.Repeat("x", int(n))),
		Count: n, At: time.Now().Add(-ago), Writer: writer,
	}
}

// enter has the bridge enter a state now, for as long as d.
func enter(f *admin.Feed, state bridge.State, cp checkpoint.Checkpoint, d time.Duration, err error) {
	s := bridge.Status{State: state, Since: time.Now(), Checkpoint: cp, Err: err}
	if d > 0 {
		s.Until = time.Now().Add(d)
	}
	f.Entered(s)
}

// batch has n entities of three bytes each, modified a minute apart from the
// start of 1999 on.
func batch(cursor string, n int, more bool) feed.Batch {
	b := feed.Batch{Cursor: feed.Cursor(cursor), More: more}
	for i := range n {
		b.Entities = append(b.Entities, feed.Entity{
			ID: "id", Body: []byte("abc"),
			Modified: time.Date(1999, 1, 1, 0, i, 0, 0, time.UTC),
		})
	}
	b.Bytes = b.Size()
	return b
}

var errDown = errors.New("GET https://shop.example.com/feed/latest: 503 Service Unavailable")

func TestPaths(t *testing.T) {
	t.Parallel()
	s := newServer(admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return nil }})
	addOrders(s)
	for _, c := range []struct {
		situation, method, path string
		code                    int
		contains                string
	}{
		{"the page links to the other paths", "GET", "/", 200, `href="/healthz"`},
		{"the page of a feed", "GET", "/feed/orders", 200, `<h1>orders</h1>`},
		{"the page of another feed", "GET", "/feed/order", 404, `There is no feed of this name.`},
		{"served topics", "GET", "/served", 200, `No topic is served by this process.`},
		{"the process works", "GET", "/healthz", 200, "ok\n"},
		{"a probe may use HEAD", "HEAD", "/healthz", 200, ""},
		{"nothing has been read yet", "GET", "/readyz", 503, "feed orders: has not been read yet"},
		{"status", "GET", "/status", 200, `"version": "v1.2.3"`},
		{"status of a feed", "GET", "/status/orders", 200, `"feed": "orders"`},
		{"status of another feed", "GET", "/status/order", 404, `there is no feed "order"; there are: orders`},
		{"metrics", "GET", "/metrics", 200, "go_goroutines"},
		{"unknown path", "GET", "/debug/pprof", 404, ""},
		{"nothing can be changed", "POST", "/status", 405, ""},
	} {
		parallel.Run(t, c.situation, func(t *testing.T) {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1:9321"+c.path, nil))
			if w.Code != c.code {
				t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.code)
			}
			if !strings.Contains(w.Body.String(), c.contains) {
				t.Errorf("%s %s has no %q:\n%s", c.method, c.path, c.contains, w.Body)
			}
		})
	}
}

func TestACursorThatJSONCannotHold(t *testing.T) {
	t.Parallel()
	s := newServer()
	f := s.AddFeed(admin.FeedOptions{Name: "orders", Describe: func(checkpoint.Checkpoint) admin.Description {
		return admin.Description{Cursor: func() {}}
	}})
	f.Processed(batch("a", 1, false), time.Second)
	if code, body := get(t, s, "/status/orders"); code != http.StatusInternalServerError || !strings.Contains(body, "unsupported type") {
		t.Errorf("%d %s", code, body)
	}
}
