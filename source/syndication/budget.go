package syndication

import (
	"context"
	"errors"
	"time"
)

// versionBytes is the estimated memory for an ID of a document while the document is
// read.
const versionBytes = 100

// unreserved is how many bytes a source may hold without budget. Most documents need no
// more, so their feeds neither wait for others nor download them twice.
const unreserved = 256 << 10

// firstWanted is how many bytes a document waits for at least. If it turns out to need more,
// it waits for Bounds.Memory, so that it is not dropped a third time.
const firstWanted = 1 << 20

// longestWait is for how long a source waits for budget before it reads on without.
// Those that have the budget may be stuck, as by a server that sends a byte at a time.
const longestWait = 5 * time.Minute

// A Budget bounds the memory that several sources hold together, in bytes. It is safe
// for concurrent use. A source returns its share when it no longer needs it, and at the
// latest in [Source.Release].
type Budget interface {
	// Acquire takes n bytes, or all if the budget is smaller, and returns how many. It
	// waits until they are free, or until ctx ends; then it takes none and returns the
	// error of ctx.
	Acquire(ctx context.Context, n int64) (int64, error)
	// TryAcquire takes n bytes if they are free and no Acquire is waiting, and reports
	// whether it did.
	TryAcquire(n int64) bool
	// Release returns n bytes that were taken.
	Release(n int64)
}

// share is the part of a Budget that one source holds. It is for one goroutine.
type share struct {
	budget Budget // nil for no bound
	free   int64  // bytes that may be held without budget
	taken  int64  // bytes
	// want is how many bytes the document that is being read, part by part, was last
	// found to need; 0 if there was enough without waiting.
	want int64
	// scarce is set when waiting does not help: the document is read with the memory
	// that there is.
	scarce bool
}

// errNoBudget means that a document takes more memory than there is budget for.
var errNoBudget = errors.New("there is no budget to read the document")

// tryCover reports whether n bytes may be held, and takes budget for them. It does not wait.
func (s *share) tryCover(n int64) bool {
	more := n - s.free - s.taken
	if s.budget == nil || more <= 0 {
		return true
	}
	if !s.budget.TryAcquire(more) {
		s.want = max(s.want, 2*n)
		return false
	}
	s.taken += more
	return true
}

// acquireBudget acquires the budget that is wanted, besides n bytes that are held. It waits for
// longestWait at most. A source that already has budget does not wait for more, because
// two of them could wait for each other. The error is that of ctx.
func (s *share) acquireBudget(ctx context.Context, n int64) error {
	if s.releaseUnneeded(n); s.taken > 0 {
		s.scarce = true
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	more := s.want - s.free
	got, err := s.budget.Acquire(waiting, more)
	if err == nil {
		s.taken += got
	}
	s.scarce = got < more
	return ctx.Err()
}

// releaseUnneeded returns the budget that is not needed to hold n bytes.
func (s *share) releaseUnneeded(n int64) {
	if excess := s.taken - max(0, n-s.free); excess > 0 {
		s.budget.Release(excess)
		s.taken -= excess
	}
}
