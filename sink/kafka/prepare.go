package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

// prepared are entities and their records. The producer uses the records until their commit
// has ended.
type prepared struct {
	entities []feed.Entity
	records  []kgo.Record
}

// holds reports whether p has the records of these entities, the very same slice. The
// caller that returned it from next does not write to it.
func (p prepared) holds(entities []feed.Entity) bool {
	return len(entities) > 0 && len(p.entities) == len(entities) && &p.entities[0] == &entities[0]
}

// stage prepares the next commit while the cluster is busy with this one. It ignores
// errors: that commit reports them.
func (s *Sink) stage(entities []feed.Entity) {
	if len(entities) == 0 {
		return
	}
	if p, err := s.prepare(entities); err == nil {
		s.ahead = p
	}
}

// prepare returns the records of entities. It uses the spare memory for them.
func (s *Sink) prepare(entities []feed.Entity) (prepared, error) {
	records := s.spare
	s.spare = nil
	if n := len(entities); cap(records) < n {
		records = make([]kgo.Record, 0, n)
	}
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
			return prepared{}, feed.Permanent(fmt.Errorf("entity %q: %w", e.ID, err))
		}
		r := kgo.Record{Topic: s.topic.Name, Partition: int32(s.topic.Partition), Key: key, Value: s.value(e), Headers: headers(fields)}
		records = append(records, r)
	}
	return prepared{entities, records}, nil
}
