package kafka

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"unicode/utf8"
	"unsafe"

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

// Upper bounds, in bytes, of the overhead of a batch with one record, of a record, and of a
// header. The limit of a topic applies to compressed batches; the limit of kgo applies before
// compression.
const (
	batchOverhead  = 128
	recordOverhead = 32
	headerOverhead = 10
)

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
		addedHeaders + len(m.topic.Feed) + len(e.ID) + len(e.Page) + len(e.Mark) + len(e.Made) + len(e.Trace)
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

// commitRecords has the records of one commit, and the memory for the next one's.
type commitRecords struct {
	entities []kgo.Record
	dead     []kgo.Record // of the dead letters
	headers  headerMemory // of all of them
	sequence int64        // of the last message with a number, or of the commits before
}

// spareRecords has the memory of commits that have ended, for the next commits of any feed. Until
// it was used again, it was half of the memory that a copy allocates. The garbage collector frees
// it when it has not been used for a while.
var spareRecords = sync.Pool{New: func() any { return new(commitRecords) }}

// release gives the memory to other commits. It is called after a commit that has succeeded:
// only then the producer has finished with every record. Otherwise the memory is left to the
// garbage collector.
func (c *commitRecords) release() {
	c.reset()
	spareRecords.Put(c)
}

// reset drops the records and the references to their entities, and keeps the memory.
func (c *commitRecords) reset() {
	clear(c.entities)
	clear(c.dead)
	clear(c.headers.list)
	c.entities, c.dead, c.headers.list = c.entities[:0], c.dead[:0], c.headers.list[:0]
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
			r, err := m.dead.makeRecord(*e, int64(m.largestBatch()), c)
			if err != nil {
				return nil, err
			}
			c.dead = append(c.dead, r)
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

// sequenceHeader is the header with the number of a message that has a mark, or whose topic has keys or dead
// letters, and of a checkpoint the header with the highest number so far. Each such message of the feed has
// a higher number than all before it, those among the dead letters included. The marks of an ID, and the
// newest messages of a commit, may be in several partitions: in one of the topic and in that of the dead
// letters, or in two of a topic with keys. Resume loads them in the order of their numbers. The timestamps of
// records come from several clocks, and those of a commit may be equal.
const sequenceHeader = "Feedbridge-Sequence"

// sequenceSize is an upper bound of the size of that header, in bytes.
const sequenceSize = headerOverhead + len(sequenceHeader) + 19

// isNumbered reports whether the message of an entity has a number.
func (m *recordMaker) isNumbered(e *feed.Entity) bool {
	return e.Mark != "" || m.topic.DeadLetters || m.key != nil
}

// appendSequence appends the next number to the headers of a message.
func (c *commitRecords) appendSequence(fields feed.Header) feed.Header {
	c.sequence++
	return append(fields, feed.Field{Name: sequenceHeader, Value: strconv.FormatInt(c.sequence, 10)})
}

// parseSequence returns the number in the headers of a record; 0 if there is none, which precedes
// all numbers.
func parseSequence(headers []kgo.RecordHeader) int64 {
	for _, h := range headers {
		if h.Key == sequenceHeader {
			n, _ := strconv.ParseInt(string(h.Value), 10, 64)
			return n
		}
	}
	return 0
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

// headerMemory has room for the headers of several records, so that a record needs no allocation
// of its own for them. The zero headerMemory is ready to use.
type headerMemory struct{ list []kgo.RecordHeader }

// minHeaders is the number of headers that are allocated at once, at least.
const minHeaders = 512

// convert returns fields as kgo has them. Their values share the memory of the fields, which kgo
// only reads.
func (m *headerMemory) convert(fields feed.Header) []kgo.RecordHeader {
	if cap(m.list)-len(m.list) < len(fields) {
		// The headers of earlier records stay where they are.
		m.list = make([]kgo.RecordHeader, 0, max(minHeaders, 2*cap(m.list), len(fields)))
	}
	first := len(m.list)
	for i := range fields {
		value := []byte{} // nil would be null
		if v := fields[i].Value; v != "" {
			value = unsafe.Slice(unsafe.StringData(v), len(v))
		}
		m.list = append(m.list, kgo.RecordHeader{Key: fields[i].Name, Value: value})
	}
	return m.list[first:len(m.list):len(m.list)]
}
