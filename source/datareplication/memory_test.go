package datareplication

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// bigPage answers with one page of n entities of size bytes each. It pauses before entity
// number pauseAt, if that is not 0.
func bigPage(n, size, pauseAt int, pause time.Duration) http.HandlerFunc {
	body := bytes.Repeat([]byte("x"), size)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "<http://feed.example/latest>; rel=self")
		w.Header().Set("Last-Modified", second(n).Format(http.TimeFormat))
		w.Header().Set("Content-Type", "multipart/mixed; boundary=b")
		if r.Method == http.MethodHead {
			return
		}
		for i := range n {
			_, _ = fmt.Fprintf(w, "--b\r\nContent-ID: <%d>\r\nContent-Type: text/plain\r\nLast-Modified: %s\r\nOperation-Type: http-equiv=PUT\r\n\r\n",
				i, second(i).Format(http.TimeFormat))
			if pauseAt > 0 && i == pauseAt {
				_, _ = w.Write(body[:size/2])
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(pause):
				case <-r.Context().Done():
					return
				}
				_, _ = w.Write(body[size/2:])
			} else if _, err := w.Write(body); err != nil {
				return
			}
			_, _ = w.Write([]byte("\r\n"))
		}
		_, _ = w.Write([]byte("--b--\r\n"))
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
func (ignoringObserver) Settled(feed.Batch, time.Duration)       {}
func (ignoringObserver) Entered(bridge.Status)                   {}

// bridgeFrom copies what the handler serves to a topic, until the test ends.
func bridgeFrom(t *testing.T, h http.Handler, budget *bridge.Budget) *slowTopic {
	t.Helper()
	topic := &slowTopic{}
	s := newSite()
	s.Handler = h
	share := budget.Share()
	src := s.source(t, func(c *Config) { c.Memory = share })
	b := &bridge.Bridge{
		Feed: "f", Writer: "w", Sink: topic, Every: time.Minute, ReadAhead: 8 << 20, Share: share,
		Limits: bridge.Limits{Entities: 999, Bytes: 8 << 20},
		Open:   func(context.Context, string) (bridge.Source, string, error) { return src, Kind, nil },
		Log:    slog.New(slog.DiscardHandler), Observer: ignoringObserver{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
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
		feeds = 60
		total = 8 << 20
		// perFeed is what a feed may hold without budget: a buffer, the beginning of an
		// entity, and a connection with both of its ends.
		perFeed = 300 << 10
	)
	for _, size := range []int{500, 50_000, 300_000, 1_000_000, 3_000_000} {
		t.Run(fmt.Sprintf("entities of %d bytes", size), func(t *testing.T) {
			entities := max(4, min(6_000_000/size, 2000))
			synctest.Test(t, func(t *testing.T) {
				before := liveHeap()
				budget := bridge.NewBudget(total)
				topics := make([]*slowTopic, feeds)
				h := bigPage(entities, size, 0, 0)
				for i := range topics {
					topics[i] = bridgeFrom(t, h, budget)
				}
				most := int64(0)
				for range 20 {
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
				unused(t, budget, total)
			})
		})
	}
}

func unused(t *testing.T, b *bridge.Budget, total int64) {
	t.Helper()
	synctest.Wait()
	if !b.TryAcquire(total) {
		t.Error("some of the budget is not returned")
		return
	}
	b.Release(total)
}
