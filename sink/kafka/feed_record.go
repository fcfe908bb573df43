package kafka

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
)

// The memory of a record and of a header, in bytes, without their contents.
const (
	recordMemory = 160
	fieldMemory  = 32
)

// toFeedRecords converts records of Kafka, and returns about how many bytes they hold. All fields
// share one piece of memory, and all values of headers another: with pieces for each record, a
// tenth of the work of serving a page was to allocate them.
func toFeedRecords(records []*kgo.Record) (list []feed.Record, bytes int64) {
	fields, size := 0, 0
	for _, r := range records {
		fields += len(r.Headers)
		for _, h := range r.Headers {
			size += len(h.Value)
			bytes += int64(len(h.Key))
		}
		bytes += int64(len(r.Key) + len(r.Value))
	}
	// The memory of the values was copied from that of the records.
	bytes += int64(len(records)*recordMemory + fields*fieldMemory + 2*size)

	list = make([]feed.Record, len(records))
	headers := make(feed.Header, 0, fields)
	var values strings.Builder
	values.Grow(size)
	for i, r := range records {
		first := len(headers)
		headers = appendFields(headers, &values, r.Headers)
		list[i] = feed.Record{
			Position: uint64(r.Offset), Time: r.Timestamp, Header: headers[first:len(headers):len(headers)], Body: r.Value, Key: r.Key, Tombstone: r.Value == nil,
		}
	}
	return list, bytes
}

// headerFields converts the headers of a record. The values share one piece of memory.
func headerFields(headers []kgo.RecordHeader) feed.Header {
	size := 0
	for _, h := range headers {
		size += len(h.Value)
	}
	var values strings.Builder
	values.Grow(size)
	return appendFields(make(feed.Header, 0, len(headers)), &values, headers)
}

// appendFields appends headers to list, and their values to values.
func appendFields(list feed.Header, values *strings.Builder, headers []kgo.RecordHeader) feed.Header {
	for _, h := range headers {
		from := values.Len()
		values.Write(h.Value)
		list = append(list, feed.Field{Name: h.Key, Value: values.String()[from:]})
	}
	return list
}
