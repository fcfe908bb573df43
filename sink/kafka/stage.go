package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
)

// made are the records of entities, with room for one more. A producer uses them
// until their commit has ended.
type made struct {
	entities []feed.Entity
	records  []kgo.Record
}

// serves says whether m has the records of these entities, the very same slice.
// Whoever returned them from next does not write to them.
func (m made) serves(entities []feed.Entity) bool {
	return len(entities) > 0 && len(m.entities) == len(entities) && &m.entities[0] == &entities[0]
}

// stage makes the records of the next commit, while the cluster is busy with this
// one. What is wrong with an entity its own commit says.
func (s *Sink) stage(entities []feed.Entity) {
	if len(entities) == 0 {
		return
	}
	if m, err := s.makeRecords(entities); err == nil {
		s.ahead = m
	}
}
