package syndication

import (
	"context"
	"errors"
	"time"

	"github.com/feedbridge/feedbridge/internal/readahead"
)

// versionBytes is the estimated memory for one ID of a document.
const versionBytes = 150

// unreserved is the memory, in bytes, that a source may use without budget. Most
// documents need no more, so their feeds neither wait for others nor download a
// document twice.
const unreserved = 256 << 10

// firstWanted is the least number of bytes that a document waits for. A document that
// needs more waits for Bounds.Memory the second time, so that it is not dropped a third
// time.
const firstWanted = 1 << 20

// longestWait bounds the wait for budget. After it a source reads on without budget,
// because the sources that have it may be stuck, as with a server that sends one byte
// at a time.
const longestWait = 5 * time.Minute

// share is one source's part of the budget. It is for one goroutine.
type share struct {
	budget *readahead.Budget // nil for no bound
	free   int64             // bytes that need no budget
	taken  int64             // bytes
	// want is the last known need, in bytes, of the document that is being read part by
	// part; 0 if it never had to wait for budget.
	want int64
	// scarce is set when waiting does not help. The document is then read with the
	// memory that is free.
	scarce bool
}

// errNoBudget means that a document takes more memory than there is budget for.
var errNoBudget = errors.New("there is no budget to read the document")

// tryCover reports whether n bytes may be used, and acquires budget for them. It does
// not wait.
func (s *share) tryCover(n int64) bool {
	if !s.tryReserve(n) {
		s.want = max(s.want, 2*n)
		return false
	}
	return true
}

// tryReserve is tryCover for memory that the source can do without.
func (s *share) tryReserve(n int64) bool {
	more := n - s.free - s.taken
	if s.budget == nil || more <= 0 {
		return true
	}
	if !s.budget.TryAcquire(more) {
		return false
	}
	s.taken += more
	return true
}

// acquireBudget acquires the wanted budget in addition to n bytes that are in use. It
// waits for at most longestWait. A source that already has budget does not wait for
// more, because two such sources could wait for each other. It returns the error of
// ctx.
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

// releaseUnneeded returns the budget that n bytes do not need.
func (s *share) releaseUnneeded(n int64) {
	if excess := s.taken - max(0, n-s.free); excess > 0 {
		s.budget.Release(excess)
		s.taken -= excess
	}
}
