package page

import (
	"sync"
	"sync/atomic"

	"github.com/feedbridge/feedbridge/feed"
)

// Buffers hold the memory of the parts that one or several Readers have returned while they
// were set as [Reader.Buffers]. The zero Buffers hold nothing. They are used by one goroutine
// at a time.
type Buffers struct{ chunks []*chunk }

// Free makes the memory available to other Readers. From then on the parts, and the strings and
// slices that were made from them without a copy, must not be used any more: their bytes may be
// those of other parts. Memory that is not freed is garbage when nothing refers to it.
func (b *Buffers) Free() {
	for _, c := range b.chunks {
		c.release()
	}
	b.chunks = nil
}

// retain keeps a chunk until Free is called.
func (b *Buffers) retain(c *chunk) {
	if n := len(b.chunks); n > 0 && b.chunks[n-1] == c {
		return
	}
	c.holders.Add(1)
	b.chunks = append(b.chunks, c)
}

// chunk is a buffer of largestChunk bytes that can be used again, with the headers of the parts
// in it. Its holders are the Reader that reads into it, and the Buffers that have parts of it.
type chunk struct {
	bytes   []byte
	fields  []feed.Field
	counted bool // the array of fields is reserved
	holders atomic.Int32
}

// maxKeptFields bounds the array of fields of a chunk that is used again. Parts of 100 bytes with five
// headers take half of it.
const maxKeptFields = 2048

var chunks = sync.Pool{New: func() any { return &chunk{bytes: make([]byte, largestChunk)} }}

// newChunk returns a chunk with one holder.
func newChunk() *chunk {
	c := chunks.Get().(*chunk)
	c.holders.Store(1)
	return c
}

// release removes a holder. A chunk without one is used again. The fields of its headers are
// cleared first, because their strings may keep other memory. Under the race detector its bytes are
// cleared, too, so that a test sees a part that is used too late. To clear them always would take
// 1% to 3% of the processor time of a copy.
func (c *chunk) release() {
	if c == nil || c.holders.Add(-1) > 0 {
		return
	}
	if underRace {
		clear(c.bytes)
	}
	clear(c.fields)
	if c.fields = c.fields[:0]; cap(c.fields) > maxKeptFields {
		c.fields = nil
	}
	c.counted = false
	chunks.Put(c)
}
