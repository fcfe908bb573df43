package datareplication

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
)

// BenchmarkFarUpstream reads 100,000 entities of 1 KiB from a server that is 50 ms away. It
// reports the time as a share of 1.3 times that of the HEADs and a quarter of that of the GETs.
func BenchmarkFarUpstream(b *testing.B) {
	const pages, entities = 200, 500
	body := strings.Repeat("x", 1024)
	var heads, gets atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(farAway)
		if r.Method == http.MethodHead {
			heads.Add(1)
		} else {
			gets.Add(1)
		}
		n := pages - 1
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
		h := w.Header()
		h.Add("Link", fmt.Sprintf("</%d>; rel=self", n))
		if n > 0 {
			h.Add("Link", fmt.Sprintf("</%d>; rel=prev", n-1))
		}
		if n < pages-1 {
			h.Add("Link", fmt.Sprintf("</%d>; rel=next", n+1))
		}
		h.Set("Content-Type", "multipart/mixed; boundary=b")
		h.Set("Last-Modified", second(n).Format(http.TimeFormat))
		if r.Method == http.MethodHead {
			return
		}
		for e := range entities {
			_, _ = fmt.Fprintf(w, "--b\r\nContent-ID: %d.%d\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nLast-Modified: %s\r\nOperation-Type: http-equiv=PUT\r\n\r\n%s\r\n",
				n, e, len(body), second(n).Format(http.TimeFormat), body)
		}
		_, _ = fmt.Fprint(w, "--b--\r\n")
	}))
	defer server.Close()
	for _, n := range []int{-1, 4, 16} {
		b.Run(fmt.Sprintf("ahead=%d", n), func(b *testing.B) {
			cfg := Config{Config: source.Defaults()}
			cfg.URL, cfg.PagesAhead = server.URL+"/latest", n
			client, err := source.NewClient(cfg.Config, source.Options{})
			must.Succeed(b, err)
			for b.Loop() {
				heads.Store(0)
				gets.Store(0)
				begin := time.Now()
				src := New(cfg, client, slog.New(slog.DiscardHandler))
				read, more := 0, true
				for cursor := feed.Cursor(nil); more; {
					batch, err := src.Next(b.Context(), cursor, feed.Limits{})
					must.Succeed(b, err)
					read, cursor, more = read+len(batch.Entities), batch.Cursor, batch.More
				}
				src.Release()
				if read != pages*entities {
					b.Fatalf("read %d entities", read)
				}
				b.ReportMetric(time.Since(begin).Seconds()/(farAway.Seconds()*(1.3*float64(heads.Load())+float64(gets.Load())/4)), "of-goal")
				b.ReportMetric(float64(heads.Load()), "HEADs")
				b.ReportMetric(float64(gets.Load()), "GETs")
			}
		})
	}
}
