package serve

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// sampleTopic has n messages of 1 KiB.
func sampleTopic(n int) *memoryTopic {
	topic := newTopic()
	entities := samplefeed.Sized(1 << 10)
	for i := range n {
		e := entities(i)
		r := messageOf(e.ID, e.Op, e.Modified, string(e.Body))
		topic.add(r)
	}
	return topic
}

// listen serves at a free port until stop is called.
func listen(t testing.TB, serve func(context.Context, net.Listener) error) (url string, stop func()) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- serve(ctx, l) }()
	return "http://" + l.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkClosedPage serves pages of 500 entities of 1 KiB that are in memory,
// and the same bytes by [http.ServeContent] alone:
//
//	go test -run '^$' -bench ClosedPage -count 10 ./serve
func BenchmarkClosedPage(b *testing.B) {
	s := serveTopic(b, sampleTopic(1001), sized(500))
	path := "/feeds/orders/pages/e0-500-0"
	body := []byte(s.get(b, "/pages/e0-500-0").body)
	run := func(b *testing.B, serve func(context.Context, net.Listener) error) {
		url, stop := listen(b, serve)
		defer stop()
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
		buffer := make([]byte, 64<<10)
		for b.Loop() {
			resp, err := client.Get(url + path)
			must.Succeed(b, err)
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, buffer)
			resp.Body.Close()
			if err != nil || n != int64(len(body)) {
				b.Fatalf("got %d bytes, %v", n, err)
			}
		}
		client.CloseIdleConnections()
	}
	b.Run("feedbridge", func(b *testing.B) {
		run(b, NewServer(ServerOptions{}, s.Feed).Serve)
	})
	b.Run("http-servecontent", func(b *testing.B) {
		run(b, func(ctx context.Context, l net.Listener) error {
			server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "multipart/mixed; boundary=x")
				http.ServeContent(w, r, "", noon, bytes.NewReader(body))
			})}
			context.AfterFunc(ctx, func() { _ = server.Close() })
			_ = server.Serve(l)
			return nil
		})
	})
}

// BenchmarkColdPage makes pages of a topic in memory, one after the other, that
// were not requested before.
func BenchmarkColdPage(b *testing.B) {
	const pages = 40
	topic := sampleTopic(pages*500 + 1)
	b.SetBytes(500 << 10)
	b.ReportAllocs()
	for b.Loop() {
		s := serveTopic(b, topic, sized(500))
		for k := range uint64(pages) {
			p, err := s.builder.currentPage(b.Context(), pageKey{feed: s.cfg, id: pageID{"e0", 500, k}})
			must.Succeed(b, err)
			s.builder.memory.releasePage(p)
		}
	}
	b.ReportMetric(float64(b.N*pages*500)/b.Elapsed().Seconds(), "entities/s")
}

// BenchmarkArchive makes archive documents of Atom entries.
func BenchmarkArchive(b *testing.B) {
	topic := newTopic()
	for i := range 501 {
		id := fmt.Sprintf("urn:x:%d", i)
		topic.add(syndicated(id, feed.Put, later(i), entryOf(id, later(i), string(bytes.Repeat([]byte("text "), 200))), isAtom))
	}
	b.SetBytes(500 << 10)
	for b.Loop() {
		s := serveTopic(b, topic, sized(500), as(Atom))
		p, err := s.builder.currentPage(b.Context(), pageKey{feed: s.cfg, id: pageID{"e0", 500, 0}})
		must.Succeed(b, err)
		s.builder.memory.releasePage(p)
	}
}
