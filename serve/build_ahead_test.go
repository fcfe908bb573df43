package serve

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// The build of a page waits while the page before it is read, and does not read that page itself,
// unless that reading fails.
func TestPagesInTurn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(*memoryTopic)
		read int
	}{
		// The page before the first one is unknown, and both pages read one message after
		// their end.
		"": {func(topic *memoryTopic) { close(topic.slow) }, 3 + 3 + 1 + 3 + 1},
		"the first one fails": {func(topic *memoryTopic) {
			topic.mu.Lock()
			topic.failing = 1
			topic.mu.Unlock()
			close(topic.slow)
		}, 3 + 3 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				topic := newTopic()
				for i := range 12 {
					topic.add(messageOf(fmt.Sprint(i), feed.Put, later(i), "x"))
				}
				topic.slow = make(chan struct{})
				s := serveTopic(t, topic)
				pages := make(chan *page, 2)
				ask := func(k uint64) {
					p, err := s.builder.currentPage(t.Context(), pageKey{feed: s.cfg, id: pageID{"e0", 3, k}})
					if err == nil {
						s.builder.memory.releasePage(p)
					}
					pages <- p
				}
				go ask(1)
				synctest.Wait()
				go ask(2)
				synctest.Wait()
				topic.mu.Lock()
				if topic.reads != 1 {
					t.Errorf("%d readings at a time, want one", topic.reads)
				}
				topic.mu.Unlock()
				test.end(topic)
				if a, b := <-pages, <-pages; a == nil && b == nil {
					t.Error("there is no page")
				}
				if topic.read != test.read {
					t.Errorf("%d messages were read, want %d", topic.read, test.read)
				}
				if n := len(s.builder.inflight.pages); n > 0 {
					t.Errorf("%d pages are still being read", n)
				}
			})
		})
	}
}

// A request for a page builds the two pages after it.
func TestPagesAreMadeAhead(t *testing.T) {
	t.Parallel()
	for range 10 { // goroutines begin when they like
		synctest.Test(t, func(t *testing.T) {
			topic := numberedTopic(24)
			f, err := New(Config{Name: "orders", PageSize: 3}, topic)
			must.Succeed(t, err)
			s := &served{Feed: f, topic: topic}
			s.get(t, "/pages/e0-3-1").want(t, 200)
			synctest.Wait()
			var made []uint64
			for k := range uint64(8) {
				if p := s.builder.memory.acquirePage(pageKey{feed: s.cfg, id: pageID{"e0", 3, k}}); p != nil {
					made = append(made, k)
					s.builder.memory.releasePage(p)
				}
			}
			if want := []uint64{1, 2, 3}; !slices.Equal(made, want) {
				t.Errorf("the pages %d are made, want %d", made, want)
			}
			// The page before the first, and behind each page one message of the next.
			if topic.read != 3+3*(3+1) {
				t.Errorf("%d messages were read, want 15", topic.read)
			}
		})
	}
}

// heldSpans is a topic that answers for its span when the test lets it.
type heldSpans struct {
	*memoryTopic
	hold chan struct{} // nil to answer at once
	held atomic.Int32
}

func (t *heldSpans) Span(ctx context.Context) (feed.Span, error) {
	if t.hold != nil {
		t.held.Add(1)
		<-t.hold
	}
	return t.memoryTopic.Span(ctx)
}

// While the bus is asked whether the messages of a page still exist, the next page is built. If
// retention has deleted some, neither is served.
func TestPagesAreBuiltWhileOthersAreConfirmed(t *testing.T) {
	t.Parallel()
	for name, trim := range map[string]uint64{"": 0, "retention deletes the pages meanwhile": 7} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			topic := &heldSpans{memoryTopic: newTopic()}
			topic.numbered(24)
			f, err := New(Config{Name: "orders", PageSize: 3}, topic)
			must.Succeed(t, err)
			f.builder.ahead = 0
			s := &served{Feed: f, topic: topic.memoryTopic}
			s.get(t, "/pages/e0-3-0").want(t, 200)
			first := f.builder.memory.acquirePage(pageKey{feed: f.cfg, id: pageID{"e0", 3, 0}})
			f.builder.ahead = lead
			topic.hold = make(chan struct{})
			topic.reads = 0
			f.builder.buildAhead(first)
			synctest.Wait()
			topic.mu.Lock()
			if held := topic.held.Load(); topic.reads != lead || held != lead {
				t.Errorf("%d pages were read, and %d wait to be confirmed, want %d", topic.reads, held, lead)
			}
			topic.mu.Unlock()
			if trim > 0 {
				topic.trim(trim)
			}
			close(topic.hold)
			synctest.Wait()
			f.builder.memory.releasePage(first)
			if n := len(f.builder.inflight.pages); n > 0 {
				t.Errorf("%d pages are still being built", n)
			}
			for _, path := range []string{"/pages/e0-3-1", "/pages/e0-3-2"} {
				g := s.get(t, path)
				if trim > 0 {
					g.want(t, 410)
				} else if want := serveTopic(t, topic.memoryTopic).get(t, path); g.body != want.body || g.status != 200 {
					t.Errorf("%s: got %v, want %v", path, g, want)
				}
			}
		})
	}
}

// A build that fails ends the building ahead: the client may not get there.
func TestBuildingAheadEndsWithAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(24)
		s := serveTopic(t, topic)
		s.get(t, "/pages/e0-3-0").want(t, 200)
		first := s.builder.memory.acquirePage(pageKey{feed: s.cfg, id: pageID{"e0", 3, 0}})
		s.builder.ahead = lead
		topic.reads, topic.failing = 0, 1
		s.builder.buildAhead(first)
		synctest.Wait()
		if topic.reads != 1 || len(s.builder.inflight.pages) > 0 {
			t.Errorf("%d pages were read, %d are still being built", topic.reads, len(s.builder.inflight.pages))
		}
	})
}

// A build does not wait for one that waits for a slot: both could wait for ever.
func TestBuildsThatHaveNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(24)
		s := serveTopic(t, topic)
		key := pageKey{feed: s.cfg, id: pageID{"e0", 3, 1}}
		announced := s.builder.inflight.announce(key)
		s.get(t, "/pages/e0-3-2").want(t, 200)
		s.builder.inflight.end(key, announced)

		// The end of an old build is not that of a new one.
		next := s.builder.inflight.announce(key)
		next.started.Store(true)
		s.builder.inflight.end(key, announced)
		if s.builder.inflight.started(key) != next {
			t.Error("the new build has ended with the old one")
		}
		s.builder.inflight.end(key, next)
	})
}
