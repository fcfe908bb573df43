package serve

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/internal/connlimit"
	"github.com/feedbridge/feedbridge/internal/limit"
)

// DefaultCacheSize is the default size of a [PageCache], in bytes.
const DefaultCacheSize = 64 << 20

const (
	// streams limits the number of pages that are sent without being cached at a time. Each
	// takes the memory of one message, and one reader of the topic.
	streams = 8
	// streamWait limits how long a request waits for one of them to end. Clients that ask
	// again get further than clients that keep waiting.
	streamWait = 10 * time.Second
	// streamPatience limits how long such a client may keep the server waiting while others
	// wait.
	streamPatience = 2 * time.Second
)

// PageCache holds the most recently requested pages of any number of feeds, and the pages
// that are being sent. Together they never take more than its budget.
type PageCache struct {
	budget int64
	// largest is the largest page that is cached.
	largest int64
	builds  *limit.Limit
	streams *connlimit.Slots
	// snapshots is held during the build of a snapshot.
	snapshots *limit.Limit

	mu    sync.Mutex // protects used, pages and order, and refs, cached, cachedBytes and packed of pages
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
		builds: limit.New(limit.PageBuilds, 0), streams: connlimit.NewSlots(streams, streamPatience), snapshots: limit.New(limit.SnapshotBuilds, 0),
	}
}

// acquireStream returns a slot for a client that is sent a page that is not cached. A client
// that is slow while others wait is evicted. It fails with errFull if no slot gets free.
func (c *PageCache) acquireStream(ctx context.Context, evict func()) (*connlimit.Slot, error) {
	waiting, cancel := context.WithTimeout(ctx, streamWait)
	defer cancel()
	slot, err := c.streams.Acquire(waiting, evict)
	if err != nil && ctx.Err() == nil {
		err = errFull
	}
	return slot, err
}

// acquirePage returns the cached page with a key, or nil if there is none. The caller
// releases it.
func (c *PageCache) acquirePage(key pageKey) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.pages[key]
	if at == nil {
		return nil
	}
	c.order.MoveToFront(at)
	p := at.Value.(*page)
	p.refs++
	return p
}

// retainPage adds a reference to a page that the caller got from another goroutine. The
// caller releases it.
func (c *PageCache) retainPage(p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.refs == 0 && !p.cached {
		c.used += p.cachedBytes
	}
	p.refs++
}

func (c *PageCache) releasePage(p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.refs--
	if p.refs == 0 && !p.cached {
		c.used -= p.cachedBytes
	}
}

// storePage stores a page in place of an older version of it. If there is no room,
// because all cached pages are being sent, the page is not stored and its body is dropped.
func (c *PageCache) storePage(p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.pages[p.pageKey]; at != nil {
		c.dropPage(at)
	}
	p.cachedBytes = int64(cap(p.body)) + p.sum.memorySize() + pageOverhead
	if !c.makeRoom(p.cachedBytes) {
		p.body, p.cachedBytes = nil, 0 // no client has the page yet
		return
	}
	c.used += p.cachedBytes
	p.cached = true
	c.pages[p.pageKey] = c.order.PushFront(p)
}

// storeGzip keeps the body in gzip, if there is room for it.
func (c *PageCache) storeGzip(p *page, packed []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.packed != nil {
		return true
	}
	more := int64(len(packed))
	if !c.makeRoom(more) {
		return false
	}
	p.packed = packed
	p.cachedBytes += more
	if p.cached || p.refs > 0 {
		c.used += more
	}
	return true
}

// gzipBody returns the body in gzip, nil if it was not made yet.
func (c *PageCache) gzipBody(p *page) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.packed
}

// makeRoom makes room for n bytes by dropping the pages that were not requested for longest.
// It reports whether there is room.
func (c *PageCache) makeRoom(n int64) bool {
	for at := c.order.Back(); at != nil && c.used+n > c.budget; {
		next := at.Prev()
		if at.Value.(*page).refs == 0 {
			c.dropPage(at)
		}
		at = next
	}
	return c.used+n <= c.budget
}

func (c *PageCache) dropPage(at *list.Element) {
	p := c.order.Remove(at).(*page)
	delete(c.pages, p.pageKey)
	p.cached = false
	if p.refs == 0 {
		c.used -= p.cachedBytes
	}
}

// pageOverhead is about how many bytes a page takes besides its body.
const pageOverhead = 1 << 10
