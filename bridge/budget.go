package bridge

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// A Budget bounds how many bytes several bridges and their sources together hold of what
// was read. It is safe for concurrent use. The bytes are granted in the order of the requests.
type Budget struct {
	total int64
	free  *semaphore.Weighted
	// alone is held by the one feed that holds bytes beyond the budget. See [Share.Reserve].
	alone *semaphore.Weighted
}

// NewBudget returns a budget of that many bytes.
func NewBudget(total int64) *Budget {
	total = max(total, 1)
	return &Budget{total, semaphore.NewWeighted(total), semaphore.NewWeighted(1)}
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

// A grant is what was taken of a Budget.
type grant struct {
	bytes int64
	alone bool // the right to hold more than the budget
}

// acquireOrAlone takes n bytes, or all if the budget is smaller, or the right to hold as
// many beyond the budget, whichever is available first. It waits until ctx ends, whose
// error it returns.
func (b *Budget) acquireOrAlone(ctx context.Context, n int64) (grant, error) {
	n = min(n, b.total)
	if b.free.TryAcquire(n) {
		return grant{bytes: n}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alone := make(chan error, 1)
	go func() {
		defer cancel()
		alone <- b.alone.Acquire(ctx, 1)
	}()
	err := b.free.Acquire(ctx, n)
	cancel()
	switch errAlone := <-alone; {
	case err == nil && errAlone == nil:
		b.alone.Release(1)
		return grant{bytes: n}, nil
	case err == nil:
		return grant{bytes: n}, nil
	case errAlone == nil:
		return grant{alone: true}, nil
	}
	return grant{}, err
}

// release returns what was taken.
func (b *Budget) release(g grant) {
	if b == nil {
		return
	}
	b.free.Release(g.bytes)
	if g.alone {
		b.alone.Release(1)
	}
}

const (
	// unreserved is how many bytes of a batch need no budget, if the feed holds no other.
	// So a poll that finds little does not wait for feeds that have much to read.
	unreserved = 64 << 10
	// firstReserve is how many bytes are reserved at least where that takes a wait. Most
	// batches need no more, and a wait while some are reserved already is slow.
	firstReserve = 1 << 20
	// longestWait is for how long Reserve waits. Whatever has the budget may be stuck, as a
	// server that sends a byte at a time.
	longestWait = 5 * time.Minute
)

// A Share is what one feed takes of a [Budget] while its source reads a batch. What the
// source reserves belongs to the batch, and the bridge returns it to the budget when the
// batch is committed or dropped. A source that reserves nothing is counted by the sizes of
// its batches.
//
// A Share is for one bridge and its source. Its methods are for use during Next alone, by
// one goroutine.
type Share struct {
	budget *Budget // nil for no bound

	// Set for each batch:
	free int64 // bytes that need no budget
	want int64 // bytes that the batch may need, as far as is known
	// taken is what was taken of the budget for the batch, and room how many bytes that
	// allows, besides free.
	taken grant
	room  int64
	used  int64 // bytes that are reserved
	// exempt is set when the batch may hold more than was taken.
	exempt bool
}

// Share returns a share of the budget, for one feed. A nil budget has no bound.
func (b *Budget) Share() *Share { return &Share{budget: b} }

// begin starts a batch with what was taken for it, and free bytes besides. want is how many
// bytes the batch may need.
func (s *Share) begin(taken, free, want int64) {
	*s = Share{budget: s.budget, free: free, want: want, taken: grant{bytes: taken}, room: taken}
}

// end ends the batch. It returns what was taken for it, and how much of the budget it
// needs for what is reserved. The caller has to return what was taken.
func (s *Share) end() (taken grant, used int64) {
	taken, used = s.taken, max(0, s.used-s.free)
	*s = Share{budget: s.budget}
	return taken, used
}

// TryReserve reserves n bytes more for the batch if that needs no wait, and reports whether
// it did.
func (s *Share) TryReserve(n int64) bool {
	missing := s.used + n - s.free - s.room
	if s.budget != nil && missing > 0 {
		if s.exempt || !s.budget.TryAcquire(missing) {
			return false
		}
		s.taken.bytes += missing
		s.room += missing
	}
	s.used += n
	return true
}

// Reserve reserves n bytes more for the batch. It waits until the budget has them, or until
// no other feed holds more than the budget has: then this one does, alone, until its batch
// is committed. After [longestWait] it waits no longer. If ctx ends first, it reserves
// nothing and returns the error of ctx.
//
// It is for the first entity of a batch, without which the feed would make no progress, and
// for an entity that is in memory in part. For any other entity use TryReserve: the batch
// can do without it.
func (s *Share) Reserve(ctx context.Context, n int64) error {
	if err := ctx.Err(); err != nil || s.TryReserve(n) {
		return err
	}
	if s.exempt {
		s.used += n
		return nil
	}
	missing := max(s.used+n-s.free, s.want, firstReserve) - s.room
	waiting, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	got, err := s.budget.acquireOrAlone(waiting, missing)
	if err := ctx.Err(); err != nil {
		s.budget.release(got)
		return err
	}
	s.taken.bytes += got.bytes
	s.taken.alone = got.alone
	s.room += missing
	s.exempt = err != nil || got.bytes < missing
	s.used += n
	return nil
}

// Free takes back the reservation of n bytes. The batch can reserve them again without a
// wait.
func (s *Share) Free(n int64) { s.used -= n }
