package nats

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/feedbridge/feedbridge/feed"
)

const (
	// stagedFor is the time for which a staged batch may be used. A server drops a batch
	// in which it gets nothing for 10 s.
	stagedFor = 5 * time.Second
	// stagingPause is the time without staging after a commit has failed, or others have stored
	// messages in the stream.
	stagingPause = time.Minute
	// A server has at most 50 incomplete batches in a stream, and 1,000 in all. A staged
	// batch stays incomplete from one commit to the next, so with many sinks nothing is
	// staged.
	stagingSinks        = 100
	stagingSinksAStream = 10
)

// sinkCounts counts the open sinks by stream, and has the last look at each of the streams. It is safe
// for concurrent use.
type sinkCounts struct {
	mu       sync.Mutex
	byStream map[string]int
	looks    map[string]look // those that were answered
}

func newSinkCounts() *sinkCounts {
	return &sinkCounts{byStream: map[string]int{}, looks: map[string]look{}}
}

// increment counts one more sink of a stream.
func (c *sinkCounts) increment(stream string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byStream[stream]++
}

// decrement counts one sink less of a stream.
func (c *sinkCounts) decrement(stream string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byStream[stream]--; c.byStream[stream] == 0 {
		delete(c.byStream, stream)
		delete(c.looks, stream)
	}
}

// recordLook compares a look with the one before it, and keeps it while the stream has an open sink.
func (c *sinkCounts) recordLook(stream string, now look) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.looks[stream]
	if now.losses = before.losses; now.lostSince(before) {
		now.losses++
	}
	if c.byStream[stream] > 0 {
		c.looks[stream] = now
	}
}

// lastLook returns the last look at a stream that was answered; the zero look if there was none.
func (c *sinkCounts) lastLook(stream string) look {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks[stream]
}

// streams returns the streams that have an open sink, in an order that does not change.
func (c *sinkCounts) streams() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.byStream))
}

// allowStaging reports whether there are few enough sinks for each to have an incomplete
// batch at all times.
func (c *sinkCounts) allowStaging(stream string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := 0
	for _, n := range c.byStream {
		all += n
	}
	return all <= stagingSinks && c.byStream[stream] <= stagingSinksAStream
}

// staging sends the entities of the next commit while the server stores the current one.
type staging struct {
	publisher *publisher
	sinks     *sinkCounts
	// failed holds the time of the last failed commit, or of the last batch that was sent ahead in
	// vain.
	failed time.Time
}

// isAllowed reports whether entities may be sent ahead now.
func (s *staging) isAllowed() bool {
	return s.sinks.allowStaging(s.publisher.topic.Stream.Name) && time.Since(s.failed) > stagingPause
}

// sendAhead sends entities ahead. It returns nil if there is nothing to use later; errors are
// ignored here, because the commit that publishes the entities will report them. first
// reports that the topic has never had an entity. end is the end of the topic after the commit
// that is being stored, if nothing else is stored in the stream.
func (s *staging) sendAhead(first bool, end topicEnd, entities []feed.Entity) *stagedBatch {
	if len(entities) == 0 || len(entities) > MaxEntities {
		return nil
	}
	ahead := &stagedBatch{nuid.Next(), entities, time.Now(), end}
	if s.publisher.sendEntities(ahead.id, first, end, entities) != nil {
		return nil
	}
	return ahead
}

// take returns the batch if it can be committed as these entities, behind the end of the topic, and
// else nil.
func (s *staging) take(ahead *stagedBatch, entities []feed.Entity, end topicEnd) *stagedBatch {
	switch {
	case !ahead.hasEntities(entities):
		return nil
	case ahead.end != end:
		// Others store messages in the stream, so that its sequences cannot be predicted.
		s.failed = time.Now()
		return nil
	}
	return ahead
}

// stagedBatch is a batch without its last message, which the server has received and not
// stored. It contains no checkpoint: a commit that is refused, or never made, leaves nothing of
// it in the stream.
type stagedBatch struct {
	id       string
	entities []feed.Entity
	at       time.Time
	end      topicEnd // of the topic in front of the batch, as it was predicted
}

// hasEntities reports whether a commit of these entities can use the batch. It compares the
// slices by identity: a caller does not write to entities between staging and commit.
func (s *stagedBatch) hasEntities(entities []feed.Entity) bool {
	return s != nil && len(entities) > 0 && len(s.entities) == len(entities) && &s.entities[0] == &entities[0] &&
		time.Since(s.at) < stagedFor
}
