package daemon_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// A search is described while it goes on, and otherwise from the checkpoint.
func TestSearchIsDescribed(t *testing.T) {
	t.Parallel()
	upstream := samplefeed.New(samplefeed.Options{PageSize: 1, Entity: func(i int) feed.Entity {
		return feed.Entity{ID: string(rune('a' + i)), Op: feed.Put, Modified: time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC)}
	}})
	upstream.SetLen(4)
	var sources *daemon.Sources
	var mu sync.Mutex // guards during: pages ahead are requested concurrently
	var during []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		during = append(during, sources.Describe(checkpoint.Checkpoint{}).Search)
		mu.Unlock()
		upstream.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	cfg := load(t, t.TempDir(), server.URL+"/feed/latest", "FEEDBRIDGE_FEEDS_ORDERS_START=2026-01-01T00:02:00Z", "FEEDBRIDGE_FEEDS_ORDERS_FORMAT=datareplication")
	sources, err := daemon.NewSources(cfg.Feeds["orders"], daemon.SourceOptions{IDs: sink.NewIDs(0)}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	stored := checkpoint.Checkpoint{Source: datareplication.Kind, Cursor: feed.Cursor(`{"v":1,"search":{"from":1767225720,"newer":"https://x/4","newer_time":1767225780,"back":"https://x/3","pages":41}}`)}
	const target = "the first entity since 2026-01-01T00:02:00Z; "
	if got, want := sources.Describe(stored).Search, target+"41 pages are searched, back to 2026-01-01T00:03:00Z"; got != want {
		t.Errorf("before a source is opened: %q, want %q", got, want)
	}
	src, _, err := sources.Open(t.Context(), "")
	must.Succeed(t, err)
	b, err := src.Next(t.Context(), nil, feed.Limits{})
	if err != nil || len(b.Entities) == 0 || b.Entities[0].ID != "c" {
		t.Fatalf("read %v, %v", b.Entities, err)
	}
	want := []string{"", target + "1 page is searched, back to 2026-01-01T00:03:00Z", target + "2 pages are searched, back to 2026-01-01T00:02:00Z"}
	mu.Lock()
	got := slices.Clone(during[:min(len(during), 3)])
	mu.Unlock()
	must.Match(t, "", want, got)
	for _, cp := range []checkpoint.Checkpoint{{Source: datareplication.Kind, Cursor: b.Cursor}, {}, {Cursor: feed.Cursor("no cursor")}} {
		if got := sources.Describe(cp).Search; got != "" {
			t.Errorf("at %s there is the search %s", cp.Cursor, got)
		}
	}
	if got := sources.Describe(stored).Search; !strings.Contains(got, "41 pages") {
		t.Errorf("between two calls: %q", got)
	}
}
