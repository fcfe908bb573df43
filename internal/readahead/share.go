package readahead

import (
	"context"
	"time"
)

const (
	// firstReserve is the least number of bytes that Reserve waits for. Most batches need
	// no more, so they wait once, before they hold anything.
	firstReserve = 1 << 20
	// longestWait bounds the wait of Reserve. The feeds that have the budget may be stuck,
	// as on a server that sends a byte at a time.
	longestWait = 5 * time.Minute
	// Unreserved is the number of bytes of a batch that need no budget if the feed holds no other
	// batch. So a poll that finds little does not wait for feeds with a backlog.
	Unreserved = 64 << 10
)

// A Share reserves memory of a [Budget] for one feed while its source reads a batch. The
// reservation belongs to the batch: the bridge returns it to the budget when the batch is
// committed or dropped. For a source that reserves nothing, the bridge counts the sizes of
// its batches. A batch that is read while the feed holds no other counts if it is large and
// the budget has room for it.
//
// A Share belongs to one bridge and its source. The source calls its methods during Next
// only, in one goroutine.
type Share struct {
	budget *Budget // nil for no bound

	// Set for each batch:
	free  int64 // bytes that need no budget
	want  int64 // the size of the largest batch before
	taken Grant // of the budget
	// room is the number of bytes that taken allows for, besides free. It exceeds
	// taken.Bytes if the budget is smaller.
	room int64
	used int64 // reserved bytes
	// exempt reports that the batch may exceed room.
	exempt bool
	// endRequest ends the bridge's request for the budget of the next batch, if there is one,
	// and returns the bytes that were granted. Otherwise a feed that waits in Reserve would
	// hold them unused, and so would every other one.
	endRequest func() int64
}

// Share returns a share of the budget for one feed. A nil budget has no bound.
func (b *Budget) Share() *Share { return &Share{budget: b} }

// Budget returns the budget that s is a share of; nil if it has no bound. s may be nil.
func (s *Share) Budget() *Budget {
	if s == nil {
		return nil
	}
	return s.budget
}

// BeginBatch starts a batch for which taken bytes of the budget were acquired, and that may hold
// free bytes without budget. want is the expected size of the batch.
func (s *Share) BeginBatch(taken, free, want int64, endRequest func() int64) {
	*s = Share{budget: s.budget, free: free, want: want, taken: Grant{Bytes: taken}, room: taken, endRequest: endRequest}
}

// EndBatch ends the batch. It returns the grant of the batch, which the caller must release, and
// the number of bytes of the budget that the batch has used.
func (s *Share) EndBatch() (taken Grant, used int64) {
	taken, used = s.taken, max(0, s.used-s.free)
	*s = Share{budget: s.budget}
	return taken, used
}

// TryReserve reserves n more bytes for the batch if that needs no wait, and reports whether
// it reserved them.
func (s *Share) TryReserve(n int64) bool {
	missing := s.used + n - s.free - s.room
	if s.budget != nil && missing > 0 {
		if s.exempt || !s.budget.TryAcquire(missing) {
			return false
		}
		s.taken.Bytes += missing
		s.room += missing
	}
	s.used += n
	return true
}

// Reserve reserves n more bytes for the batch. It waits until the budget has them, or until
// no other feed exceeds the budget; then this feed exceeds it until its batch is committed.
// After 5 minutes it stops waiting and reserves the bytes in any case. If ctx ends first, it
// reserves nothing and returns the error of ctx.
//
// Use it for the first entity of a batch, without which the feed makes no progress, and for
// an entity of which a part is in memory. Other entities can go into the next batch, so use
// TryReserve for them.
func (s *Share) Reserve(ctx context.Context, n int64) error {
	if err := ctx.Err(); err != nil || s.TryReserve(n) {
		return err
	}
	if s.exempt {
		s.used += n
		return nil
	}
	if s.endRequest != nil {
		granted := s.endRequest()
		s.taken.Bytes += granted
		s.room += granted
		if s.TryReserve(n) {
			return nil
		}
	}
	missing := max(s.used+n-s.free, s.want, firstReserve) - s.room
	waiting, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	got, err := s.budget.request(missing, true).wait(waiting)
	if err := ctx.Err(); err != nil {
		s.budget.Return(got)
		return err
	}
	s.taken.Bytes += got.Bytes
	s.taken.OverBudget = got.OverBudget
	s.room += missing
	s.exempt = err != nil || got.Bytes < missing
	s.used += n
	return nil
}

// Free cancels the reservation of n bytes. The batch can reserve them again without a wait.
func (s *Share) Free(n int64) { s.used -= n }
