package daemon

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// statusOf returns the feeds that were left behind of /status, and whether the metrics and the status page
// show one, too.
func statusOf(t *testing.T, f *feeds) (left []status.LeftBehind, shown bool) {
	t.Helper()
	get := func(path string) string {
		w := httptest.NewRecorder()
		f.pipelines.adm.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil))
		return w.Body.String()
	}
	var s status.Process
	must.Succeed(t, json.Unmarshal([]byte(get("/status")), &s))
	metric, page := strings.Contains(get("/metrics"), "\nfeedbridge_left_behind_feeds 1\n"), strings.Contains(get("/"), "and does not end: reading the feed for ")
	if metric != page {
		t.Errorf("the metric shows a feed that was left behind: %v, the status page: %v", metric, page)
	}
	return s.LeftBehind, metric
}

// A feed that does not yield is waited for a moment, without a lock, and shown until it ends. Feeds that
// yield are not, and the name can be used again at once.
func TestAFeedThatDoesNotYieldIsLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text logText
		f := newTestFeeds(newTestLog(&text))
		released, yields := make(chan struct{}), make(chan struct{})
		close(yields)
		f.addStuck(t.Context(), "busy", bridge.ReadingFeed, released)
		f.addStuck(t.Context(), "other", bridge.ReadingFeed, yields)
		began := time.Now()
		left := f.settle(f.stop([]string{"other", "busy", "unknown"}))
		if took := time.Since(began); took != bridge.YieldTime || len(left) != 1 || left[0] != (LeftBehind{"busy", "reading the feed for 5s"}) {
			t.Errorf("after %v %v were left behind", took, left)
		}
		if shown, counted := statusOf(t, f); len(shown) != 1 || shown[0].Feed != "busy" || !strings.HasPrefix(shown[0].Work, "reading the feed for ") || !counted {
			t.Errorf("the status has %+v", shown)
		}
		// The next feed of the name ends by itself.
		f.addStuck(t.Context(), "busy", bridge.ReadingFeed, yields)
		if left := f.settle(f.stop([]string{"busy"})); len(left) > 0 {
			t.Errorf("%v were left behind", left)
		}
		close(released)
		synctest.Wait()
		if shown, counted := statusOf(t, f); len(shown) > 0 || counted || len(f.all()) > 0 {
			t.Errorf("after its end the status has %+v", shown)
		}
		lines := logged(t, &text)
		if len(lines) != 2 || lines[0]["level"] != "WARN" || lines[0]["feed"] != "busy" || lines[1]["msg"] != "a feed that was left behind has ended" {
			t.Errorf("the log has %v", lines)
		}
	})
}

// A feed that is stopped before it was started, because a reload waits for its predecessor, ends at once.
func TestAFeedThatWaitsForItsPredecessorStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTestFeeds(slog.New(slog.DiscardHandler))
		start := f.addAll(t.Context(), map[string]*runningFeed{"orders": {
			name: "orders", nextPoll: func(now time.Time) time.Time { return now }, work: func() bridge.Work { return bridge.Work{} },
			run: func(ctx context.Context, stopped func()) {
				if ctx.Err() == nil {
					t.Error("the feed was started")
				}
				stopped()
			},
		}})
		if left := f.settle(f.stop([]string{"orders"})); len(left) > 0 {
			t.Errorf("%v do not end", left)
		}
		start()
	})
}

// A stop waits until the grace time is over for commits only, and says what it waited for.
func TestAStopWaitsForCommits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind       bridge.WorkKind
		ends       time.Duration // after the stop; 0 for never
		takes      time.Duration
		error, log string
	}{
		"a feed that does not yield":      {bridge.ReadingFeed, 0, bridge.YieldTime, "", "orders (reading the feed for 5s)"},
		"a bus that does not answer":      {bridge.ReadingCheckpoint, 0, bridge.YieldTime, "", "orders (waiting for the bus to return the checkpoint for 5s)"},
		"a commit that ends":              {bridge.Committing, 20 * time.Second, 20 * time.Second, "", ""},
		"a commit that does not end":      {bridge.Committing, 0, 30 * time.Second, "a commit was still in flight after the grace time of 30s; the next start finds out whether it was stored: orders (waiting for the bus to store a commit for 30s)", ""},
		"a feed that yields after a time": {bridge.ReadingFeed, time.Second, time.Second, "", ""},
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			var text logText
			log := newTestLog(&text)
			ctx, cancel := context.WithCancel(t.Context())
			d := &daemon{log: log, supervisor: &supervisor{log: log, notify: func(string) (bool, error) { return false, nil }}, feeds: newTestFeeds(log)}
			released := make(chan struct{})
			d.feeds.addStuck(ctx, "orders", c.kind, released)
			cancel()
			if c.ends > 0 {
				time.AfterFunc(c.ends, func() { close(released) })
			} else {
				defer close(released)
			}
			began := time.Now()
			err := d.waitForWork(ctx, 30*time.Second)
			if took := time.Since(began); took != c.takes || (err == nil) != (c.error == "") || err != nil && !strings.HasSuffix(err.Error(), c.error) {
				t.Errorf("after %v: %v", took, err)
			}
			left := ""
			for _, line := range logged(t, &text) {
				if feeds, ok := line["feeds"].(string); ok {
					left = feeds
				}
			}
			if left != c.log {
				t.Errorf("the log says that %q are left behind, want %q", left, c.log)
			}
		})
	}
}
