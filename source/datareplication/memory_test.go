package datareplication

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
)

// bigPage answers with one page of n entities of size bytes each. In the middle of entity
// number pauseAt, if that is not 0, it sends a byte every ten
// seconds for as long as pause, at the first request.
func bigPage(n, size, pauseAt int, pause time.Duration) http.HandlerFunc {
	return pageOf(slices.Repeat([]int{size}, n), pauseAt, pause)
}

// pageOf is bigPage with entities of these sizes.
func pageOf(sizes []int, pauseAt int, pause time.Duration) http.HandlerFunc {
	var paused atomic.Bool
	n := len(sizes)
	whole := bytes.Repeat([]byte("x"), slices.Max(sizes))
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "<http://feed.example/latest>; rel=self")
		w.Header().Set("Last-Modified", second(n).Format(http.TimeFormat))
		w.Header().Set("Content-Type", "multipart/mixed; boundary=b")
		if r.Method == http.MethodHead {
			return
		}
		for i, size := range sizes {
			body := whole[:size]
			_, _ = fmt.Fprintf(w, "--b\r\nContent-ID: <%d>\r\nContent-Type: text/plain\r\nLast-Modified: %s\r\nOperation-Type: http-equiv=PUT\r\n\r\n",
				i, second(i).Format(http.TimeFormat))
			if pauseAt > 0 && i == pauseAt && !paused.Swap(true) {
				at := size / 2
				_, _ = w.Write(body[:at])
				for range pause / (10 * time.Second) {
					if _, err := w.Write(body[at : at+1]); err != nil {
						return
					}
					_ = http.NewResponseController(w).Flush()
					at++
					select {
					case <-time.After(10 * time.Second):
					case <-r.Context().Done():
						return
					}
				}
				_, _ = w.Write(body[at:])
			} else if _, err := w.Write(body); err != nil {
				return
			}
			_, _ = w.Write([]byte("\r\n"))
		}
		_, _ = w.Write([]byte("--b--\r\n"))
	}
}

// withHeaders adds n headers of 4 bytes to each entity of a page.
func withHeaders(page http.Handler, n int) http.HandlerFunc {
	headers := []byte("Operation-Type: http-equiv=PUT\r\n" + strings.Repeat("a:b\n", n))
	return func(w http.ResponseWriter, r *http.Request) { page.ServeHTTP(headerWriter{w, headers}, r) }
}

type headerWriter struct {
	http.ResponseWriter
	headers []byte
}

func (w headerWriter) Write(b []byte) (int, error) {
	_, err := w.ResponseWriter.Write(bytes.Replace(b, []byte("Operation-Type: http-equiv=PUT\r\n"), w.headers, 1))
	return len(b), err
}

// growingPage is bigPage with entities of which each is twice as large as the one before,
// and the last has size bytes.
func growingPage(n, size int) http.HandlerFunc {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = size >> (n - 1 - i)
	}
	return pageOf(sizes, 0, 0)
}

// bigPages is bigPage for a feed of n pages with one entity each.
func bigPages(n, size int) http.HandlerFunc {
	body := bytes.Repeat([]byte("x"), size)
	return func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil {
			i = n - 1
		}
		for _, link := range []struct {
			rel string
			to  int
		}{{"self", i}, {"prev", i - 1}, {"next", i + 1}} {
			if link.to >= 0 && link.to < n {
				w.Header().Add("Link", fmt.Sprintf("<http://feed.example/%d>; rel=%s", link.to, link.rel))
			}
		}
		w.Header().Set("Last-Modified", second(i).Format(http.TimeFormat))
		w.Header().Set("Content-Type", "multipart/mixed; boundary=b")
		_, _ = fmt.Fprintf(w, "--b\r\nContent-ID: <%d>\r\nContent-Type: text/plain\r\nLast-Modified: %s\r\nOperation-Type: http-equiv=PUT\r\n\r\n",
			i, second(i).Format(http.TimeFormat))
		_, _ = w.Write(body)
		_, _ = w.Write([]byte("\r\n--b--\r\n"))
	}
}

// slowTopic is a topic that keeps the IDs of entities and not the entities. Each commit
// takes a second.
type slowTopic struct {
	mu  sync.Mutex
	cp  checkpoint.Checkpoint
	ids []string
}

func (s *slowTopic) Resume(context.Context) (checkpoint.Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cp, nil
}

func (s *slowTopic) Commit(_ context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entities {
		s.ids = append(s.ids, strings.Clone(e.ID))
	}
	s.cp = cp
	return nil
}

// wantAll checks that the topic has the first n entities of a big page in order.
func (s *slowTopic) wantAll(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) != n {
		t.Errorf("the topic has %d entities, want %d", len(s.ids), n)
		return
	}
	for i, id := range s.ids {
		if want := fmt.Sprintf("<%d>", i); id != want {
			t.Errorf("entity %d is %s, want %s", i, id, want)
			return
		}
	}
}

type ignoringObserver struct{}

func (ignoringObserver) Polled(feed.Batch, error, time.Duration) {}
func (ignoringObserver) Processed(feed.Batch, time.Duration)     {}
func (ignoringObserver) Entered(bridge.Status)                   {}

