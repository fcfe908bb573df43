// Package limit bounds how many feeds, or clients, do the same thing at a time, and has the numbers.
package limit

import (
	"context"
	"sync"
	"time"
)

// A Limit counts what is under way against a limit until it ends or is slow. It promises:
//   - no more than the limit have a [Slot] that was neither released nor held for the slow time;
//   - one that hangs delays others by the slow time at most;
//   - a wait for a slot holds no lock, needs no goroutine of its own, and ends with its context.
//
// What waits for longer than a request has no goroutine at all: it calls TryAcquire, and again later.
//
// Three limits are something else: a budget of memory (package readahead), a rate (golang.org/x/time/rate, such
// as that of a host), and the slots of clients, which are evicted (package connlimit).
//
// It is safe for concurrent use.
type Limit struct {
	taken chan struct{}
	slow  time.Duration
}

// New returns a Limit of most slots. slow is the time after which a slot does not count any more; 0 if
// it always counts.
func New(most int, slow time.Duration) *Limit {
	return &Limit{make(chan struct{}, most), slow}
}

// Acquire waits for a slot. If ctx ends first, it returns the cause of that.
func (l *Limit) Acquire(ctx context.Context) (*Slot, error) {
	select {
	case l.taken <- struct{}{}:
		return l.newSlot(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TryAcquire returns a slot, or nil if there is none.
func (l *Limit) TryAcquire() *Slot {
	select {
	case l.taken <- struct{}{}:
		return l.newSlot()
	default:
		return nil
	}
}

func (l *Limit) newSlot() *Slot {
	s := &Slot{limit: l}
	if l.slow > 0 {
		s.slow = time.AfterFunc(l.slow, s.free)
	}
	return s
}

// A Slot of a [Limit] must be released. The methods of a nil Slot do nothing.
type Slot struct {
	limit *Limit
	slow  *time.Timer // nil if the slot always counts
	freed sync.Once
}

// Extend begins the slow time again, with another duration, unless it is over. A slot that always counts
// has none.
func (s *Slot) Extend(slow time.Duration) {
	if s != nil && s.slow != nil && s.slow.Stop() {
		s.slow.Reset(slow)
	}
}

// Release ends the slot. It may be called again.
func (s *Slot) Release() {
	if s == nil {
		return
	}
	if s.slow != nil {
		s.slow.Stop()
	}
	s.free()
}

func (s *Slot) free() { s.freed.Do(func() { <-s.limit.taken }) }
