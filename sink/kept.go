package sink

import (
	"sync"
	"time"
)

// Kept holds the consumer of a read of a topic that has ended, or the records that it received and
// did not return, for the next read that continues there. It holds one value, for a limited
// time. Its zero value holds none. It is safe for concurrent use.
type Kept[T any] struct {
	mu  sync.Mutex
	now *kept[T] // nil if there is none
}

type kept[T any] struct {
	value   T
	discard func(T)
	expiry  *time.Timer
}

// Put holds value for the time d, in place of the value that it held before. A value that is
// not taken is discarded.
func (k *Kept[T]) Put(value T, d time.Duration, discard func(T)) {
	next := &kept[T]{value: value, discard: discard}
	k.mu.Lock()
	last := k.now
	k.now = next
	next.expiry = time.AfterFunc(d, func() { k.expire(next) })
	k.mu.Unlock()
	if last != nil {
		last.expiry.Stop()
		last.discard(last.value)
	}
}

// Take returns the value if fits reports true for it, and holds it no longer.
func (k *Kept[T]) Take(fits func(T) bool) (value T, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now == nil || !fits(k.now.value) {
		return value, false
	}
	value = k.now.value
	k.now.expiry.Stop()
	k.now = nil
	return value, true
}

func (k *Kept[T]) expire(old *kept[T]) {
	k.mu.Lock()
	held := k.now == old
	if held {
		k.now = nil
	}
	k.mu.Unlock()
	if held {
		old.discard(old.value)
	}
}
