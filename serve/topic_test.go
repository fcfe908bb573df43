package serve

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

// memoryTopic is a topic that tests fill, cut, break and create again.
type memoryTopic struct {
	mu      sync.Mutex
	records []feed.Record // in the order of their positions
	span    feed.Span
	made    int // how often it was created again
	gone    bool
	away    bool
	spans   int
	read    int // records that were read
	reads   int
	// during is called in the middle of the next reading.
	during func()
	// slow holds readings up until it is closed.
	slow chan struct{}
	// failing counts the readings that will fail.
	failing int
}

func newTopic() *memoryTopic { return &memoryTopic{span: feed.Span{Epoch: "e0"}} }

var errAway = errors.New("the bus is away")

func (t *memoryTopic) Span(context.Context) (feed.Span, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans++
	switch {
	case t.away:
		return feed.Span{}, errAway
	case t.gone:
		return feed.Span{}, fmt.Errorf("topic %q: %w", "memory", feed.ErrNoTopic)
	}
	return t.span, nil
}

func (t *memoryTopic) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		t.mu.Lock()
		t.reads++
		during, slow := t.during, t.slow
		t.during = nil
		if to > t.span.End {
			panic(fmt.Sprintf("read to %d of a topic that ends at %d", to, t.span.End))
		}
		t.mu.Unlock()
		if slow != nil {
			select {
			case <-slow:
			case <-ctx.Done():
				yield(feed.Record{}, ctx.Err())
				return
			}
		}
		t.mu.Lock()
		fail := t.failing > 0
		t.failing = max(0, t.failing-1)
		t.mu.Unlock()
		if fail {
			yield(feed.Record{}, errAway)
			return
		}
		for n, at := 0, from; ; n++ {
			if n == 1 && during != nil {
				during()
			}
			t.mu.Lock()
			i, _ := slices.BinarySearchFunc(t.records, at, func(r feed.Record, at uint64) int {
				return int(int64(r.Position) - int64(at))
			})
			var err error
			if t.away {
				err = errAway
			} else {
				err = ctx.Err()
			}
			var r feed.Record
			ok := i < len(t.records) && t.records[i].Position < to
			if ok {
				r = t.records[i]
				t.read++
			}
			t.mu.Unlock()
			if err != nil {
				yield(feed.Record{}, err)
				return
			}
			if !ok || !yield(r, nil) {
				return
			}
			at = r.Position + 1
		}
	}
}

// add appends a message.
func (t *memoryTopic) add(r feed.Record) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Position = t.span.End
	t.records = append(t.records, r)
	t.span.End++
	return r.Position
}

// skip passes positions without messages.
func (t *memoryTopic) skip(n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.span.End += n
}

// trim deletes the messages before a position, as retention does.
func (t *memoryTopic) trim(first uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.span.First = max(t.span.First, min(first, t.span.End))
	t.records = slices.DeleteFunc(t.records, func(r feed.Record) bool { return r.Position < first })
}

// renew creates the topic again, without messages.
func (t *memoryTopic) renew() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made++
	t.records, t.span, t.gone = nil, feed.Span{Epoch: fmt.Sprintf("e%d", t.made)}, false
}

func (t *memoryTopic) set(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
}

// noon is the time at which the bus stored the first message of tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// messageOf returns a message as feedbridge writes it.
func messageOf(id string, op feed.Operation, modified time.Time, body string, header ...feed.Field) feed.Record {
	e := feed.Entity{ID: id, Op: op, Modified: modified, Body: []byte(body), Page: "http://x.example/1", Header: header}
	if _, ok := e.Header.Get("Content-Type"); !ok {
		e.Header = append(e.Header, feed.Field{Name: "Content-Type", Value: "text/plain"})
	}
	return feed.Record{Time: modified.Add(1500 * time.Millisecond), Header: message.Header("orders", e), Body: e.Body}
}

// numbered are n messages, a second apart.
func (t *memoryTopic) numbered(n int) {
	for range n {
		i := int(t.span.End)
		t.add(messageOf(fmt.Sprintf("m%d@x", i), feed.Put, noon.Add(time.Duration(i)*time.Second), fmt.Sprintf("body %d", i)))
	}
}

// numberedTopic returns a topic of n numbered messages.
func numberedTopic(n int) *memoryTopic {
	topic := newTopic()
	topic.numbered(n)
	return topic
}
