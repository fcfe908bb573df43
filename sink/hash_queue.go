package sink

import "math/bits"

// idHash is a hash of 128 bits: two of 100,000 IDs have the same one with a probability of 1
// in 10^28. The seeds are random, so a feed cannot contain IDs that collide on purpose.
type idHash [2]uint64

// hashQueue holds different hashes in an order, and finds a hash among them. A map and a slice
// would take twice the processor time, which is a tenth of that of a small entity. The zero
// hashQueue is empty. It is not safe for concurrent use.
type hashQueue struct {
	// ring has the hashes from the index head on, n of them. Its length is a power of two.
	ring    []idHash
	head, n int
	// slots is a hash table with linear probing, twice as long as ring. The upper 32 bits of a slot
	// are the tag of a hash, the lower 32 bits its index in ring plus one. A free slot is 0.
	slots []uint64
	// A search begins at the slot tag >> shift.
	shift int
}

// slotTag returns the bits of a hash that are in its slot.
func (h idHash) slotTag() uint64 { return h[0] >> 32 }

// at returns the hash number i, counted from the oldest.
func (q *hashQueue) at(i int) idHash { return q.ring[q.index(i)] }

// index returns the index in ring of the hash number i.
func (q *hashQueue) index(i int) int { return (q.head + i) & (len(q.ring) - 1) }

// findSlot returns the slot of a hash, or else the free slot for it. It must not be called before grow.
func (q *hashQueue) findSlot(h idHash) (slot int, found bool) {
	mask := len(q.slots) - 1
	for i := int(h.slotTag() >> q.shift); ; i = (i + 1) & mask {
		switch s := q.slots[i]; {
		case s == 0:
			return i, false
		case s>>32 == h.slotTag() && q.ring[uint32(s)-1] == h:
			return i, true
		}
	}
}

// push adds a hash as the newest. It returns false if the hash was there already.
func (q *hashQueue) push(h idHash) (fresh bool) {
	if q.n == len(q.ring) {
		q.grow()
	}
	slot, found := q.findSlot(h)
	if found {
		return false
	}
	q.n++
	q.set(q.n-1, h, slot)
	return true
}

// hashesAtOnce is the number of hashes whose slots are loaded at once.
const hashesAtOnce = 32

// loadSlots reads the slots of hashes and has no other effect. With 100,000 IDs each slot is a miss
// of the processor's cache. Here the misses overlap, while push waits for each of them: so 32 hashes
// are added in half the time.
//
//go:noinline
func (q *hashQueue) loadSlots(hashes []idHash) (unused uint64) {
	for i := range hashes {
		if at := int(hashes[i].slotTag() >> q.shift); at < len(q.slots) {
			unused += q.slots[at]
		}
	}
	return unused
}

// loadOldestSlots is loadSlots for the n oldest hashes.
func (q *hashQueue) loadOldestSlots(n int) {
	var oldest [hashesAtOnce]idHash
	n = min(n, q.n, hashesAtOnce)
	for i := range n {
		oldest[i] = q.at(i)
	}
	q.loadSlots(oldest[:n])
}

// set makes h the hash number i.
func (q *hashQueue) set(i int, h idHash, slot int) {
	at := q.index(i)
	q.ring[at] = h
	q.slots[slot] = h.slotTag()<<32 | uint64(at+1)
}

// grow doubles the room.
func (q *hashQueue) grow() {
	before := *q
	size := max(8, 2*len(before.ring))
	*q = hashQueue{ring: make([]idHash, size), n: before.n, slots: make([]uint64, 2*size), shift: 32 - bits.Len(uint(size))}
	for i := range before.n {
		h := before.at(i)
		slot, _ := q.findSlot(h)
		q.set(i, h, slot)
	}
}

// indexOf returns the number of a hash, counted from the oldest.
func (q *hashQueue) indexOf(h idHash) (i int, found bool) {
	if q.n == 0 {
		return 0, false
	}
	slot, found := q.findSlot(h)
	if !found {
		return 0, false
	}
	at := int(uint32(q.slots[slot]) - 1)
	return (at - q.head) & (len(q.ring) - 1), true
}

// move moves a hash from number from to number to, which is not greater. The hashes between them move
// up by one.
func (q *hashQueue) move(from, to int) {
	moved := q.at(from)
	movedSlot, _ := q.findSlot(moved)
	for i := from; i > to; i-- {
		h := q.at(i - 1)
		slot, _ := q.findSlot(h)
		q.set(i, h, slot)
	}
	q.set(to, moved, movedSlot)
}

// popOldest removes the oldest hash.
func (q *hashQueue) popOldest() {
	q.freeSlot(q.at(0))
	q.head = q.index(1)
	q.n--
}

// truncate removes all hashes except the n oldest.
func (q *hashQueue) truncate(n int) {
	for ; q.n > n; q.n-- {
		q.freeSlot(q.at(q.n - 1))
	}
}

// freeSlot frees the slot of a hash. It moves each later slot that a search would no longer find into the
// gap.
func (q *hashQueue) freeSlot(h idHash) {
	mask := len(q.slots) - 1
	gap, _ := q.findSlot(h)
	for i := (gap + 1) & mask; q.slots[i] != 0; i = (i + 1) & mask {
		first := int(q.slots[i] >> 32 >> q.shift)
		if (i-first)&mask >= (i-gap)&mask {
			q.slots[gap] = q.slots[i]
			gap = i
		}
	}
	q.slots[gap] = 0
}
