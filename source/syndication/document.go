package syndication

import (
	"cmp"
	"container/heap"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// request is a request for a document, and the way in which its answer is read.
type request struct {
	url string
	// etag and modified make it conditional.
	etag, modified string
	// archive reports that it is not the subscription document, and late that newer
	// documents are published, which may have replaced its entries.
	archive, late bool
	// believe is the update time of the subscription document of the walk; see [document.asOf].
	believe instant
	// from skips the published part of the document, if the body is still the same.
	from *progress
	// order is the expected order of the entries.
	order feedxml.Order
	// next are the URLs of the documents that are requested while this one is read.
	next []string
}

// document is a document of the feed as it was read.
type document struct {
	request
	meta     feedxml.Meta
	response *source.Response
	// unmodified reports that the server sent no document, because it has not changed
	// or does not exist.
	unmodified bool
	// partial reports that it has only a part of its entries (RFC 3229).
	partial bool
	// hash is over the entries, the links, and the fields that decide the dialect. The
	// time and the generator of the document do not change it. digest computes it.
	hash    string
	digest  hash.Hash
	order   feedxml.Order
	dialect Dialect
	// depth is the number of newer documents in the walk.
	depth int
	// hasVersions reports that its entries with the same atom:id are versions of one entry.
	hasVersions bool
	// broken reports that it is not well-formed, so that nothing is deleted because of
	// it, and repair that its entries are published in well-formed XML.
	broken, repair bool
	// truncated reports that the document breaks off, and unsure that elements which
	// describe it may be missing, such as its links to older documents.
	truncated, unsure bool
	// deletes reports that the entries which it lacks were deleted, and withheld that
	// they would be if the document were well-formed.
	deletes, withheld bool
	// updated is the time of its last change, unless that is implausible, and now the time
	// at which it was read.
	updated instant
	now     time.Time

	buffer   *entryBuffer
	versions versions
	// entries counts all entries, tombstones included; fresh counts those whose ID the
	// topic lacks, and known those whose ID it has.
	entries, fresh, known int
	// lastKnown reports that the last entry is in the topic, or is from before the start.
	lastKnown bool
	newest    instant
	// shared counts the entries whose ID is extended, and sharedID is the first such ID.
	shared   int
	sharedID string
	// titleHashes are those of the first entries that have an ID of their own.
	titleHashes titleHashes
	seen        violationSet
}

// permanentURL returns the URL that a document has for ever, in a feed of that dialect; "" if it has none.
func (d *document) permanentURL(dialect Dialect) string {
	if dialect != Snapshots {
		return ""
	}
	this, _ := d.meta.Link("this")
	return withoutFragment(this.Href)
}

// isWhole reports whether the document is the state of the feed.
func (d *document) isWhole() bool { return d.dialect == Complete && !d.archive && !d.partial }

// asOf returns the time that is compared with that of a published version. All documents of a walk
// have the one of the subscription document, and their order decides: an archive may have been
// written, or dated, long after its entries.
func (d *document) asOf() instant {
	if d.archive {
		return d.believe
	}
	return d.updated
}

// memorySize returns the estimated memory of a document that waits to be published, in
// bytes.
func (d *document) memorySize() int {
	n := d.buffer.size + len(d.url) + len(d.meta.ID) + len(d.meta.Title) + 2000
	for _, l := range d.meta.Links {
		n += len(l.Href) + len(l.Raw) + len(l.Type) + len(l.Rel) + 150
	}
	return n
}

// hashContent computes d.hash.
func (d *document) hashContent() {
	m := &d.meta
	fmt.Fprintf(d.digest, "%v %v %q %q\n", m.Complete, m.Archive, m.Incremental, m.Prev)
	for _, l := range m.Links {
		fmt.Fprintf(d.digest, "%q %q\n", l.Rel, l.Href)
	}
	d.hash = hex.EncodeToString(d.digest.Sum(nil)[:12])
	d.digest = nil
}

// bufferedBytes returns the estimated memory of the entries and the IDs of a document, in bytes.
func (d *document) bufferedBytes() int64 {
	return int64(d.buffer.size) + int64(len(d.versions.ids))*versionBytes
}

// dropIDs drops the IDs of a document, unless they have to be compared with those of
// the topic.
func (d *document) dropIDs() {
	if !d.deletes {
		d.versions.ids = nil
	}
}

// publishOrder is the rank of an entry in its document. Entries of lower rank are
// published first.
type publishOrder [2]int64

func (o publishOrder) compareOrder(other publishOrder) int {
	return cmp.Or(cmp.Compare(o[0], other[0]), cmp.Compare(o[1], other[1]))
}

// rankOf returns the rank of an entry in a document of the given order.
func rankOf(e *feedxml.Entry, o feedxml.Order) publishOrder {
	switch at := int64(e.Index); o {
	case feedxml.OldestFirst:
		return publishOrder{0, at}
	case feedxml.Mixed:
		return publishOrder{int64(instantOf(e.Updated.Time)), -at}
	default:
		return publishOrder{0, -at}
	}
}

// item is an entry in the buffer.
type item struct {
	feedxml.Entry // with the ID under which it is published
	// own is the ID that the feed has.
	own  string
	rank publishOrder
	at   int // in the heap
}

// shortHash returns the part of the hash that is stored.
func (it *item) shortHash() [16]byte { return [16]byte(it.Hash[:16]) }

// memorySize returns the estimated memory of an item, in bytes.
func (it *item) memorySize() int {
	return len(it.Body) + len(it.ID) + len(it.Updated.Raw) + len(it.Published.Raw) + 400
}

// entryBuffer has the entries of a document that are published first. It is a heap with
// the last of them on top.
type entryBuffer struct {
	order feedxml.Order
	items []*item
	// byIndex has the items by their index in the document.
	byIndex map[int]*item
	size    int
	limit   int
	// covered reports whether there is budget for the entries; nil for no bound.
	covered func() bool
	// whole reports that the buffer has every entry, whether it is to be published or
	// not. cut is the lowest rank of those that had no room.
	whole bool
	cut   *publishOrder
}

func newEntryBuffer(o feedxml.Order, limit int) *entryBuffer {
	return &entryBuffer{order: o, byIndex: map[int]*item{}, limit: limit, whole: true}
}

// addItem adds an entry. wanted reports whether an entry has to be published: when
// there is no room for all, the buffer has only those.
func (b *entryBuffer) addItem(it *item, wanted func(*item) bool) {
	if !b.whole && !wanted(it) {
		return
	}
	it.rank = rankOf(&it.Entry, b.order)
	if b.cut != nil && it.rank.compareOrder(*b.cut) >= 0 {
		return
	}
	heap.Push(b, it)
	b.byIndex[it.Index] = it
	b.size += it.memorySize()
	if b.whole && b.isFull() {
		b.whole = false
		kept := b.items[:0]
		for _, it := range b.items {
			if wanted(it) {
				it.at = len(kept)
				kept = append(kept, it)
			} else {
				b.dropItem(it)
			}
		}
		clear(b.items[len(kept):])
		b.items = kept
		heap.Init(b)
	}
	for len(b.items) > 1 && b.isFull() {
		last := heap.Pop(b).(*item)
		b.dropItem(last)
		b.cut = &last.rank
	}
}

// isFull reports whether the buffer is over its limit.
func (b *entryBuffer) isFull() bool {
	return b.size > b.limit || b.covered != nil && !b.covered()
}

// removeItem removes the entry with that index in the document, if the buffer has it.
func (b *entryBuffer) removeItem(index int) {
	if it := b.byIndex[index]; it != nil {
		heap.Remove(b, it.at)
		b.dropItem(it)
	}
}

// renameItem changes the ID of an item.
func (b *entryBuffer) renameItem(it *item, id string) {
	b.size += len(id) - len(it.ID)
	it.ID = id
}

func (b *entryBuffer) dropItem(it *item) {
	delete(b.byIndex, it.Index)
	b.size -= it.memorySize()
}

// arrange sorts the items in the order in which they are published. No item may be
// added after that.
func (b *entryBuffer) arrange(o feedxml.Order) {
	b.order = o
	for _, it := range b.items {
		it.rank = rankOf(&it.Entry, o)
	}
	slices.SortFunc(b.items, func(a, b *item) int { return a.rank.compareOrder(b.rank) })
	b.byIndex = nil
}

// dropFirst removes the first item.
func (b *entryBuffer) dropFirst() {
	b.size -= b.items[0].memorySize()
	b.items[0] = nil
	b.items = b.items[1:]
}

func (b *entryBuffer) Len() int           { return len(b.items) }
func (b *entryBuffer) Less(i, j int) bool { return b.items[i].rank.compareOrder(b.items[j].rank) > 0 }

func (b *entryBuffer) Swap(i, j int) {
	b.items[i], b.items[j] = b.items[j], b.items[i]
	b.items[i].at, b.items[j].at = i, j
}

func (b *entryBuffer) Push(x any) {
	it := x.(*item)
	it.at = len(b.items)
	b.items = append(b.items, it)
}

func (b *entryBuffer) Pop() any {
	last := len(b.items) - 1
	it := b.items[last]
	b.items[last] = nil
	b.items = b.items[:last]
	return it
}
