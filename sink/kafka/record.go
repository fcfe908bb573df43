package kafka

import (
	"fmt"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// What a batch adds to its one record, a record to its parts, and a header to
// its name and value, in bytes, at most. The limit of a topic is on batches as
// they are stored, compressed; franz-go's own is on those before.
const (
	batchOverhead  = 128
	recordOverhead = 32
	headerOverhead = 10
)

// Fits returns an error for an entity that cannot be published as it is: one
// that is too large with its headers, which matches [sink.ErrTooLarge], or one
// that has no key though it needs one. It is safe for concurrent use.
func (s *Sink) Fits(e feed.Entity) error {
	key, err := s.keyOf(e)
	if err != nil {
		return err
	}
	var buf [24]feed.Field
	return s.fits(message.AppendHeader(buf[:0], s.topic.Feed, e), len(key), len(e.Body))
}

// fits is [Sink.Fits] for a message.
func (s *Sink) fits(h feed.Header, key, body int) error {
	size := batchOverhead + recordOverhead + key + body
	for i := range h {
		// Names are strings in Kafka, and its clients in Java replace what is not.
		if !utf8.ValidString(h[i].Name) {
			return fmt.Errorf("the header %q cannot be carried by Kafka: its name is not UTF-8", h[i].Name)
		}
		size += headerOverhead + len(h[i].Name) + len(h[i].Value)
	}
	if limit := s.limit.Load(); limit > 0 && int64(size) > limit {
		return fmt.Errorf("%w: it has %d bytes with its headers, and the topic takes %d; run 'kafka-configs.sh --bootstrap-server %s --alter --topic %s "+
			"--add-config max.message.bytes=%d'", sink.ErrTooLarge, size, limit, s.conn.cfg.Brokers[0], s.topic.Name, 2*size)
	}
	return nil
}

// keyOf returns an entity's key, nil for none.
func (s *Sink) keyOf(e feed.Entity) ([]byte, error) {
	if s.key == nil {
		return nil, nil
	}
	key, err := s.key(e)
	if err == nil {
		return key, nil
	}
	if s.topic.MissingKey == KeyNull {
		return nil, nil
	}
	return nil, fmt.Errorf("it has no key: %w; correct the feed or its \"key\", or set \"missing_key: 'null'\" to publish such entities without one", err)
}
