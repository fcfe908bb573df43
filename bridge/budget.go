package bridge

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// A Budget bounds how many bytes of entities several bridges together read ahead. It is
// safe for concurrent use. The bytes are granted in the order of the requests.
//
// Each bridge also has one batch that it need not ask for: the one that it reads while it
// has no other. So every feed makes progress, one batch at a time, even if others have the
// whole budget and are stuck, as when their bus does not answer.
type Budget struct {
	total int64
	free  *semaphore.Weighted
}

// NewBudget returns a budget of that many bytes.
func NewBudget(total int64) *Budget {
	total = max(total, 1)
	return &Budget{total, semaphore.NewWeighted(total)}
}

// acquire takes n bytes, or all if the budget is smaller, and returns how many. It waits
// until they are free, or until ctx ends, whose error it returns. A nil budget has no
// bound.
func (b *Budget) acquire(ctx context.Context, n int64) (int64, error) {
	if b == nil {
		return n, ctx.Err()
	}
	n = min(n, b.total)
	return n, b.free.Acquire(ctx, n)
}

// tryAcquire takes n bytes if they are free and nobody waits for any.
func (b *Budget) tryAcquire(n int64) bool {
	return b == nil || b.free.TryAcquire(n)
}

func (b *Budget) release(n int64) {
	if b != nil {
		b.free.Release(n)
	}
}
