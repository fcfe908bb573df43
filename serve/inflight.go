package serve

import (
	"sync"
	"sync/atomic"
)

// inflight is a page that is being built, from its announcement until it is cached. The build of
// its successor waits for its summary, and then finds the topic read up to there. It need not wait
// until the messages of the page are confirmed: if retention has deleted some of them meanwhile,
// the successor's own messages are not confirmed either.
type inflight struct {
	// started is set when the build has its slot, so that other builds may wait for it. They have slots
	// themselves: if they waited for a build without one, it might never get one.
	started atomic.Bool
	end     sync.Once     // closes read
	read    chan struct{} // closed when the summary is known, or the build has failed
	sum     *summary      // nil if the build has failed; set before read is closed
}

// inflightBuilds are the pages of a feed that are being built.
type inflightBuilds struct {
	mu    sync.Mutex // protects pages
	pages map[pageKey]*inflight
}

// announce returns the build of a page, which it adds if there is none. The caller calls end.
func (all *inflightBuilds) announce(key pageKey) *inflight {
	all.mu.Lock()
	defer all.mu.Unlock()
	b := all.pages[key]
	if b == nil {
		b = &inflight{read: make(chan struct{})}
		all.pages[key] = b
	}
	return b
}

// started returns the build of a page that has started, nil if there is none.
func (all *inflightBuilds) started(key pageKey) *inflight {
	all.mu.Lock()
	defer all.mu.Unlock()
	if b := all.pages[key]; b != nil && b.started.Load() {
		return b
	}
	return nil
}

// end ends a build. The page is in the cache, or the build has failed.
func (all *inflightBuilds) end(key pageKey, b *inflight) {
	b.setSummary(nil)
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.pages[key] == b {
		delete(all.pages, key)
	}
}

// setSummary sets the summary of a page that was read; nil if the build has failed. Only the first call
// counts.
func (b *inflight) setSummary(sum *summary) {
	b.end.Do(func() {
		b.sum = sum
		close(b.read)
	})
}
