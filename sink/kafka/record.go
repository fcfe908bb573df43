package kafka

import (
	"fmt"
	"slices"
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
	times  *recordTimes
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

// addedHeaders is an upper bound of the size of the headers that [message.Header] adds to those of
// an entity, in bytes, without the values that the entity and the feed have.
const addedHeaders = 300

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
		addedHeaders + len(m.topic.Feed) + len(e.ID) + len(e.Page) + len(e.Mark) + len(e.Trace)
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
	if int64(most) <= m.limit.Load() {
		return nil // as nearly always, without the work of making the headers
	}
	var buf [24]feed.Field
	return m.checkSize(message.AppendHeader(buf[:0], m.topic.Feed, e), len(key), len(e.Body))
}

// checkSize returns an error if a message with these headers is too large for the topic.
func (m *recordMaker) checkSize(h feed.Header, key, body int) error {
	size := batchOverhead + recordOverhead + key + body
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

// makeRecords returns the records of entities. They refer to the memory of the entities.
func (m *recordMaker) makeRecords(entities []feed.Entity) (*commitRecords, error) {
	c := spareRecords.Get().(*commitRecords)
	c.entities = slices.Grow(c.entities, len(entities))
	superseded := supersededDead(entities)
	var fields feed.Header
	for i := range entities {
		e := &entities[i]
		if e.Dead != nil {
			letter := *e
			if superseded[i] {
				letter.Mark = ""
			}
			r, err := m.dead.makeRecord(letter, int64(m.largestBatch()), &c.headers)
			if err != nil {
				return nil, err
			}
			c.dead = append(c.dead, r)
			continue
		}
		fields = message.AppendHeader(fields[:0], m.topic.Feed, *e)
		key, err := m.entityKey(*e)
		if err == nil {
			err = m.checkSize(fields, len(key), len(e.Body))
		}
		if err != nil {
			// The gate has called checkEntity, but the topic's limit may be lower since.
			return nil, feed.Permanent(fmt.Errorf("entity %q: %w", e.ID, err))
		}
		r := kgo.Record{Topic: m.topic.Name, Partition: int32(m.topic.Partition), Key: key, Value: m.messageValue(e), Headers: c.headers.convert(fields)}
		c.entities = append(c.entities, r)
	}
	return c, nil
}

// setTimes sets the timestamps of the records of entities that are dead letters, or of those that are
// not. A later version of an entity has a later one. It is left zero, for the time of sending, unless
// the entities have marks that may be in several partitions.
//
// It is called right before the records are sent, because the producer gives up records whose
// timestamps are older than the timeout. A dead letter with a mark is newer than all versions of its
// entity in the topic, so dead letters may have later timestamps than the records of a commit that
// are sent before them.
func (m *recordMaker) setTimes(records []kgo.Record, entities []feed.Entity, dead bool) {
	marked := func(e feed.Entity) bool { return e.Mark != "" }
	if len(records) == 0 || m.dead == nil && m.key == nil || !slices.ContainsFunc(entities, marked) {
		return
	}
	at, seen := m.times.next(), make(map[string]bool, len(records))
	for i := range entities {
		e := &entities[i]
		if (e.Dead != nil) != dead {
			continue
		}
		if seen[e.ID] {
			at = m.times.next()
			clear(seen)
		}
		seen[e.ID] = true
		records[0].Timestamp, records = at, records[1:]
	}
}

// supersededDead returns the indexes of the dead letters that are followed by a newer version of
// their entity in the topic. Resume would load the newer mark first, because a commit sends its
// dead letters after its entities, and the source would publish the newer version again. So
// these dead letters have no mark.
func supersededDead(entities []feed.Entity) map[int]bool {
	if feed.CountDead(entities) == 0 {
		return nil
	}
	superseded, newer := map[int]bool{}, map[string]bool{}
	for i, e := range slices.Backward(entities) {
		if e.Dead == nil {
			newer[e.ID] = true
		} else if newer[e.ID] {
			superseded[i] = true
		}
	}
	return superseded
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
