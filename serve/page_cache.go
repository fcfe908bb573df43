package serve

import (
	"container/list"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/feedbridge/feedbridge/connlimit"
)

// DefaultCacheSize is how much a [PageCache] holds by default, in bytes.
const DefaultCacheSize = 64 << 20

const (
	// builds is how many pages are made at a time. Each takes up to twice the
	// largest page that is held.
	builds = 4
	// streams is how many pages that are not held are sent at a time. Each takes
	// one message, and one reading of the topic.
	streams = 8
	// streamWait is how long others wait for one of them to end. Clients that ask
	// again get further than clients that keep waiting.
	streamWait = 10 * time.Second
	// streamPatience is how long such a client may keep the server waiting while
	// others wait.
	streamPatience = 2 * time.Second
)

// PageCache holds pages, for any number of feeds: those that were asked for last,
// and those that are being sent. It is never more than it was made for.
type PageCache struct {
	budget int64
	// largest is the largest page that is held.
	largest int64
	builds  *semaphore.Weighted
	streams *connlimit.Slots
	// snapshots lets one be built at a time: each takes memory for its keys, and
	// the moments of all feeds are the same.
	snapshots *semaphore.Weighted

	mu    sync.Mutex // protects used, pages and order, and refs, cached, held and packed of pages
	used  int64      // by pages that are cached or have refs
	pages map[pageKey]*list.Element
	order list.List // of *page, the one that was asked for last in front
}

// NewPageCache returns a PageCache that holds pages of budget bytes together; 0
// means [DefaultCacheSize].
func NewPageCache(budget int64) *PageCache {
	if budget <= 0 {
		budget = DefaultCacheSize
	}
	return &PageCache{
		budget: budget, largest: budget / 16, pages: map[pageKey]*list.Element{},
		builds: semaphore.NewWeighted(builds), streams: connlimit.NewSlots(streams, streamPatience), snapshots: semaphore.NewWeighted(1),
	}
}

// acquireStream returns a slot for a client that is sent a page that is not held. A client
// that is slow while others wait is evicted. It fails with errFull if no slot gets free.
func (m *PageCache) acquireStream(ctx context.Context, evict func()) (*connlimit.Slot, error) {
	waiting, cancel := context.WithTimeout(ctx, streamWait)
	defer cancel()
	slot, err := m.streams.Acquire(waiting, evict)
	if err != nil && ctx.Err() == nil {
		err = errFull
	}
	return slot, err
}

// acquirePage returns the page that is held under a key, nil if there is none. Whoever
// gets one releases it.
func (m *PageCache) acquirePage(key pageKey) *page {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.pages[key]
	if at == nil {
		return nil
	}
	m.order.MoveToFront(at)
	p := at.Value.(*page)
	p.refs++
	return p
}

// retainPage is for those to whom another has handed the page that it put.
func (m *PageCache) retainPage(p *page) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.refs == 0 && !p.cached {
		m.used += p.held
	}
	p.refs++
}

func (m *PageCache) releasePage(p *page) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.refs--
	if p.refs == 0 && !p.cached {
		m.used -= p.held
	}
}

// storePage takes a page in place of the one that there was. If there is no room for
// it, because all that is held is being sent, it loses its body.
func (m *PageCache) storePage(p *page) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := m.pages[p.pageKey]; at != nil {
		m.dropPage(at)
	}
	p.held = int64(cap(p.body)) + p.sum.memorySize() + pageOverhead
	if !m.makeRoom(p.held) {
		p.body, p.held = nil, 0 // no client has the page yet
		return
	}
	m.used += p.held
	p.cached = true
	m.pages[p.pageKey] = m.order.PushFront(p)
}

// storeGzip keeps the body in gzip, if there is room for it.
func (m *PageCache) storeGzip(p *page, packed []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.packed != nil {
		return true
	}
	more := int64(len(packed))
	if !m.makeRoom(more) {
		return false
	}
	p.packed = packed
	p.held += more
	if p.cached || p.refs > 0 {
		m.used += more
	}
	return true
}

// gzipBody returns the body in gzip, nil if it was not made yet.
func (m *PageCache) gzipBody(p *page) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.packed
}

// makeRoom makes room for n bytes by dropping the pages that were not requested for longest.
// It reports whether there is room.
func (m *PageCache) makeRoom(n int64) bool {
	for at := m.order.Back(); at != nil && m.used+n > m.budget; {
		next := at.Prev()
		if at.Value.(*page).refs == 0 {
			m.dropPage(at)
		}
		at = next
	}
	return m.used+n <= m.budget
}

func (m *PageCache) dropPage(at *list.Element) {
	p := m.order.Remove(at).(*page)
	delete(m.pages, p.pageKey)
	p.cached = false
	if p.refs == 0 {
		m.used -= p.held
	}
}

// pageOverhead is about how many bytes a page takes besides its body.
const pageOverhead = 1 << 10
