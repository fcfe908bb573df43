package kafka

import (
	"strconv"
	"sync"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
)

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

// Upper bounds, in bytes, of the overhead of a batch with one record, of a record, and of a
// header. The limit of a topic applies to compressed batches; the limit of kgo applies before
// compression.
const (
	batchOverhead  = 128
	recordOverhead = 32
	headerOverhead = 10
)

// sequenceHeader is the header with the number of a message that has a mark, or whose topic has keys or dead
// letters, and of a checkpoint the header with the highest number so far. Each such message of the feed has
// a higher number than all before it, those among the dead letters included. The marks of an ID, and the
// newest messages of a commit, may be in several partitions: in one of the topic and in that of the dead
// letters, or in two of a topic with keys. Resume loads them in the order of their numbers. The timestamps of
// records come from several clocks, and those of a commit may be equal.
const sequenceHeader = "Feedbridge-Sequence"

// sequenceSize is an upper bound of the size of that header, in bytes.
const sequenceSize = headerOverhead + len(sequenceHeader) + 19

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
