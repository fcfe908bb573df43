package connlimit

import (
	"context"
	"sync"
	"time"
)

const (
	// Chunk is the unit of the pace that a client must keep, in bytes. It is also
	// how much a connection writes at once.
	Chunk = 32 << 10
	// ChunkTime is the time that a client has for a Chunk. A client that is slower uses up
	// the patience of its Slots.
	ChunkTime = 2 * time.Second
)

// Slots bounds how many clients use a resource. When all slots are taken, the
// client that has kept the program waiting longest loses its slot to the next
// one, once it has used up the patience. A client that reads a [Chunk] in each
// [ChunkTime] never loses its slot. Its methods may be called from any goroutine.
type Slots struct {
	most     int
	patience time.Duration

	mu       sync.Mutex // protects taken and released
	taken    map[*Slot]struct{}
	released chan struct{} // closed when a slot is released
}

// Slot belongs to one client. Its methods may be called from any goroutine.
type Slot struct {
	of    *Slots
	evict func() // ends the connection to the client, so that writes to it fail

	mu     sync.Mutex    // protects since and waited
	since  time.Time     // the start of the present wait for the client; zero while there is none
	waited time.Duration // in the waits before, less the time that the client may take for the bytes that it read
}

// NewSlots returns most slots. A client that keeps the program waiting for longer
// than patience may lose its slot.
func NewSlots(most int, patience time.Duration) *Slots {
	return &Slots{most: most, patience: patience, taken: map[*Slot]struct{}{}, released: make(chan struct{})}
}

// Acquire takes a slot for a client. The wait for this client begins now, see
// [Slot.Wait]. evict is called by another goroutine if the client loses the slot.
// Acquire waits until there is a slot, and fails with ctx's error when ctx ends.
func (s *Slots) Acquire(ctx context.Context, evict func()) (*Slot, error) {
	for {
		slot, released, in := s.tryAcquire(evict)
		if slot != nil {
			return slot, nil
		}
		timer := time.NewTimer(in)
		select {
		case <-released:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		timer.Stop()
	}
}

// tryAcquire takes a free slot or evicts the slowest client over its limit. If
// there is neither, it returns what to wait for: a release, or a duration.
func (s *Slots) tryAcquire(evict func()) (slot *Slot, released <-chan struct{}, in time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.taken) >= s.most {
		now := time.Now()
		var slowest *Slot
		longest := time.Duration(-1)
		for other := range s.taken {
			if behind := other.overdueTime(now); behind > longest {
				slowest, longest = other, behind
			}
		}
		if longest < s.patience {
			return nil, s.released, s.patience - longest
		}
		delete(s.taken, slowest)
		slowest.evict()
	}
	slot = &Slot{of: s, evict: evict, since: time.Now()}
	s.taken[slot] = struct{}{}
	return slot, nil, 0
}

// Release gives the slot back. It may be called more than once, and after the
// slot was lost.
func (l *Slot) Release() {
	s := l.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.taken[l]; ok {
		delete(s.taken, l)
		close(s.released)
		s.released = make(chan struct{})
	}
}

// Wait records that the program waits for the client from now on.
func (l *Slot) Wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		l.since = time.Now()
	}
}

// Took records that the wait is over, because the client read n bytes. Bytes that
// it reads faster than it must are no credit for later waits.
func (l *Slot) Took(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.since.IsZero() {
		l.waited += time.Since(l.since)
	}
	l.since, l.waited = time.Time{}, max(0, l.waited-time.Duration(n)*ChunkTime/Chunk)
}

// Reset starts the measurement again, as for a new request. waiting is whether
// the program waits for the client from now on.
func (l *Slot) Reset(waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.waited = time.Time{}, 0
	if waiting {
		l.since = time.Now()
	}
}

// overdueTime returns how long the client has kept the program waiting, less the time
// that it may take.
func (l *Slot) overdueTime(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		return l.waited
	}
	return l.waited + now.Sub(l.since)
}
