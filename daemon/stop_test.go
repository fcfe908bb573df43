package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/limit"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// memoryTopic is a topic in memory that takes all entities.
type memoryTopic struct {
	topicSink
	memory *sinktest.MemorySink
}

func (m memoryTopic) IDs() *sink.IDs                    { return m.memory.IDs() }
func (m memoryTopic) Fits(e []feed.Entity) (int, error) { return len(e), nil }
func (m memoryTopic) Close()                            {}
func (m memoryTopic) Unchanged() time.Time              { return m.memory.Unchanged() }

func (m memoryTopic) RetentionLimits(context.Context) ([]string, error) { return nil, nil }

func (m memoryTopic) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	return m.memory.Resume(ctx)
}

func (m memoryTopic) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	return m.memory.Commit(ctx, entities, cp)
}

// While a bus does not answer, a thousand commits would take their turns for more than a minute. A feed
// that waits for its turn has sent nothing, so it stops at once.
func TestAFeedThatWaitsToCommitStops(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/atom+xml")
		_, _ = fmt.Fprint(w, `<feed xmlns="http://www.w3.org/2005/Atom"><id>f</id><title>t</title><updated>2026-03-01T10:00:00Z</updated><entry><id>a</id><title>t</title><updated>2026-03-01T10:00:00Z</updated></entry></feed>`)
	}))
	t.Cleanup(server.Close)
	log := slog.New(slog.DiscardHandler)
	var memory sinktest.Memory
	b := newBus("main", config.Bus{}, log)
	b.conn = &connection{
		watch: func(context.Context, func(topic, writer string)) {},
		close: func() {}, reconnected: func() context.Context { return nil },
		sink: func(string, config.Feed) topicSink { return memoryTopic{nil, memory.Open(sinktest.Faults{})} },
	}
	b.commitSlots = limit.New(0, 0) // taken by commits that never end
	read := make(chan struct{})
	budget := readahead.NewBudget(1 << 30)
	fs := newTestFeeds(log)
	fs.pipelines.reading, fs.pipelines.opts.Observer = readAhead{feed: 1 << 20, budget: budget}, polledObserver{read}
	f := config.Feed{Source: source.Defaults(), Format: "atom", Every: time.Minute, Syndication: syndication.Defaults().Settings}
	f.Source.URL = server.URL
	fs.startAll(t.Context(), map[string]*runningFeed{"news": fs.prepare("news", f, b)})
	<-read
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		awaitEnds(fs.stop([]string{"news"}), time.Hour)
	}()
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		t.Fatal("the feed does not stop")
	}
	if n := len(memory.Entities()); n != 0 {
		t.Errorf("the topic has %d entities of a commit that did not get its turn", n)
	}
}

// polledObserver closes a channel at the first poll that has found entities.
type polledObserver struct{ read chan struct{} }

func (o polledObserver) Polled(b feed.Batch, _ error, _ time.Duration) {
	if len(b.Entities) > 0 {
		close(o.read)
	}
}

func (polledObserver) Processed(feed.Batch, time.Duration) {}
func (polledObserver) Entered(bridge.Status)               {}
