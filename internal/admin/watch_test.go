package admin_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
)

// upstream is a feed of n entities, ten to a page, each of which takes a
// second to read. Its cursor is as long as the entities before it are many.
type upstream struct {
	mu  sync.Mutex
	n   int
	err error
}

func (u *upstream) set(n int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n, u.err = n, err
}

func (u *upstream) Next(_ context.Context, after feed.Cursor, _ feed.Limits) (feed.Batch, error) {
	time.Sleep(time.Second)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return feed.Batch{}, u.err
	}
	to := min(len(after)+10, u.n)
	b := feed.Batch{Cursor: bytes.Repeat([]byte("x"), to), More: to < u.n, Newest: minute(u.n)}
	for i := len(after); i < to; i++ {
		b.Entities = append(b.Entities, feed.Entity{ID: fmt.Sprint(i), Modified: minute(i + 1)})
	}
	return b, nil
}

func (u *upstream) Release() {}

func minute(i int) time.Time { return time.Date(1999, 1, 1, 0, i, 0, 0, time.UTC) }

// topic is a sink whose commits take five seconds.
type topic struct {
	mu  sync.Mutex
	cp  checkpoint.Checkpoint
	err error
}

func (s *topic) set(cp checkpoint.Checkpoint, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cp, s.err = cp, err
}

func (s *topic) Resume(context.Context) (checkpoint.Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cp, nil
}

func (s *topic) Commit(_ context.Context, _ []feed.Entity, cp checkpoint.Checkpoint) error {
	time.Sleep(5 * time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.cp = cp
	return nil
}

// The status of a real bridge. The other tests simulate the bridge.
func TestWatchesABridge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		source, sink := &upstream{n: 30}, &topic{}
		b := &bridge.Bridge{
			Feed: "orders", Writer: own, Sink: sink,
			Open:  func(context.Context, string) (feed.Source, string, error) { return source, "datareplication", nil },
			Every: 10 * time.Second, Limits: feed.Limits{Entities: 10}, ReadAhead: 1 << 20,
			Log: slog.New(slog.DiscardHandler), Observer: addOrders(s),
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		b.Start(ctx, func() { close(stopped) })

		// The bridge's waits have jitter, so each step takes as long as it does.
		await := func(explanation string, lag any) {
			t.Helper()
			for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
				synctest.Wait()
				row := row(t, s)
				got := row["explanation"].(string)
				if !strings.HasPrefix(got, explanation) {
					if time.Since(start) < 5*time.Minute {
						continue
					}
					t.Fatalf("after 5m it still says %q, not %q", got, explanation)
				}
				if got := row["lag"].(map[string]any)["seconds"]; got != lag {
					t.Errorf("%s: the lag is %v, want %v", explanation, got, lag)
				}
				return
			}
		}
		await("polling: nothing is published yet", nil)
		await("catching up: nothing is published yet, and it is not known how much is left", nil)
		await("catching up: 10 entities are published, the last commit was 5s ago, 20m behind", 20*60.0)
		await("catching up: 20 entities are published, the last commit was 5s ago, 10m behind", 10*60.0)
		await("caught up: 30 entities are published, the last commit was 5s ago, the next poll is in", 0.0)
		wantReasons(t, s)

		source.set(35, nil)
		await("polling: 30 entities are published", 0.0)
		await("catching up: 30 entities are published", 5*60.0)
		await("caught up: 35 entities are published", 0.0)

		source.set(0, errDown)
		await("retrying in ", nil)

		source.set(40, nil)
		sink.set(checkpoint.Checkpoint{
			Feed: "orders", Source: "datareplication", Cursor: bytes.Repeat([]byte("x"), 36), Count: 36, At: time.Now(), Writer: "host-12",
		}, fmt.Errorf("seq 7: %w", checkpoint.ErrConflict))
		await("standing by: host-12 publishes this feed", nil)
		wantReasons(t, s)
		counts(t, s, "feedbridge_topic_entities", "\nfeedbridge_topic_entities{feed=\"orders\"} 36\n")
		counts(t, s, "feedbridge_entities_published_total", "\nfeedbridge_entities_published_total{feed=\"orders\"} 35\n")

		cancel()
		<-stopped
		await("stopped: this copy is shutting down, 36 entities are published", nil)
		wantReasons(t, s, "feed orders: stopping")
	})
}

// The bridge calls from two goroutines, and its source from others, while
// anyone looks.
func TestConcurrentStatusRequests(t *testing.T) {
	t.Parallel()
	s := newServer(admin.Bus{Name: "main", Check: func(context.Context) error { return nil }})
	f := addOrders(s)
	b := batch("a", 3, true)
	b.Violations = []feed.Violation{{Kind: "empty_page"}}
	broken := feed.Permanent(&feed.Violation{Kind: "loop"})

	looking, stop := context.WithCancel(t.Context())
	var workers, lookers sync.WaitGroup
	processed := 0
	for _, work := range []func(){
		func() {
			f.Polled(b, nil, time.Millisecond)
			f.Polled(feed.Batch{}, broken, time.Millisecond)
		},
		func() {
			enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
			f.Processed(b, time.Millisecond)
			enter(f, bridge.Retrying, checkpoint.Checkpoint{}, time.Second, errDown)
			processed++
		},
		func() { f.Exchanged("GET", 200, nil, time.Millisecond) },
		func() { f.Exchanged("HEAD", 0, errDown, time.Millisecond) },
	} {
		workers.Go(func() {
			for looking.Err() == nil {
				work()
			}
		})
	}
	for _, path := range []string{"/status", "/status/orders", "/readyz", "/metrics"} {
		lookers.Go(func() {
			for i := range 20 {
				getWith(t.Context(), s, path)
				s.AddFeed(admin.FeedOptions{Name: fmt.Sprint(path, i)})
			}
		})
	}
	lookers.Wait()
	stop()
	workers.Wait()
	if got := row(t, s)["published"]; got != float64(3*processed) {
		t.Errorf("published is %v, want %d", got, 3*processed)
	}
}
