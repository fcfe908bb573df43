package syndication

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// publishOrder says when an entry of a document is published: those of lower rank first.
type publishOrder [2]int64

func (r publishOrder) compareOrder(other publishOrder) int {
	return cmp.Or(cmp.Compare(r[0], other[0]), cmp.Compare(r[1], other[1]))
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

// item is an entry that is held.
type item struct {
	feedxml.Entry
	rank publishOrder
	hash [16]byte
	at   int // in the heap
}

// memorySize is the estimated memory of an item, in bytes.
func (it *item) memorySize() int {
	return len(it.Body) + len(it.ID) + len(it.By) + len(it.Comment) + len(it.Updated.Raw) + len(it.Published.Raw) + 400
}

// entryBuffer holds entries of a document, those that are published first. It is a
// heap with the last of them on top.
type entryBuffer struct {
	order feedxml.Order
	items []*item
	// byIndex finds an item by its place in the document.
	byIndex map[int]*item
	size    int
	limit   int
	// covered reports whether there is budget for the held entries; nil for no bound.
	covered func() bool
	// whole reports that every entry was taken, be it to publish or not. cut is the
	// lowest rank of those that had no room.
	whole bool
	cut   *publishOrder
}

func newWindow(o feedxml.Order, limit int) *entryBuffer {
	return &entryBuffer{order: o, byIndex: map[int]*item{}, limit: limit, whole: true}
}

// holdItem adds an entry. wanted reports whether an entry has to be published: when
// there is no room for all, only those are held.
func (w *entryBuffer) holdItem(it *item, wanted func(*item) bool) {
	if !w.whole && !wanted(it) {
		return
	}
	it.rank = rankOf(&it.Entry, w.order)
	if w.cut != nil && it.rank.compareOrder(*w.cut) >= 0 {
		return
	}
	heap.Push(w, it)
	w.byIndex[it.Index] = it
	w.size += it.memorySize()
	if w.whole && w.isFull() {
		w.whole = false
		kept := w.items[:0]
		for _, it := range w.items {
			if wanted(it) {
				it.at = len(kept)
				kept = append(kept, it)
			} else {
				w.forgetItem(it)
			}
		}
		clear(w.items[len(kept):])
		w.items = kept
		heap.Init(w)
	}
	for len(w.items) > 1 && w.isFull() {
		last := heap.Pop(w).(*item)
		w.forgetItem(last)
		w.cut = &last.rank
	}
}

// isFull reports whether more is held than may be.
func (w *entryBuffer) isFull() bool {
	return w.size > w.limit || w.covered != nil && !w.covered()
}

// removeItem takes out the entry with that place in the document, if it is held.
func (w *entryBuffer) removeItem(index int) {
	if it := w.byIndex[index]; it != nil {
		heap.Remove(w, it.at)
		w.forgetItem(it)
	}
}

func (w *entryBuffer) forgetItem(it *item) {
	delete(w.byIndex, it.Index)
	w.size -= it.memorySize()
}

// arrange sorts the items in the order in which they are published. Nothing may
// be taken after that.
func (w *entryBuffer) arrange(o feedxml.Order) {
	w.order = o
	for _, it := range w.items {
		it.rank = rankOf(&it.Entry, o)
	}
	slices.SortFunc(w.items, func(a, b *item) int { return a.rank.compareOrder(b.rank) })
	w.byIndex = nil
}

// dropFirst forgets the first item.
func (w *entryBuffer) dropFirst() {
	w.size -= w.items[0].memorySize()
	w.items[0] = nil
	w.items = w.items[1:]
}

func (w *entryBuffer) Len() int           { return len(w.items) }
func (w *entryBuffer) Less(i, j int) bool { return w.items[i].rank.compareOrder(w.items[j].rank) > 0 }
func (w *entryBuffer) Swap(i, j int) {
	w.items[i], w.items[j] = w.items[j], w.items[i]
	w.items[i].at, w.items[j].at = i, j
}

func (w *entryBuffer) Push(x any) {
	it := x.(*item)
	it.at = len(w.items)
	w.items = append(w.items, it)
}

func (w *entryBuffer) Pop() any {
	last := len(w.items) - 1
	it := w.items[last]
	w.items[last] = nil
	w.items = w.items[:last]
	return it
}
