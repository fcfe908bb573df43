package nats

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/internal/limit"
)

// openStreams are the streams that have an open sink. It is safe for concurrent use.
type openStreams struct {
	mu     sync.Mutex
	byName map[string]*openStream
}

// openStream is what the open sinks of a stream have in common. It is safe for concurrent use.
type openStream struct {
	name string
	all  *openStreams
	// sinks counts the open sinks. It is guarded by the mutex of all.
	sinks int
	// batches limits the atomic batches that are sent to the stream at a time.
	batches *limit.Limit
	// reported is set when the log says that the stream does not allow fast ingest.
	reported atomic.Bool

	mu   sync.Mutex // guards last
	last look
}

// look is a stream as its leader described it.
type look struct {
	at                   time.Time // before the request
	session              *session
	created, lastTime    time.Time
	first, last, entries uint64
	// config is a hash of the configuration.
	config uint64
	// losses counts the looks that showed less than the one before them.
	losses int
}

// open returns the stream with a name, for one more sink, which closes it.
func (s *openStreams) open(name string) *openStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName == nil {
		s.byName = map[string]*openStream{}
	}
	o := s.byName[name]
	if o == nil {
		o = &openStream{name: name, all: s, batches: limit.New(limit.Batches, 0)}
		s.byName[name] = o
	}
	o.sinks++
	return o
}

// list returns the streams in an order that does not change.
func (s *openStreams) list() []*openStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.byName), func(a, b *openStream) int { return cmp.Compare(a.name, b.name) })
}

// close is called when a sink of the stream is closed.
func (o *openStream) close() {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if o.sinks--; o.sinks == 0 {
		delete(o.all.byName, o.name)
	}
}

// recordLook compares a look with the one before it, and keeps it.
func (o *openStream) recordLook(now look) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.losses = o.last.losses; now.lostSince(o.last) {
		now.losses++
	}
	o.last = now
}

// lastLook returns the last look that was answered; the zero look if there was none.
func (o *openStream) lastLook() look {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// lostSince reports whether a stream that a look showed has lost messages other than its oldest ones
// until another look.
func (l look) lostSince(before look) bool {
	return l.last < before.last ||
		l.last == before.last && (!l.lastTime.Equal(before.lastTime) || l.first == before.first && l.entries != before.entries)
}
