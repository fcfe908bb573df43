package daemon_test

import (
	"log/slog"
	"testing"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// A search is described from the checkpoint.
func TestSearchIsDescribed(t *testing.T) {
	t.Parallel()
	cfg := load(t, t.TempDir(), "http://shop.example/feed/latest", "FEEDBRIDGE_FEEDS_ORDERS_FORMAT=datareplication")
	sources, err := daemon.NewSources(cfg.Feeds["orders"], daemon.SourceOptions{IDs: sink.NewIDs(0)}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	for cursor, want := range map[string]string{
		`{"v":1,"search":{"from":1767225720,"newer":"https://x/4","newer_time":1767225780,"back":"https://x/3","pages":41}}`: "the first entity since 2026-01-01T00:02:00Z; 41 pages are searched, back to 2026-01-01T00:03:00Z",
		`{"v":1,"page":"https://x/4"}`: "",
		"no cursor":                    "",
	} {
		if got := sources.Describe(checkpoint.Checkpoint{Source: datareplication.Kind, Cursor: feed.Cursor(cursor)}).Search; got != want {
			t.Errorf("at %s there is the search %q, want %q", cursor, got, want)
		}
	}
}
