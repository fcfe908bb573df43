package admin_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/admin"
)

// Several Prometheus servers may scrape at the same time. Each gets an answer, of which one copy is
// in memory.
func TestScrapesAtTheSameTimeShareTheMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int32
		wait := make(chan struct{})
		s := admin.New(admin.Options{Log: slog.New(slog.DiscardHandler)})
		s.AddServed(admin.ServedOptions{Name: "orders", Look: func(context.Context) (admin.ServedTopic, error) {
			made.Add(1)
			<-wait
			return admin.ServedTopic{}, nil
		}})
		for range 3 {
			go func() {
				if status, body := get(t, s, "/metrics"); status != http.StatusOK || len(body) < 1000 {
					t.Errorf("status %d, %d bytes", status, len(body))
				}
			}()
		}
		synctest.Wait()
		close(wait)
		synctest.Wait()
		if n := made.Load(); n != 1 {
			t.Errorf("the metrics were made %d times for 3 scrapes at once, want once", n)
		}
		get(t, s, "/metrics")
		if n := made.Load(); n != 2 {
			t.Errorf("the metrics were made %d times, want again for a later scrape", n)
		}
	})
}

// BenchmarkScrape reports the memory of a scrape for each feed that is copied: allocated, and in use
// when the answer begins.
func BenchmarkScrape(b *testing.B) {
	const feeds = 5000
	s := admin.New(admin.Options{Log: slog.New(slog.DiscardHandler)})
	for i := range feeds {
		name := fmt.Sprintf("feed-%04d", i)
		f := s.AddFeed(admin.FeedOptions{
			Name: name, Format: "atom", Bus: "main", Topic: name, Every: time.Second, Freshness: time.Hour,
			Describe: func(checkpoint.Checkpoint) admin.Description {
				return admin.Description{Lacking: &admin.Lacking{Gaps: 1, Deletes: 2}}
			},
		})
		entities := batch("a", 3, false)
		enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
		f.Polled(entities, nil, time.Millisecond)
		f.Processed(entities, time.Millisecond)
		f.Exchanged("GET", http.StatusOK, nil, time.Millisecond)
	}
	handler, before := s.Handler(), readMemory()
	var w *scrapeWriter
	for b.Loop() {
		w = &scrapeWriter{header: http.Header{}}
		handler.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "http://127.0.0.1:9321/metrics", nil))
	}
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/feeds, "allocatedB/feed")
	b.ReportMetric((float64(w.inUse)-float64(before.HeapAlloc))/feeds, "inUseB/feed")
	b.ReportMetric(float64(w.size)/feeds, "answerB/feed")
}

func readMemory() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// scrapeWriter discards an answer.
type scrapeWriter struct {
	header http.Header
	size   int
	inUse  uint64 // memory when the answer begins
}

func (w *scrapeWriter) Header() http.Header { return w.header }
func (w *scrapeWriter) WriteHeader(int)     {}

func (w *scrapeWriter) Write(p []byte) (int, error) {
	if w.size == 0 {
		w.inUse = readMemory().HeapAlloc
	}
	w.size += len(p)
	return len(p), nil
}

// stuckWriter takes the beginning of an answer, and nothing more until it is freed.
type stuckWriter struct {
	httptest.ResponseRecorder
	free <-chan struct{}
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	<-w.free
	return len(p), nil
}

// A client that does not read its answer, or a row of slow ones, must not keep the metrics as they were
// for all others.
func TestAClientThatDoesNotReadItsAnswerKeepsNoOldMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		made := 0
		s := admin.New(admin.Options{Log: slog.New(slog.DiscardHandler)})
		s.AddServed(admin.ServedOptions{Name: "orders", Look: func(context.Context) (admin.ServedTopic, error) {
			made++
			return admin.ServedTopic{}, nil
		}})
		free := make(chan struct{})
		go func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9321/metrics", nil)
			s.Handler().ServeHTTP(&stuckWriter{*httptest.NewRecorder(), free}, r)
		}()
		synctest.Wait()
		get(t, s, "/metrics")
		if made != 2 {
			t.Errorf("the metrics were made %d times, want again for the second client", made)
		}
		close(free)
	})
}
