package datareplication

import (
	"sync"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

// batchBuilder collects the batch of one call of Next. Its memory is used again when the batch has been
// committed, so that a feed with a backlog makes little garbage. Whatever a Source keeps of an entity between
// calls of Next must be a copy.
type batchBuilder struct {
	entities []feed.Entity
	size     int
	seen     sightings
	parts    page.Buffers
}

// entityArrays has the arrays of batches that were committed.
var entityArrays = sync.Pool{New: func() any { return new([]feed.Entity) }}

// addEntity adds an entity and its violations.
func (b *batchBuilder) addEntity(e feed.Entity, violations []feed.Violation) {
	if b.entities == nil {
		b.entities = *entityArrays.Get().(*[]feed.Entity)
	}
	b.entities, b.size = append(b.entities, e), b.size+e.Size()
	b.seen.addAll(violations...)
}

// build returns the batch, whose Free frees the memory.
func (b *batchBuilder) build(after feed.Cursor, more bool) feed.Batch {
	batch := feed.Batch{Entities: b.entities, Bytes: b.size, Cursor: after, More: more, Violations: b.seen}
	if len(b.entities) == 0 {
		// Entities that were left out have parts of the memory, and no one uses them any more.
		b.parts.Free()
		return batch
	}
	parts := b.parts
	batch.Free = func() {
		parts.Free()
		clear(batch.Entities)
		batch.Entities = batch.Entities[:0]
		entityArrays.Put(&batch.Entities)
	}
	return batch
}
