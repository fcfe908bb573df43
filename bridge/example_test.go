package bridge_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// letters is a feed of some entities. Its cursor is the number of those that were read.
type letters string

func (l letters) Next(_ context.Context, after feed.Cursor, _ feed.Limits) (feed.Batch, error) {
	n, _ := strconv.Atoi(string(after)) // the empty cursor is the beginning
	if n == len(l) {
		return feed.Batch{Cursor: after}, nil // nothing new
	}
	return feed.Batch{
		Entities: []feed.Entity{{ID: string(l[n]), Op: feed.Put}},
		Cursor:   feed.Cursor(strconv.Itoa(n + 1)),
		More:     n+1 < len(l),
	}, nil
}

func (letters) Release() {} // it holds nothing

// list is a topic. Each commit stores entities and the checkpoint together.
type list struct {
	mu       sync.Mutex
	entities []feed.Entity
	newest   checkpoint.Checkpoint
	commits  int // the fence: the number of the commit that the next one must follow
}

// listSink is one copy's sink on a list. It satisfies bridge.Sink.
type listSink struct {
	list *list
	seen int // the last commit that this sink knows
}

func (s *listSink) Resume(context.Context) (checkpoint.Checkpoint, error) {
	s.list.mu.Lock()
	defer s.list.mu.Unlock()
	s.seen = s.list.commits
	return s.list.newest, nil
}

func (s *listSink) Commit(_ context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	s.list.mu.Lock()
	defer s.list.mu.Unlock()
	if s.seen != s.list.commits {
		return checkpoint.ErrConflict
	}
	s.list.entities = append(s.list.entities, entities...)
	s.list.newest = cp
	s.list.commits++
	s.seen = s.list.commits
	return nil
}

// untilIdle ends a bridge when all of the feed is published.
type untilIdle struct{ end context.CancelFunc }

func (o untilIdle) Polled(feed.Batch, error, time.Duration) {}
func (o untilIdle) Processed(feed.Batch, time.Duration)     {}
func (o untilIdle) Entered(s bridge.Status) {
	if s.State == bridge.Idle {
		o.end()
	}
}

// copyFeed runs a bridge until all of the feed is in the topic.
func copyFeed(source feed.Source, topic *list) {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	b := &bridge.Bridge{
		Feed:   "letters",
		Writer: "example",
		Open: func(context.Context, string) (feed.Source, string, error) {
			return source, "letters", nil
		},
		Sink:     &listSink{list: topic},
		Every:    time.Minute,
		Log:      slog.New(slog.DiscardHandler),
		Observer: untilIdle{end},
	}
	stopped := make(chan struct{})
	b.Start(ctx, func() { close(stopped) })
	<-stopped
}

// A bridge copies a feed to a topic. A second one continues after the checkpoint.
func Example() {
	topic := &list{}
	copyFeed(letters("abc"), topic)
	fmt.Println(topic.newest.Count, "entities, the cursor is", string(topic.newest.Cursor))

	copyFeed(letters("abcde"), topic)
	for _, e := range topic.entities {
		fmt.Print(e.ID, " ")
	}
	// Output:
	// 3 entities, the cursor is 3
	// a b c d e
}
