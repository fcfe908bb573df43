package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

// records returns the records of entities.
func (s *Sink) records(entities []feed.Entity) ([]kgo.Record, error) {
	records := make([]kgo.Record, 0, len(entities))
	var fields feed.Header
	for i := range entities {
		e := &entities[i]
		fields = message.AppendHeader(fields[:0], s.topic.Feed, *e)
		key, err := s.keyOf(*e)
		if err == nil {
			err = s.fits(fields, len(key), len(e.Body))
		}
		if err != nil {
			// The gate has asked already, but the topic may take less since.
			return nil, feed.Permanent(fmt.Errorf("entity %q: %w", e.ID, err))
		}
		r := kgo.Record{Topic: s.topic.Name, Partition: int32(s.topic.Partition), Key: key, Value: s.value(e), Headers: headers(fields)}
		records = append(records, r)
	}
	return records, nil
}