// bridgeFrom copies the handler's feed to a topic, until the test ends. pages is the budget for
// pages that are requested ahead; nil requests none.
func bridgeFrom(t *testing.T, h http.Handler, budget, pages *readahead.Budget) *slowTopic {
	t.Helper()
	topic := &slowTopic{}
	s := newSite()
	s.Handler, s.pageBudget, s.asSent = h, pages, true
	share := budget.Share()
	src := s.source(t, func(c *options) {
		c.Memory = share
		if pages != nil {
			c.PagesAhead = 0
		}
	})
	b := &bridge.Bridge{
		Feed: "f", Writer: "w", Sink: topic, Every: 24 * time.Hour, ReadAhead: 8 << 20, Share: share,
		Limits: feed.Limits{Entities: 999, Bytes: 8 << 20},
		Open:   func(context.Context, string) (feed.Source, string, error) { return src, Kind, nil },
		Log:    slog.New(slog.DiscardHandler), Observer: ignoringObserver{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	b.Start(ctx, func() { close(stopped) })
	t.Cleanup(func() { cancel(); <-stopped })
	return topic
}

func liveHeap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// What all feeds hold of their pages together is bounded, however large the entities are
// and however many feeds there are. Each publishes all of its entities in order.
func TestManyFeedsKeepTheBudget(t *testing.T) {
	const (
		feeds = 40
		total = 8 << 20
		// perFeed is the memory that a feed may hold without budget: a buffer, the
		// beginning of an entity, and a connection with both of its ends.
		perFeed = 300 << 10
	)
	for _, test := range []struct {
		entities, size int
		apart          bool // each on a page of its own
		grow           bool // each is twice as large as the one before
		headers        int  // of 4 bytes, in each
	}{
		{entities: 1500, size: 500},
		{entities: 60, size: 50_000},
		{entities: 20, size: 300_000},
		{entities: 6, size: 1_000_000},
		{entities: 6, size: 1_000_000, apart: true},
		{entities: 4, size: 3_000_000},
		{entities: 12, size: 2_000_000, grow: true},
		{entities: 30, size: 100, headers: 10_000},
	} {
		entities, size := test.entities, test.size
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := bigPage(entities, size, 0, 0)
				switch {
				case test.apart:
					h = bigPages(entities, size)
				case test.grow:
					h = growingPage(entities, size)
				case test.headers > 0:
					h = withHeaders(h, test.headers)
				}
				before := liveHeap()
				budget, pages := readahead.NewBudget(total-total/4), readahead.NewBudget(total/4)
				topics := make([]*slowTopic, feeds)
				for i := range topics {
					topics[i] = bridgeFrom(t, h, budget, pages)
				}
				most := int64(0)
				for range 16 {
					time.Sleep(1300 * time.Millisecond)
					synctest.Wait()
					most = max(most, liveHeap()-before)
				}
				// One entity may be held beyond the budget.
				if allowed := int64(total + 2*size + feeds*perFeed); most > allowed {
					t.Errorf("%d feeds hold %d bytes, want %d at most", feeds, most, allowed)
				} else {
					t.Logf("%d feeds hold %d bytes", feeds, most)
				}
				time.Sleep(10 * time.Minute)
				for _, topic := range topics {
					topic.wantAll(t, entities)
				}
				unused(t, budget, total-total/4)
				unused(t, pages, total/4)
			})
		})
	}
}

func unused(t *testing.T, b *readahead.Budget, total int64) {
	t.Helper()
	synctest.Wait()
	if !b.TryAcquire(total) {
		t.Error("some of the budget is not returned")
		return
	}
	b.Release(total)
}

// Entities that are larger than the whole budget are published, of one feed at a time.
func TestEntitiesAboveTheBudgetArePublished(t *testing.T) {
	const feeds, entities, size = 20, 3, 1_000_000
	synctest.Test(t, func(t *testing.T) {
		before := liveHeap()
		budget := readahead.NewBudget(1)
		var topics []*slowTopic
		h := bigPage(entities, size, 0, 0)
		for range feeds {
			topics = append(topics, bridgeFrom(t, h, budget, nil))
		}
		time.Sleep(1300 * time.Millisecond)
		synctest.Wait()
		if held := liveHeap() - before; held > 5*size+feeds*(300<<10) {
			t.Errorf("%d feeds hold %d bytes", feeds, held)
		}
		// One entity a second, and then some.
		time.Sleep(2 * feeds * entities * time.Second)
		for _, topic := range topics {
			topic.wantAll(t, entities)
		}
		unused(t, budget, 1)
	})
}

// Servers that stop in the middle of an entity have the whole budget, and one of them more.
// Other feeds wait for a time, and then publish.
func TestServersThatStopStarveNoOtherFeed(t *testing.T) {
	const entities, size, total = 5, 300_000, 3 << 20
	synctest.Test(t, func(t *testing.T) {
		budget := readahead.NewBudget(total)
		var stuck []*slowTopic
		for range 5 {
			stuck = append(stuck, bridgeFrom(t, bigPage(entities, size, 2, time.Hour), budget, nil))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if budget.TryAcquire(total / 2) {
			t.Fatal("the feeds that are stuck have little of the budget")
		}
		small, large := bridgeFrom(t, bigPage(entities, 1000, 0, 0), budget, nil), bridgeFrom(t, bigPage(entities, size, 0, 0), budget, nil)
		time.Sleep(5 * time.Second)
		small.wantAll(t, entities) // it needs no budget
		time.Sleep(entities * 6 * time.Minute)
		large.wantAll(t, entities)
		time.Sleep(2 * time.Hour)
		for _, topic := range stuck {
			topic.wantAll(t, entities)
		}
		unused(t, budget, total)
	})
}
