package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// BenchmarkManyFeeds reads 200 feeds with pages of 100 MB at once for a minute, with the
// default memory, and reports the peak of the program's resident memory. BENCH_FEEDS sets
// another number of feeds.
//
//	BENCH_FEEDS=1000 go test -run '^$' -bench ManyFeeds -benchtime 1x ./cmd/feedbridge
func BenchmarkManyFeeds(b *testing.B) {
	b.Run("datareplication/1MB", func(b *testing.B) { benchmarkManyFeeds(b, servePage(1_000_000)) })
	b.Run("datareplication/1KiB", func(b *testing.B) { benchmarkManyFeeds(b, servePage(1<<10)) })
	b.Run("atom/1MB", func(b *testing.B) { benchmarkManyFeeds(b, serveDocument(1_000_000)) })
}

func benchmarkManyFeeds(b *testing.B, upstream http.HandlerFunc) {
	const watch = time.Minute
	feeds := 200
	if number := os.Getenv("BENCH_FEEDS"); number != "" {
		var err error
		if feeds, err = strconv.Atoi(number); err != nil {
			b.Fatal("BENCH_FEEDS: ", err)
		}
	}
	s := httptest.NewServer(upstream)
	b.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	for b.Loop() {
		natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
		var file bytes.Buffer
		fmt.Fprintf(&file, "buses: {main: {nats: {url: %q}}}\nfeeds:\n", natsURL)
		for n := range feeds {
			fmt.Fprintf(&file, "  feed-%d: {url: \"%s/%d\", limits: {rate: 1000, page: 1073741824}}\n", n, s.URL, n)
		}
		path := filepath.Join(b.TempDir(), "feedbridge.yaml")
		must.Succeed(b, os.WriteFile(path, file.Bytes(), 0o600))
		cmd, status := startProgram(b, map[string]string{"CONFIG": path})
		waitUntil(b, func() bool { return published(b, status) > 0 })
		waitFor(b, watch)
		b.ReportMetric(memory(b, cmd.Process.Pid, "VmHWM"), "MiB-peak")
		b.ReportMetric(float64(published(b, status)), "entities")
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

const (
	hugePage = 100 << 20 // bytes of bodies
	oldest   = 1_767_225_600
)

// servePage writes a page of entities of this size while it is read.
func servePage(body int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := hugePage / body
		w.Header().Set("Link", fmt.Sprintf(`<http://%s%s>; rel="self"`, r.Host, r.URL.Path))
		w.Header().Set("Last-Modified", time.Unix(oldest+int64(n), 0).UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Type", "multipart/mixed; boundary=part")
		if r.Method == http.MethodHead {
			return
		}
		text, out := strings.Repeat("x", body), bufio.NewWriterSize(w, 64<<10)
		for i := range n {
			_, err := fmt.Fprintf(out, "--part\r\nContent-ID: <%d@feed%s>\r\nContent-Type: text/plain\r\nLast-Modified: %s\r\nOperation-Type: http-equiv=PUT\r\n\r\n%s\r\n",
				i, strings.ReplaceAll(r.URL.Path, "/", "."), time.Unix(oldest+int64(i), 0).UTC().Format(http.TimeFormat), text)
			if err != nil {
				return
			}
		}
		fmt.Fprint(out, "--part--\r\n")
		_ = out.Flush()
	}
}

// serveDocument does the same with a document of Atom.
func serveDocument(body int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/atom+xml")
		text, out := strings.Repeat("x", body), bufio.NewWriterSize(w, 64<<10)
		fmt.Fprintf(out, `<feed xmlns="http://www.w3.org/2005/Atom"><id>urn:feed:%s</id><title>t</title><updated>2026-06-01T00:00:00Z</updated>`, r.URL.Path[1:])
		for i := hugePage / body; i > 0; i-- {
			_, err := fmt.Fprintf(out, `<entry><id>urn:entry:%s:%d</id><title>e</title><updated>%s</updated><content>%s</content></entry>`,
				r.URL.Path[1:], i, time.Unix(oldest+int64(i), 0).UTC().Format(time.RFC3339), text)
			if err != nil {
				return
			}
		}
		fmt.Fprint(out, "</feed>")
		_ = out.Flush()
	}
}
