// Package readahead bounds the memory of the entities that feeds read ahead of their commits.
// All feeds of a process have one [Budget]; each has a [Share] of it, from which its source
// reserves memory while it reads a batch.
package readahead

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// A Budget bounds the memory, in bytes, of the entities that several bridges and their
// sources have read and not yet published. It is safe for concurrent use. Bytes are granted
// in the order of the requests.
type Budget struct {
	total int64
	free  *semaphore.Weighted
	// overBudget is held by the feed that exceeds the budget, if there is one. See [Share.Reserve].
	overBudget *semaphore.Weighted
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

// A Request acquires bytes of a Budget in the background.
type Request struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when taken or err is set
	taken  int64
	err    error
}

// Request starts to acquire n bytes. The caller ends it with [Request.Stop].
func (b *Budget) Request(ctx context.Context, n int64) *Request {
	ctx, cancel := context.WithCancel(ctx)
	r := &Request{cancel: cancel, done: make(chan struct{})}
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

// Done returns a channel that is closed when the bytes are taken, or cannot be; see
// [Request.Err].
func (r *Request) Done() <-chan struct{} { return r.done }

// Err returns why no bytes were taken, or nil. It may be called after Done is closed.
func (r *Request) Err() error { return r.err }

// Stop ends the request and returns the number of bytes that it has taken.
func (r *Request) Stop() int64 {
	r.cancel()
	<-r.done
	return r.taken
}

// A Grant is a number of bytes of a Budget, or the right to exceed it. [Budget.Return] takes
// it back.
type Grant struct {
	Bytes      int64
	OverBudget bool // the right to exceed the budget, which one Grant at a time has
}

// acquireOrExceed takes n bytes, or the whole budget if it is smaller, or the right to exceed
// the budget, whichever is available first. If ctx ends before, it returns an error.
func (b *Budget) acquireOrExceed(ctx context.Context, n int64) (Grant, error) {
	n = min(n, b.total)
	if b.free.TryAcquire(n) {
		return Grant{Bytes: n}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan error, 1)
	go func() {
		defer cancel()
		over <- b.overBudget.Acquire(ctx, 1)
	}()
	err := b.free.Acquire(ctx, n)
	cancel()
	switch errOver := <-over; {
	case err == nil && errOver == nil:
		b.overBudget.Release(1)
		return Grant{Bytes: n}, nil
	case err == nil:
		return Grant{Bytes: n}, nil
	case errOver == nil:
		return Grant{OverBudget: true}, nil
	}
	return Grant{}, err
}

// Return returns a grant to the budget.
func (b *Budget) Return(g Grant) {
	if b == nil {
		return
	}
	b.free.Release(g.Bytes)
	if g.OverBudget {
		b.overBudget.Release(1)
	}
}

// Unused reports whether all of the budget is free, and no feed exceeds it. It takes all of the
// budget for a moment, and is meant for tests.
func (b *Budget) Unused() bool {
	if !b.free.TryAcquire(b.total) {
		return false
	}
	defer b.free.Release(b.total)
	if !b.overBudget.TryAcquire(1) {
		return false
	}
	b.overBudget.Release(1)
	return true
}

// Unreserved is the number of bytes of a batch that need no budget if the feed holds no other
// batch. So a poll that finds little does not wait for feeds with a backlog.
const Unreserved = 64 << 10
