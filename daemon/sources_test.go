package daemon

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// A feed of one page or document is started with one request, whatever its format: the source reads the
// answer from which the format was detected, or the position to start at.
func TestFeedIsRequestedOnceAtItsFirstStart(t *testing.T) {
	t.Parallel()
	padding := strings.Repeat(" ", 1<<20) // so that closing the body would drop the connection
	for name, test := range map[string]struct {
		contentType, body string
	}{
		"datareplication": {
			"multipart/mixed; boundary=b",
			"--b\r\nContent-ID: a\r\nContent-Type: text/plain\r\nLast-Modified: Sun, 01 Mar 2026 10:00:00 GMT\r\nOperation-Type: http-equiv=PUT\r\n\r\n" + padding + "\r\n--b--\r\n",
		},
		"atom": {
			"application/atom+xml",
			`<feed xmlns="http://www.w3.org/2005/Atom"><id>f</id><title>t</title><updated>2026-03-01T10:00:00Z</updated><entry><id>a</id><title>t</title><updated>2026-03-01T10:00:00Z</updated></entry>` + padding + `</feed>`,
		},
		"rss": {
			"application/rss+xml",
			`<rss version="2.0"><channel><title>t</title><item><guid>a</guid><title>t</title></item>` + padding + `</channel></rss>`,
		},
	} {
		for _, format := range []string{"auto", name} {
			t.Run(name+", format: "+format, func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				var requests, clients []string
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					requests = append(requests, r.Method)
					clients = append(clients, r.RemoteAddr)
					mu.Unlock()
					w.Header().Set("Content-Type", test.contentType)
					w.Header().Set("Last-Modified", "Sun, 01 Mar 2026 10:00:00 GMT")
					w.Header().Set("Link", "</feed>; rel=self")
					_, _ = fmt.Fprint(w, test.body)
				}))
				t.Cleanup(server.Close)
				f := config.Feed{Source: source.Defaults(), Format: config.Format(format), Every: time.Minute, Syndication: syndication.Defaults().Settings}
				f.Source.URL = server.URL + "/feed"
				sources, err := NewSources(f, SourceOptions{IDs: sink.NewIDs(10)}, slog.New(slog.DiscardHandler))
				must.Succeed(t, err)
				src, kind, err := sources.Open(t.Context(), "")
				must.Succeed(t, err)
				defer src.Release()
				batch, err := src.Next(t.Context(), nil, feed.Limits{})
				for n := 0; n < 5 && err == nil && len(batch.Entities) == 0; n++ {
					batch, err = src.Next(t.Context(), batch.Cursor, feed.Limits{})
				}
				if err != nil || len(batch.Entities) != 1 {
					t.Fatalf("kind %s: %d entities, %v", kind, len(batch.Entities), err)
				}
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(requests, []string{http.MethodGet}) {
					t.Errorf("requests %v, want one GET", requests)
				}
				if n := len(slices.Compact(clients)); n != 1 {
					t.Errorf("%d connections", n)
				}
			})
		}
	}
}
