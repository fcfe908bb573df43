// Package readahead bounds the memory of the entities that feeds read ahead of their commits.
// All feeds of a process have one [Budget]; each has a [Share] of it, from which its source
// reserves memory while it reads a batch.
package readahead

import (
	"context"
	"slices"
	"sync"
)

// A Budget bounds the memory, in bytes, of the entities that several bridges and their
// sources have read and not yet published. It is safe for concurrent use. Bytes are granted
// in the order of the requests. A request that waits has no goroutine.
//
// It is not a Limit of package limit, because bytes are held until their entities are committed,
// however slow that is.
type Budget struct {
	total int64

	mu   sync.Mutex // guards the fields below, and granted of all requests
	free int64
	// overBudget reports that a feed exceeds the budget. See [Share.Reserve].
	overBudget bool
	// waiting are the requests that have no grant, in order. Those in exceeding may get the right to
	// exceed the budget instead.
	waiting, exceeding []*Request
}

// NewBudget returns a budget of that many bytes.
func NewBudget(total int64) *Budget {
	total = max(total, 1)
	return &Budget{total: total, free: total}
}

// A Grant is a number of bytes of a Budget, or the right to exceed it. [Budget.Return] takes
// it back.
type Grant struct {
	Bytes      int64
	OverBudget bool // the right to exceed the budget, which one Grant at a time has
}

// A Request waits for a Grant. The caller ends it with [Request.Stop].
type Request struct {
	budget  *Budget // nil for no bound
	bytes   int64
	granted Grant
	done    chan struct{} // closed when granted is set
}

// Request requests n bytes, or the whole budget if it is smaller.
func (b *Budget) Request(n int64) *Request { return b.request(n, false) }

// request is Request. If mayExceed is set, the grant may be the right to exceed the budget, if that is
// available first.
func (b *Budget) request(n int64, mayExceed bool) *Request {
	r := &Request{budget: b, bytes: n, done: make(chan struct{})}
	if b == nil {
		r.granted.Bytes = n
		close(r.done)
		return r
	}
	r.bytes = min(n, b.total)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, r)
	if mayExceed {
		b.exceeding = append(b.exceeding, r)
	}
	b.grantNext()
	return r
}

// grantNext grants what is free to the requests that wait. b.mu is held.
func (b *Budget) grantNext() {
	for {
		var r *Request
		switch {
		case len(b.waiting) > 0 && b.waiting[0].bytes <= b.free:
			r = b.waiting[0]
			r.granted.Bytes = r.bytes
			b.free -= r.bytes
		case len(b.exceeding) > 0 && !b.overBudget:
			r = b.exceeding[0]
			r.granted.OverBudget, b.overBudget = true, true
		default:
			return
		}
		b.drop(r)
		close(r.done)
	}
}

// drop removes a request from those that wait. b.mu is held.
func (b *Budget) drop(r *Request) {
	isIt := func(other *Request) bool { return other == r }
	b.waiting, b.exceeding = slices.DeleteFunc(b.waiting, isIt), slices.DeleteFunc(b.exceeding, isIt)
}

// Done returns a channel that is closed when the request is granted.
func (r *Request) Done() <-chan struct{} { return r.done }

// Stop ends the request and returns what it was granted.
func (r *Request) Stop() Grant {
	if b := r.budget; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.drop(r)
		b.grantNext() // there may be enough for those behind it
	}
	return r.granted
}

// wait waits for the grant. If ctx ends first, nothing is granted, and it returns the error of ctx.
func (r *Request) wait(ctx context.Context) (Grant, error) {
	select {
	case <-r.done:
		return r.granted, nil
	case <-ctx.Done():
		r.budget.Return(r.Stop())
		return Grant{}, ctx.Err()
	}
}

// Acquire takes n bytes, or the whole budget if it is smaller, and returns the number taken.
// It waits until they are free. If ctx ends first, it takes none and returns the error of
// ctx. A nil budget has no bound.
func (b *Budget) Acquire(ctx context.Context, n int64) (int64, error) {
	granted, err := b.request(n, false).wait(ctx)
	return granted.Bytes, err
}

// TryAcquire takes n bytes if they are free and no other request waits, and reports whether
// it took them.
func (b *Budget) TryAcquire(n int64) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || n > b.free {
		return false
	}
	b.free -= n
	return true
}

// Release returns n bytes that were taken.
func (b *Budget) Release(n int64) { b.Return(Grant{Bytes: n}) }

// Return returns a grant to the budget.
func (b *Budget) Return(g Grant) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += g.Bytes
	b.overBudget = b.overBudget && !g.OverBudget
	b.grantNext()
}

// Unused reports whether all of the budget is free, and no feed exceeds it. It is meant for tests.
func (b *Budget) Unused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free == b.total && !b.overBudget
}
