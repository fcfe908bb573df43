package daemon_test

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
	"github.com/feedbridge/feedbridge/sink"
)

// Pages are read into the memory of entities that were committed. None of these may be changed by
// that on its way: while it is read, joined with others, sent ahead, or sent.
func TestRunCopiesEveryByteWithMemoryThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	const n = 6000
	entity := samplefeed.Sized(1 << 10)
	upstream := samplefeed.New(samplefeed.Options{PageSize: 700, Entity: entity})
	upstream.SetLen(n)
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	url := server.URL + "/feed/latest"
	// Commits of half of this are smaller than a page, and larger than a chunk of it.
	cfg := load(t, t.TempDir(), url, "FEEDBRIDGE_MEMORY=8000000", "FEEDBRIDGE_FEEDS_ORDERS_LIMITS_RATE=1000")
	published := counter{make(chan int, n)}
	at, stop := start(t, cfg, published)
	defer stop()
	published.await(t, n)

	served := load(t, t.TempDir(), at.Feeds+"/feeds/orders/latest", "FEEDBRIDGE_FEEDS_ORDERS_LIMITS_RATE=1000")
	sources, err := daemon.NewSources(served.Feeds["orders"], daemon.SourceOptions{IDs: sink.NewIDs(0)}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	src, _, err := sources.Open(t.Context(), "")
	must.Succeed(t, err)
	read := 0
	var cursor feed.Cursor
	for more := true; more; {
		b, err := src.Next(t.Context(), cursor, feed.Limits{})
		must.Succeed(t, err)
		for _, e := range b.Entities {
			want := entity(read)
			kind, _ := e.Header.Get("Content-Type")
			if e.ID != want.ID || !bytes.Equal(e.Body, want.Body) || !e.Modified.Equal(want.Modified) || kind != "text/plain" {
				t.Fatalf("entity %d is %q of %v, %q, with the body %.20q", read, e.ID, e.Modified, kind, e.Body)
			}
			read++
		}
		cursor, more = b.Cursor, b.More
	}
	if read != n {
		t.Errorf("read %d entities, want %d", read, n)
	}
}
