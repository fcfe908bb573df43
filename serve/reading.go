package serve

import (
	"context"
	"fmt"
	"hash"
	"iter"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// peek is the number of positions after a page that are read with it, to find the first
// message of the next page. A separate request for that message would take about as long as
// the page.
const peek = 8

// reading reads the messages of a page, to build the page or to send it.
type reading struct {
	f *pageBuilder
	p *page
	// from is the first position to read, low the first of the page itself, and
	// high the one behind the last.
	from, low, high uint64
	before, own     *normalizer
	// next is the first position behind the page that has a message, if it has
	// been read.
	next uint64
	// The result of reading so far.
	entities int
	modified time.Time
	dated    bool // see [page.dated]

	// The written entities, all of them unless they are too large to be held. ends has
	// the end of each entity, in a format that has the newest first.
	b    []byte
	ends []int
	// versions holds, for each entity of a document, the entry of which it is a version.
	versions []version
	whole    bool
	hash     hash.Hash
	n        int64
}

// readEntities yields the page's entities.
func (r *reading) readEntities(ctx context.Context) iter.Seq2[*entity, error] {
	return func(yield func(*entity, error) bool) {
		if r.from >= r.high {
			return
		}
		var header feed.Header
		for record, err := range r.f.log.Read(ctx, r.from, min(r.high+peek, r.p.span.End)) {
			if err != nil {
				yield(nil, err)
				return
			}
			if record.Position >= r.high {
				r.next = record.Position
				return
			}
			e := r.f.decoder.decodeRecord(r.p.id.epoch, record, header)
			header = e.header
			if record.Position < r.low {
				r.before.normalizeNext(&e)
				continue
			}
			r.own.before = r.before.own
			if !r.p.linked && !r.own.normalizeNext(&e) {
				continue
			}
			r.entities++
			at := e.modified
			if r.p.linked {
				at = e.updateTime()
				r.dated = at.Unix() > r.modified.Unix()
			}
			if !r.p.linked || r.modified.Before(at) {
				r.modified = at
			}
			if !yield(&e, nil) {
				return
			}
		}
	}
}

// writeEntities reads and writes all entities. If the boundary occurs in one of them, it
// fails with errClash after the last one.
func (r *reading) writeEntities(ctx context.Context) error {
	// About as much as the last page of the feed had for so many positions.
	guess := r.f.density.Load() * int64(r.high-min(r.low, r.high))
	r.b = make([]byte, 0, min(guess+guess/16, r.f.memory.largest)+slack)
	var clash error
	for e, err := range r.readEntities(ctx) {
		if err != nil {
			return err
		}
		begin := len(r.b)
		r.b = r.f.format.appendEntity(r.b, r.p, e)
		part := r.b[begin:]
		if !r.p.linked && clashes(part, r.p.boundary) {
			clash = errClash
		}
		if err := r.addPart(part); err != nil {
			return err
		}
		if r.p.linked {
			r.versions = append(r.versions, version{e.entryID, e.op != feed.Patch})
		}
	}
	return clash
}

// addPart adds an entity that has been written behind the others.
func (r *reading) addPart(part []byte) error {
	r.n += int64(len(part))
	r.hash.Write(part)
	if r.n > r.f.memory.largest {
		if r.p.linked {
			return errTooLarge
		}
		r.whole = false
	}
	switch {
	case !r.whole:
		r.b = r.b[:0]
	case r.p.linked:
		r.ends = append(r.ends, len(r.b))
	}
	return nil
}

// version is an entity that others with the same ID may have replaced.
type version struct {
	id    string
	whole bool // it replaces those before it
}

// finishPage gives the page its bytes, once all else of it is known.
func (r *reading) finishPage() {
	p := r.p
	head, tail := r.f.format.headAndTail(r.f.cfg, p)
	chunks := r.bodyChunks()
	if r.f.format == JSONFeed {
		r.dropFirstComma(chunks)
	}
	p.length = int64(len(head)) + r.n + int64(len(tail))
	r.hash.Write(head)
	r.hash.Write(tail)
	p.tag = fmt.Sprintf("%x-%x", p.length, r.hash.Sum(nil))
	if !r.whole {
		return
	}
	if positions := int64(r.high - min(r.low, r.high)); positions > 0 {
		r.f.density.Store(r.n / positions)
	}
	if len(head) == 0 {
		if p.body = append(r.b, tail...); cap(p.body) > len(p.body)+len(p.body)/8+slack {
			p.body = slices.Clone(p.body)
		}
		return
	}
	p.body = append(make([]byte, 0, p.length), head...)
	for _, chunk := range chunks {
		p.body = append(p.body, chunk...)
	}
	p.body = append(p.body, tail...)
}

// dropFirstComma drops the comma before the first item of a JSON Feed.
func (r *reading) dropFirstComma(chunks [][]byte) {
	for i, chunk := range chunks {
		if len(chunk) > 0 {
			chunks[i] = chunk[1:]
			r.n--
			return
		}
	}
}

// slack is the memory that a page may leave unused, in bytes, besides an eighth of its
// size.
const slack = 1 << 10

// bodyChunks returns the parts of the body in order. A document has the newest entry first.
// Of entries with the same ID it has only the newest: they are versions of one entry,
// their own times may not show which is newer, and many readers take the last one that
// they see.
func (r *reading) bodyChunks() (chunks [][]byte) {
	if !r.p.linked || !r.whole {
		return [][]byte{r.b}
	}
	replaced := map[string]bool{}
	for i, end := range slices.Backward(r.ends) {
		begin := 0
		if i > 0 {
			begin = r.ends[i-1]
		}
		v := r.versions[i]
		if replaced[v.id] {
			r.n -= int64(end - begin)
			continue
		}
		replaced[v.id] = v.whole
		chunks = append(chunks, r.b[begin:end])
	}
	return chunks
}
