package datareplication

import (
	"sync"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

// batchMemory is the memory of one batch. It is used again when the batch has been committed, so
// that a feed with a backlog makes little garbage. Whatever a Source keeps of an entity between
// calls of Next must be a copy.
type batchMemory struct{ parts page.Buffers }

// entityArrays has the arrays of batches that were committed.
var entityArrays = sync.Pool{New: func() any { return new([]feed.Entity) }}

// appendEntity appends e to the entities of the batch.
func (m *batchMemory) appendEntity(entities []feed.Entity, e feed.Entity) []feed.Entity {
	if entities == nil {
		entities = *entityArrays.Get().(*[]feed.Entity)
	}
	return append(entities, e)
}

// batch returns b, whose Free frees the memory.
func (m *batchMemory) batch(b feed.Batch) feed.Batch {
	if len(b.Entities) == 0 {
		// Entities that were left out have parts of the memory, and no one uses them any more.
		m.parts.Free()
		return b
	}
	b.Free = func() {
		m.parts.Free()
		clear(b.Entities)
		b.Entities = b.Entities[:0]
		entityArrays.Put(&b.Entities)
	}
	return b
}
