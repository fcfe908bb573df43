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

// Upper bounds, in bytes, of the overhead of a batch with one record, of a record, and of a
// header. The limit of a topic applies to compressed batches; the limit of kgo applies before
// compression.
const (
	batchOverhead  = 128
	recordOverhead = 32
	headerOverhead = 10
)

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
	var buf [24]feed.Field
	return m.checkMessage(message.AppendHeader(buf[:0], m.topic.Feed, e), len(key), len(e.Body))
}

func (m *recordMaker) checkMessage(h feed.Header, key, body int) error {
	size := batchOverhead + recordOverhead + key + body
	for i := range h {
		// Header names are strings in Kafka, and its Java clients replace invalid UTF-8.
		if !utf8.ValidString(h[i].Name) {
			return fmt.Errorf("%w: %q: its name is not UTF-8", sink.ErrHeader, h[i].Name)
		}
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

// makeRecords returns the records of entities, and those of dead letters.
func (m *recordMaker) makeRecords(entities []feed.Entity) (records, dead []kgo.Record, err error) {
	records = make([]kgo.Record, 0, len(entities))
	superseded := supersededDead(entities)
	var fields feed.Header
	for i := range entities {
		e := &entities[i]
		if e.Dead != nil {
			letter := *e
			if superseded[i] {
				letter.Mark = ""
			}
			r, err := m.dead.makeRecord(letter, int64(m.largestBatch()))
			if err != nil {
				return nil, nil, err
			}
			dead = append(dead, r)
			continue
		}
		fields = message.AppendHeader(fields[:0], m.topic.Feed, *e)
		key, err := m.entityKey(*e)
		if err == nil {
			err = m.checkMessage(fields, len(key), len(e.Body))
		}
		if err != nil {
			// The gate has checked it, but the topic's limit may be lower since.
			return nil, nil, feed.Permanent(fmt.Errorf("entity %q: %w", e.ID, err))
		}
		r := kgo.Record{Topic: m.topic.Name, Partition: int32(m.topic.Partition), Key: key, Value: m.messageValue(e), Headers: recordHeaders(fields)}
		records = append(records, r)
	}
	return records, dead, nil
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

// recordHeaders returns fields as kgo has them, in two allocations.
func recordHeaders(fields feed.Header) []kgo.RecordHeader {
	size := 0
	for _, f := range fields {
		size += len(f.Value)
	}
	values := make([]byte, 0, size)
	list := make([]kgo.RecordHeader, len(fields))
	for i, f := range fields {
		from := len(values)
		values = append(values, f.Value...)
		list[i] = kgo.RecordHeader{Key: f.Name, Value: values[from:len(values):len(values)]}
	}
	return list
}
