package admin

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/internal/safetext"
)

// inventory holds the feeds, served topics and buses of the process, and the outcome of the
// last reload. Its methods may be called from any goroutine.
type inventory struct {
	writer string
	redact *safetext.Redactor
	fleet  *Fleet // nil without one
	times  histograms
	config configHistory

	mu     sync.Mutex  // protects the fields below
	buses  []*busCheck // sorted by name
	feeds  []*Feed     // sorted by name
	served []*Served   // sorted by name
	left   []*leftBehind
}

// AddFeed returns the observer of the bridge that copies the feed. It takes the place of the
// feed of that name, if there is one, whose counters start again at zero.
func (n *inventory) AddFeed(opts FeedOptions) *Feed {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, found := slices.BinarySearchFunc(n.feeds, opts.Name, func(f *Feed, name string) int { return cmp.Compare(f.opts.Name, name) })
	if found {
		n.times.forgetFeed(opts.Name)
	}
	f := newFeed(opts, n.writer, n.redact, n.fleet, n.times)
	if found {
		// The topic is as fresh as it was.
		f.record.freshAt = n.feeds[i].copyRecord().freshAt
		if owner, _ := n.fleet.ownerElsewhere(opts.Topic); owner != "" {
			f.record.freshAt = time.Now() // another member has run it until now
		}
		n.feeds = slices.Delete(slices.Clone(n.feeds), i, i+1)
	}
	n.feeds = slices.Insert(n.feeds, i, f)
	return f
}

// RemoveFeed removes a feed and its metrics.
func (n *inventory) RemoveFeed(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.times.forgetFeed(name)
	n.feeds = slices.DeleteFunc(slices.Clone(n.feeds), func(f *Feed) bool { return f.opts.Name == name })
}

func (n *inventory) allFeeds() []*Feed {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.feeds)
}

// AddServed returns what watches a topic that is served as a feed. It takes the place of the
// one of that name, if there is one.
func (n *inventory) AddServed(opts ServedOptions) *Served {
	f := &Served{opts: opts, redact: n.redact, times: n.times}
	n.mu.Lock()
	defer n.mu.Unlock()
	i, found := slices.BinarySearchFunc(n.served, opts.Name, func(f *Served, name string) int { return cmp.Compare(f.opts.Name, name) })
	if found {
		n.served[i].remove()
		n.served = slices.Delete(slices.Clone(n.served), i, i+1)
	}
	n.served = slices.Insert(n.served, i, f)
	return f
}

// RemoveServed removes a served topic and its metrics.
func (n *inventory) RemoveServed(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.served = slices.DeleteFunc(slices.Clone(n.served), func(f *Served) bool {
		if f.opts.Name == name {
			f.remove()
		}
		return f.opts.Name == name
	})
}

func (n *inventory) allServed() []*Served {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.served)
}

// AddBus makes /readyz and /status ask a bus. It takes the place of the one of that name, if
// there is one.
func (n *inventory) AddBus(bus Bus) {
	n.RemoveBus(bus.Name)
	n.mu.Lock()
	defer n.mu.Unlock()
	i, _ := slices.BinarySearchFunc(n.buses, bus.Name, func(b *busCheck, name string) int { return cmp.Compare(b.Name, name) })
	n.buses = slices.Insert(slices.Clone(n.buses), i, &busCheck{Bus: bus})
}

// RemoveBus removes a bus and its metrics.
func (n *inventory) RemoveBus(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.buses = slices.DeleteFunc(slices.Clone(n.buses), func(b *busCheck) bool { return b.Name == name })
}

// ConfigLoaded records an attempt to load the configuration again. If err is not nil the one
// before stays in use.
func (n *inventory) ConfigLoaded(err error) { n.config.record(err) }

func (n *inventory) allBuses() []*busCheck {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.buses)
}

// AwaitFeeds returns when the state of every feed could be read once. If a defect keeps a lock
// that the bridges need too, it does not return.
func (n *inventory) AwaitFeeds() {
	for _, f := range n.allFeeds() {
		f.mu.Lock()
		f.mu.Unlock() //nolint:staticcheck // SA2001: whether the lock can be taken is the question
	}
}
