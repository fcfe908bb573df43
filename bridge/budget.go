package bridge

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// A Budget bounds how many bytes several bridges and their sources together hold of what
// was read. It is safe for concurrent use. The bytes are granted in the order of the requests.
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

// Acquire takes n bytes, or all if the budget is smaller, and returns how many. It waits
// until they are free, or until ctx ends, whose error it returns. A nil budget has no
// bound.
func (b *Budget) Acquire(ctx context.Context, n int64) (int64, error) {
	if b == nil {
		return n, ctx.Err()
	}
	n = min(n, b.total)
	if err := b.free.Acquire(ctx, n); err != nil {
		return 0, err
	}
	return n, nil
}

// TryAcquire takes n bytes if they are free and nobody waits for any, and reports whether
// it did.
func (b *Budget) TryAcquire(n int64) bool {
	return b == nil || b.free.TryAcquire(n)
}

// Release returns n bytes that were taken.
func (b *Budget) Release(n int64) {
	if b != nil {
		b.free.Release(n)
	}
}
