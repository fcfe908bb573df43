package bridge_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
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
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

var _ bridge.Sink = (*sinktest.MemorySink)(nil)

var discard = slog.New(slog.DiscardHandler)

type nobody struct{}

func (nobody) Polled(feed.Batch, error, time.Duration) {}
func (nobody) Processed(feed.Batch, time.Duration)     {}
func (nobody) Entered(bridge.Status)                   {}

// bubbled returns a test that runs another one in a bubble.
func bubbled(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// diary is an observer that remembers the states.
type diary struct {
	nobody
	mu     sync.Mutex
	states []bridge.Status
}

func (d *diary) Entered(s bridge.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.states = append(d.states, s)
}

func (d *diary) last() bridge.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.states[len(d.states)-1]
}

func (d *diary) count(state bridge.State) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, s := range d.states {
		if s.State == state {
			n++
		}
	}
	return n
}

// sourceFunc is a source.
type sourceFunc func(ctx context.Context, after feed.Cursor) (feed.Batch, error)

func (f sourceFunc) Next(ctx context.Context, after feed.Cursor, _ feed.Limits) (feed.Batch, error) {
	return f(ctx, after)
}

func (sourceFunc) Release() {}

// upTo is a feed of the numbers below n, in batches of one.
func upTo(n int) sourceFunc {
	return func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
		at := number(after)
		if at >= n {
			return feed.Batch{Cursor: after}, nil
		}
		return feed.Batch{Entities: entities(at, at+1), Cursor: cursorAt(at + 1), More: at+1 < n}, nil
	}
}

func number(c feed.Cursor) int {
	n, _ := strconv.Atoi(string(c))
	return n
}

func cursorAt(n int) feed.Cursor { return feed.Cursor(strconv.Itoa(n)) }

// start starts the bridge. stop returns when it has stopped.
func start(t *testing.T, b *bridge.Bridge) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	b.Start(ctx, func() { close(done) })
	return func() { cancel(); <-done }
}

// countingSink counts commits and their entities.
type countingSink struct {
	bridge.Sink
	commits []int
	resumes atomic.Int32
}

func (c *countingSink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	c.resumes.Add(1)
	return c.Sink.Resume(ctx)
}

func (c *countingSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	c.commits = append(c.commits, len(entities))
	return c.Sink.Commit(ctx, entities, cp)
}

func TestAnIdleCopyCommitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		sink := &countingSink{Sink: topic.Open(sinktest.Faults{})}
		stop := start(t, newBridge(upTo(3), sink))
		time.Sleep(time.Hour)
		stop()
		if got := len(topic.Entities()); got != 3 {
			t.Errorf("the topic has %d entities, want 3", got)
		}
		if len(sink.commits) > 3 {
			t.Errorf("%d commits for 3 entities and an hour of nothing", len(sink.commits))
		}
	})
}

func TestMoreWithoutMovingDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		calls := 0
		stop := start(t, newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			calls++
			return feed.Batch{Cursor: after, More: true}, nil
		}), topic.Open(sinktest.Faults{})))
		time.Sleep(time.Minute)
		stop()
		if calls > 20 {
			t.Errorf("%d calls in a minute, at 5s each", calls)
		}
	})
}

func TestACursorThatMovesWithoutEntitiesIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		stop := start(t, newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			if number(after) < 5 {
				return feed.Batch{Cursor: cursorAt(number(after) + 1), More: true}, nil
			}
			return feed.Batch{Cursor: after}, nil
		}), topic.Open(sinktest.Faults{})))
		time.Sleep(time.Second)
		stop()
		if cp := topic.Checkpoint(); string(cp.Cursor) != "5" || cp.Count != 0 {
			t.Errorf("the checkpoint is %s with %d entities, want 5 with 0", cp.Cursor, cp.Count)
		}
	})
}

// A feed whose server gives every answer another validator does not make a commit of each poll,
// and entities behind the stored cursor are not lost.
func TestEquivalentCursorsAreStoredOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		polls := 0
		src := sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			polls++
			place, _, _ := strings.Cut(string(after), " ")
			if polls == 200 {
				return feed.Batch{Cursor: feed.Cursor("behind"), Entities: []feed.Entity{{ID: "1"}}}, nil
			}
			b := feed.Batch{Cursor: feed.Cursor(fmt.Sprintf("%s validator-%d", cmp.Or(place, "begin"), polls))}
			if len(after) > 0 {
				b.Equivalent = after
			}
			return b, nil
		})
		snk := &tallySink{Sink: topic.Open(sinktest.Faults{})}
		b := newBridge(src, snk)
		b.Every = time.Second
		stop := start(t, b)
		time.Sleep(10*time.Minute + 30*time.Second)
		stop()
		// The first, that with the entity, and about one a minute.
		if n := snk.commits.Load(); n < 8 || n > 13 {
			t.Errorf("%d commits in 10 minutes, and %d polls", n, polls)
		}
		if cp := topic.Checkpoint(); cp.Count != 1 || !strings.HasPrefix(string(cp.Cursor), "behind") {
			t.Errorf("the checkpoint is %s with %d entities", cp.Cursor, cp.Count)
		}
	})
}

// tallySink counts commits.
type tallySink struct {
	bridge.Sink
	commits atomic.Int64
}

func (s *tallySink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	s.commits.Add(1)
	return s.Sink.Commit(ctx, entities, cp)
}

// slowSink takes its time to commit.
type slowSink struct {
	bridge.Sink
	begun chan struct{}
	takes time.Duration
}

func (s *slowSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	select {
	case <-time.After(s.takes):
		return s.Sink.Commit(ctx, entities, cp)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAStopLetsTheCommitInFlightFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		sink := &slowSink{topic.Open(sinktest.Faults{}), make(chan struct{}, 1), 10 * time.Second}
		b := newBridge(upTo(1000), sink)
		b.Limits.Entities = 1
		stop := start(t, b)
		<-sink.begun
		stop()
		wantEntities(t, &topic, 1)
	})
}
