package sink

import (
	"encoding/binary"
	"hash/maphash"
	"iter"
	"slices"
)

const (
	// chunkBytes is the size of a chunk of a markTable, and recordAlign the alignment of a
	// record in it, in bytes.
	chunkBytes  = 1 << 20
	recordAlign = 4
	// A slot is full of 32 bits: this limits a table to 16 GiB.
	mostChunks = (1<<32 - 1) / (chunkBytes / recordAlign)
)

// markTable maps IDs to marks in little memory: a topic of Atom or RSS may have millions of
// entries, and their marks are in memory as long as the feed is read. For an ID of 45
// characters and a usual mark it takes less than 100 bytes, where a map of strings takes 200.
//
// Nothing is deleted from it. It is not safe for concurrent use.
type markTable struct {
	// slots is a hash table with linear probing. A slot is the number of a record, or 0. There
	// are a power of two of them, of which at most 13/16 are used.
	slots []uint32
	used  int
	// chunks have the records: the ID and the packed mark, each with its length in front, as a
	// varint. A record begins at a multiple of recordAlign, and is whole in its chunk.
	chunks [][]byte
	// unused is the size of the records that were replaced, in bytes.
	unused int
	packed []byte // reused by setMark
}

// A record has the number of its chunk, and its offset in units of recordAlign, plus one.
func recordNumber(chunk, offset int) uint32 {
	return uint32(chunk*(chunkBytes/recordAlign) + offset/recordAlign + 1)
}

// recordAt returns the ID and the packed mark of a record.
func (t *markTable) recordAt(number uint32) (id, packed []byte) {
	number--
	record := t.chunks[number/(chunkBytes/recordAlign)][number%(chunkBytes/recordAlign)*recordAlign:]
	n, prefix := binary.Uvarint(record)
	id = record[prefix:][:n]
	rest := record[prefix+int(n):]
	n, prefix = binary.Uvarint(rest)
	return id, rest[prefix:][:n]
}

// findSlot returns the slot of an ID: the one with its record, or the free one for it.
func (t *markTable) findSlot(id string) *uint32 {
	for i := maphash.String(seeds[0], id); ; i++ {
		slot := &t.slots[i&uint64(len(t.slots)-1)]
		if *slot == 0 {
			return slot
		}
		if found, _ := t.recordAt(*slot); string(found) == id {
			return slot
		}
	}
}

// count returns the number of IDs.
func (t *markTable) count() int { return t.used }

// mark returns the mark of an ID.
func (t *markTable) mark(id string) (mark string, found bool) {
	if t.used == 0 {
		return "", false
	}
	slot := t.findSlot(id)
	if *slot == 0 {
		return "", false
	}
	_, packed := t.recordAt(*slot)
	return unpackMark(packed), true
}

// setMark sets the mark of an ID. It keeps neither string.
func (t *markTable) setMark(id, mark string) {
	t.packed = packMark(t.packed[:0], mark)
	if len(t.slots) == 0 || t.used >= len(t.slots)/16*13 {
		t.growSlots()
	}
	slot := t.findSlot(id)
	if *slot == 0 {
		t.used++
		*slot = t.addRecord(id, t.packed)
		return
	}
	_, before := t.recordAt(*slot)
	if len(before) == len(t.packed) {
		copy(before, t.packed)
		return
	}
	t.unused += recordSize(id, before)
	*slot = t.addRecord(id, t.packed)
	if t.unused > chunkBytes && t.unused > len(t.chunks)*chunkBytes/4 {
		t.rewrite()
	}
}

// recordSize returns an upper bound of the size of a record, in bytes.
func recordSize(id string, packed []byte) int { return 2*binary.MaxVarintLen32 + len(id) + len(packed) }

// addRecord adds a record and returns its number.
func (t *markTable) addRecord(id string, packed []byte) uint32 {
	last := len(t.chunks) - 1
	need := recordAlign + recordSize(id, packed)
	if last < 0 || len(t.chunks[last])+need > chunkBytes {
		if last++; last == mostChunks {
			panic("sink: the marks of a topic take more than 16 GiB")
		}
		t.chunks = append(t.chunks, nil)
	}
	c := t.chunks[last]
	if size := len(c) + need; size > cap(c) {
		if last > 0 { // only the first chunk is small for long
			size = chunkBytes
		}
		c = append(make([]byte, 0, max(len(c)+need, min(2*size, chunkBytes))), c...)
	}
	for len(c)%recordAlign != 0 {
		c = append(c, 0)
	}
	number := recordNumber(last, len(c))
	c = append(binary.AppendUvarint(c, uint64(len(id))), id...)
	t.chunks[last] = append(binary.AppendUvarint(c, uint64(len(packed))), packed...)
	return number
}

// growSlots doubles the number of slots.
func (t *markTable) growSlots() {
	before := t.slots
	t.slots = make([]uint32, max(16, 2*len(before)))
	for _, number := range before {
		if number != 0 {
			id, _ := t.recordAt(number)
			*t.findSlot(string(id)) = number
		}
	}
}

// rewrite drops the records that were replaced.
func (t *markTable) rewrite() {
	before := *t
	t.chunks, t.unused = nil, 0
	for i, number := range before.slots {
		if number != 0 {
			id, packed := before.recordAt(number)
			t.slots[i] = t.addRecord(string(id), packed)
		}
	}
}

// allIDs iterates over the IDs that the table has now, in no order. The table may be changed
// meanwhile, also by another goroutine.
func (t *markTable) allIDs() iter.Seq[string] {
	// Of a record only the mark is ever changed.
	now := markTable{slots: slices.Clone(t.slots), chunks: slices.Clone(t.chunks)}
	return func(yield func(string) bool) {
		for _, number := range now.slots {
			if number == 0 {
				continue
			}
			if id, _ := now.recordAt(number); !yield(string(id)) {
				return
			}
		}
	}
}
