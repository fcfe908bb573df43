package kafka

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// recordMaker makes records of entities. It is safe for concurrent use.
type recordMaker struct {
	topic  Topic
	key    keyer        // nil if there are no keys
	broker string       // for errors
	dead   *deadLetters // nil if they are not configured
	// limit is the largest batch of records that the topic takes, in bytes; 0 while it is unknown.
	limit atomic.Int64
}

// addedHeaders is an upper bound of the size of the headers that are added to those of an entity, in
// bytes, without the values that the entity and the feed have.
const addedHeaders = 500

// largestRequest is the largest batch that kgo makes, in bytes.
const largestRequest = 64 << 20

// largestBatch returns the smaller one of the topic's and kgo's limits on a batch, in bytes.
func (m *recordMaker) largestBatch() int32 {
	return int32(min(max(m.limit.Load(), 512), largestRequest))
}

// checkEntity returns an error for an entity that cannot be published as it is.
func (m *recordMaker) checkEntity(e feed.Entity) error {
	key, err := m.entityKey(e)
	if err != nil {
		return err
	}
	// most is an upper bound of the size of the message.
	most := batchOverhead + recordOverhead + len(key) + len(e.Body) +
		addedHeaders + len(m.topic.Feed) + len(e.ID) + len(e.Page) + len(e.Mark) + len(e.Made)
	for i := range e.Header {
		f := &e.Header[i]
		// Header names are strings in Kafka, and its Java clients replace invalid UTF-8.
		if !utf8.ValidString(f.Name) {
			return fmt.Errorf("%w: %q: its name is not UTF-8", sink.ErrHeader, f.Name)
		}
		// The name may be escaped. A well-known one is never, and may be listed in message.Names,
		// which takes fewer bytes than message.Escape.
		most += headerOverhead + len(message.Escape) + len(f.Name) + len(f.Value)
	}
	if int64(most) <= m.limit.Load() && m.topic.Events == nil {
		return nil // fast path: it fits, and no headers are made
	}
	var buf [32]feed.Field
	return m.checkSize(message.AppendEvent(buf[:0], m.topic.Feed, e, m.topic.Events, 0), len(key), &e)
}

// checkSize returns an error if the message of e with these headers, and a number if it has one, is too
// large for the topic.
func (m *recordMaker) checkSize(h feed.Header, key int, e *feed.Entity) error {
	size := batchOverhead + recordOverhead + key + len(e.Body)
	if m.isNumbered(e) {
		size += sequenceSize
	}
	for i := range h {
		size += headerOverhead + len(h[i].Name) + len(h[i].Value)
	}
	if limit := m.limit.Load(); limit > 0 && int64(size) > limit {
		return fmt.Errorf("%w: it has %d bytes with its headers, and the topic takes %d; run 'kafka-configs.sh --bootstrap-server %s --alter --topic %s "+
			"--add-config max.message.bytes=%d'", sink.ErrTooLarge, size, limit, m.broker, m.topic.Name, 2*size)
	}
	return nil
}

// entityKey returns an entity's key, nil for none.
func (m *recordMaker) entityKey(e feed.Entity) ([]byte, error) {
	if m.key == nil {
		return nil, nil
	}
	key, err := m.key(e)
	if err == nil {
		return key, nil
	}
	switch m.topic.MissingKey {
	case KeyNull:
		return nil, nil
	case KeyDeadLetter:
		return nil, fmt.Errorf("%w: %w", sink.ErrNoKey, err)
	}
	return nil, fmt.Errorf("it has no key: %w; correct the feed or its \"key\", or set \"missing_key: 'null'\" to publish such entities without one, or \"missing_key: dead-letter\" to keep them in a topic of their own", err)
}

// makeRecords returns the records of entities, which follow the message with the number sequence and the
// entities that were published before, which are that many. They refer to the memory of the entities.
func (m *recordMaker) makeRecords(entities []feed.Entity, sequence int64, published uint64) (*commitRecords, error) {
	c := spareRecords.Get().(*commitRecords)
	c.entities, c.sequence = slices.Grow(c.entities, len(entities)), sequence
	var fields feed.Header
	for i := range entities {
		e := &entities[i]
		if e.Dead != nil {
			c.dead = append(c.dead, m.dead.makeRecord(*e, int64(m.largestBatch()), c))
			continue
		}
		published++
		fields = message.AppendEvent(fields[:0], m.topic.Feed, *e, m.topic.Events, published)
		key, err := m.entityKey(*e)
		if err == nil {
			err = m.checkSize(fields, len(key), e)
		}
		if err != nil {
			// The gate has called checkEntity, but the topic's limit may be lower since.
			return nil, feed.Permanent(fmt.Errorf("entity %q: %w", e.ID, err))
		}
		if m.isNumbered(e) {
			fields = c.appendSequence(fields)
		}
		r := kgo.Record{Topic: m.topic.Name, Partition: int32(m.topic.Partition), Key: key, Value: m.messageValue(e), Headers: c.headers.convert(fields)}
		c.entities = append(c.entities, r)
	}
	return c, nil
}

// freeStored returns a function that frees the memory of an entity when the n-th of the records is
// acknowledged. Nothing refers to that memory any more:
//   - kgo writes a batch into a request of its own memory, again for each retry, under a lock, and drops its
//     records before it reports them. After an error of the commit nothing is freed.
//   - A transaction that is aborted is not sent again: after Resume its entities are read again.
//   - The rest of the commit uses the offsets of records, and IDs and marks, which Free keeps.
//
// It is nil if records may be acknowledged in another order, so that one before the n-th may be sent again:
// by key they belong to several partitions, and dead letters are sent last.
func (m *recordMaker) freeStored(entities []feed.Entity, records *commitRecords) func(n int) {
	if m.key != nil || len(records.dead) > 0 {
		return nil
	}
	return func(n int) {
		if free := entities[n].Free; free != nil {
			free()
		}
	}
}

// isNumbered reports whether the message of an entity has a number.
func (m *recordMaker) isNumbered(e *feed.Entity) bool {
	return e.Mark != "" || m.topic.DeadLetters || m.key != nil
}

// messageValue returns the value of an entity's message: null only for a tombstone.
func (m *recordMaker) messageValue(e *feed.Entity) []byte {
	switch {
	case e.Op == feed.Delete && m.topic.Delete == DeleteTombstone:
		return nil
	case e.Body == nil:
		return []byte{}
	}
	return e.Body
}
