package datareplication

import (
	"context"
	"errors"

	"github.com/feedbridge/feedbridge/internal/readahead"
)

// errNoMemory reports that an entity must wait for the next batch, because there is no
// memory for it.
var errNoMemory = errors.New("no memory is left for another entity")

// reservation counts the bytes that are reserved for a batch. The [page.Reader] of
// the batch calls reserve and free.
type reservation struct {
	memory *readahead.Share // nil for no bound
	used   int64
	// ctx ends the waits for the entity that is being read.
	ctx context.Context //nolint:containedctx // of one call of openPage.nextEntity
	// wait reports that the entity is worth a wait, because the batch has no other.
	wait bool
}

// reserve reserves n bytes more. See [page.Reader].
func (r *reservation) reserve(n int, grows bool) error {
	switch {
	case r.memory == nil:
		return nil
	case !r.wait && !grows:
		if !r.memory.TryReserve(int64(n)) {
			return errNoMemory
		}
	default:
		if err := r.memory.Reserve(r.ctx, int64(n)); err != nil {
			return err
		}
	}
	r.used += int64(n)
	return nil
}

// free takes back the reservation of n bytes.
func (r *reservation) free(n int) {
	if r.memory != nil && n > 0 {
		r.memory.Free(int64(n))
		r.used -= int64(n)
	}
}

// freeSince frees all but the first used bytes, after the entities that were read since have
// been dropped.
func (r *reservation) freeSince(used int64) { r.free(int(r.used - used)) }
