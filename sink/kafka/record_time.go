package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordTimes makes the timestamps of records whose order must be known across partitions. The
// marks of an ID may be in several partitions: in one of the topic and in that of the
// dead letters, or in two of a topic with keys. Resume loads them in the order of their
// timestamps. So no timestamp is earlier than that of a record that was committed before, even
// if the clock of the copy that committed it was ahead of the one of this copy, and a commit with two
// versions of an entity has two timestamps.
//
// A topic whose message.timestamp.type is LogAppendTime has the timestamps of its brokers
// instead.
type recordTimes struct {
	now    func() time.Time
	newest time.Time // of the feed's records that were loaded or made
}

// noteRecord notes the timestamp of a record of the feed.
func (t *recordTimes) noteRecord(r *kgo.Record) {
	if r.Timestamp.After(t.newest) {
		t.newest = r.Timestamp
	}
}

// next returns a timestamp that is later than all others.
func (t *recordTimes) next() time.Time {
	at := t.now().Truncate(time.Millisecond) // Kafka has milliseconds
	if !at.After(t.newest) {
		at = t.newest.Add(time.Millisecond)
	}
	t.newest = at
	return at
}
