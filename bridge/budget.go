package bridge

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// A Budget bounds the memory, in bytes, of the entities that several bridges and their
// sources have read and not yet published. It is safe for concurrent use. Bytes are granted
// in the order of the requests.
type Budget struct {
	total int64
	free  *semaphore.Weighted
	// alone is held by the feed that exceeds the budget, if there is one. See [Share.Reserve].
	alone *semaphore.Weighted
}

// NewBudget returns a budget of that many bytes.
func NewBudget(total int64) *Budget {
	total = max(total, 1)
	return &Budget{total, semaphore.NewWeighted(total), semaphore.NewWeighted(1)}
}

// Acquire takes n bytes, or the whole budget if it is smaller, and returns the number taken.
// It waits until they are free. If ctx ends first, it takes none and returns the error of
// ctx. A nil budget has no bound.
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

// TryAcquire takes n bytes if they are free and no other request waits, and reports whether
// it took them.
func (b *Budget) TryAcquire(n int64) bool {
	return b == nil || b.free.TryAcquire(n)
}

// Release returns n bytes that were taken.
func (b *Budget) Release(n int64) {
	if b != nil {
		b.free.Release(n)
	}
}

// A request acquires bytes of a Budget.
type request struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when taken or err is set
	taken  int64
	err    error
}

// request starts to acquire n bytes.
func (b *Budget) request(ctx context.Context, n int64) *request {
	ctx, cancel := context.WithCancel(ctx)
	r := &request{cancel: cancel, done: make(chan struct{})}
	if b.TryAcquire(n) {
		r.taken = n
		close(r.done)
		return r
	}
	go func() {
		defer close(r.done)
		r.taken, r.err = b.Acquire(ctx, n)
	}()
	return r
}

// stop ends the request and returns the number of bytes that it has taken.
func (r *request) stop() int64 {
	r.cancel()
	<-r.done
	return r.taken
}

// A grant is a number of bytes of a Budget, or the right to exceed it.
type grant struct {
	bytes int64
	alone bool // the right to exceed the budget, which one grant at a time has
}

// acquireOrAlone takes n bytes, or the whole budget if it is smaller, or the right to exceed
// the budget, whichever is available first. If ctx ends before, it returns an error.
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

// release returns a grant.
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
	// unreserved is the number of bytes of a batch that need no budget if the feed holds no
	// other batch. So a poll that finds little does not wait for feeds with a backlog.
	unreserved = 64 << 10
	// firstReserve is the least number of bytes that Reserve waits for. Most batches need
	// no more, so they wait once, before they hold anything.
	firstReserve = 1 << 20
	// longestWait bounds the wait of Reserve. The feeds that have the budget may be stuck,
	// as on a server that sends a byte at a time.
	longestWait = 5 * time.Minute
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
	taken grant // of the budget
	// room is the number of bytes that taken allows for, besides free. It exceeds
	// taken.bytes if the budget is smaller.
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

// beginBatch starts a batch for which taken bytes of the budget were acquired, and that may hold
// free bytes without budget. want is the expected size of the batch.
func (s *Share) beginBatch(taken, free, want int64, endRequest func() int64) {
	*s = Share{budget: s.budget, free: free, want: want, taken: grant{bytes: taken}, room: taken, endRequest: endRequest}
}

// endBatch ends the batch. It returns the grant of the batch, which the caller must release, and
// the number of bytes of the budget that the batch has used.
func (s *Share) endBatch() (taken grant, used int64) {
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
		s.taken.bytes += missing
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
		s.taken.bytes += granted
		s.room += granted
		if s.TryReserve(n) {
			return nil
		}
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

// Free cancels the reservation of n bytes. The batch can reserve them again without a wait.
func (s *Share) Free(n int64) { s.used -= n }
