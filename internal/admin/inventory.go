package admin

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// inventory holds the feeds, served topics and buses of the process, and the outcome of the
// last reload. Its methods may be called from any goroutine.
type inventory struct {
	opts   Options
	redact *safetext.Redactor
	fleet  *Fleet // nil without one
	lists  feedLists
	// forward is nil without a fleet.
	forward *forwarder
	shared  *vectors
	config  configHistory

	mu   sync.Mutex // protects held
	held contents
}

// contents is what a process has. The slices do not change.
type contents struct {
	buses  byName[*busCheck]
	feeds  byName[*Feed]
	served byName[*Served]
	left   []*leftBehind // the oldest first
}

// byName are sorted by name, in natural order. They are copied before they change.
type byName[T interface{ name() string }] []T

// find returns the one of a name, or the index that it would have.
func (all byName[T]) find(name string) (i int, found bool) {
	return slices.BinarySearchFunc(all, name, func(each T, name string) int { return status.CompareNames(each.name(), name) })
}

// with returns all, and added in the place of the one of its name.
func (all byName[T]) with(added T) byName[T] {
	all = all.without(added.name())
	i, _ := all.find(added.name())
	return slices.Insert(all, i, added)
}

// without returns all but the one of a name.
func (all byName[T]) without(name string) byName[T] {
	return slices.DeleteFunc(slices.Clone(all), func(each T) bool { return each.name() == name })
}

// AddFeed returns the observer of the bridge that copies the feed. It takes the place of the
// feed of that name, if there is one, whose counters start again at zero.
func (n *inventory) AddFeed(opts FeedOptions) *Feed {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, found := n.held.feeds.find(opts.Name)
	f := newFeed(feedInfo{opts, n.opts.Writer, n.redact, n.fleet}, n.shared)
	if found {
		// The topic is as fresh as it was, and its chart continues.
		f.record.freshAt, f.record.title, f.history.activity = n.held.feeds[i].handOver()
		if owner, _ := n.fleet.membership().ownerElsewhere(opts.Topic); owner != "" {
			f.record.freshAt = time.Now() // another member has run it until now
		}
	}
	n.held.feeds = n.held.feeds.with(f)
	return f
}

// RemoveFeed removes a feed and its metrics.
func (n *inventory) RemoveFeed(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held.feeds = n.held.feeds.without(name)
}

// AddServed returns what watches a topic that is served as a feed. It takes the place of the
// one of that name, if there is one.
func (n *inventory) AddServed(opts ServedOptions) *Served {
	n.RemoveServed(opts.Name)
	f := &Served{opts: opts, redact: n.redact, shared: n.shared}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held.served = n.held.served.with(f)
	return f
}

// RemoveServed removes a served topic and its metrics.
func (n *inventory) RemoveServed(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, found := n.held.served.find(name); found {
		n.held.served[i].remove()
	}
	n.held.served = n.held.served.without(name)
}

// AddBus makes /readyz and /status ask a bus. It takes the place of the one of that name, if
// there is one.
func (n *inventory) AddBus(bus Bus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held.buses = n.held.buses.with(&busCheck{Bus: bus})
}

// RemoveBus removes a bus and its metrics.
func (n *inventory) RemoveBus(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held.buses = n.held.buses.without(name)
}

// contents returns what the process has at present.
func (n *inventory) contents() contents {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held
}

// details returns the status of a feed with its recent errors and entities. If another member of the fleet
// runs the feed, that member is asked. If it does not answer, the status has the reason.
func (n *inventory) details(ctx context.Context, f *Feed) status.Feed {
	owner, _ := n.fleet.membership().ownerElsewhere(f.opts.Topic)
	if owner == "" || IsForwarded(ctx) {
		return f.details(time.Now())
	}
	var row status.Feed
	err := n.forward.sendWithin(ctx, detailsTimeout, owner, http.MethodGet, "/status/"+url.PathEscape(f.opts.Name), &row)
	switch {
	case err == nil && row.Feed != f.opts.Name:
		err = fmt.Errorf("%s answers with another feed", owner)
	case err == nil && (row.Owner != "" || row.State == string(stateElsewhere)):
		err = fmt.Errorf("%s does not run the feed either; the fleet is dividing its feeds", owner)
	}
	if err != nil {
		n.readRemote()
		row = f.details(time.Now())
		row.OwnerError = n.redact.Clip(err.Error(), longestError)
		return row
	}
	row.Owner = n.redact.Clip(owner, longestName)
	return row
}

// ConfigLoaded records an attempt to load the configuration again. If err is not nil the one
// before stays in use.
func (n *inventory) ConfigLoaded(err error) { n.config.record(err) }

// AwaitFeeds returns when the state of every feed could be read once. If a defect keeps a lock
// that the bridges need too, it does not return.
func (n *inventory) AwaitFeeds() {
	for _, f := range n.contents().feeds {
		f.mu.Lock()
		f.mu.Unlock() //nolint:staticcheck // SA2001: whether the lock can be taken is the question
	}
}

// AddLeftBehind shows a feed that was stopped and has not ended, until remove is called. work returns
// what it waits for.
func (n *inventory) AddLeftBehind(name string, work func() string) (remove func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	added := &leftBehind{name, time.Now(), work}
	n.held.left = append(slices.Clip(n.held.left), added)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.held.left = slices.DeleteFunc(slices.Clone(n.held.left), func(l *leftBehind) bool { return l == added })
	}
}

// slowHosts returns the hosts that are asked less often. Their names may come from redirects.
func (n *inventory) slowHosts() []status.SlowHost {
	rows := []status.SlowHost{}
	if n.opts.SlowHosts != nil {
		for _, host := range n.opts.SlowHosts() {
			host.Host = n.redact.Clip(host.Host, longestError)
			rows = append(rows, host)
		}
	}
	return rows
}

// readRemote reads what other members have published about the feeds that they run. It returns the members of which
// that is about other feeds than those that they run now.
func (n *inventory) readRemote() (outdated map[string]bool) {
	outdated = map[string]bool{}
	if n.fleet == nil {
		return outdated
	}
	member, run, remote := n.fleet.membership(), map[string][]string{}, map[string]remoteFeed{}
	for _, f := range n.contents().feeds {
		if owner, _ := member.ownerElsewhere(f.opts.Topic); owner != "" {
			run[owner] = append(run[owner], f.opts.Name)
		}
	}
	for owner, note := range n.fleet.readNotes() {
		if owner == n.fleet.self || note.Digest == nil || !note.goneSince.IsZero() {
			continue
		}
		names := fnv.New64a()
		for _, name := range run[owner] {
			addName(names, name)
		}
		outdated[owner] = note.States.Names != namesSum(names)
		known := !outdated[owner] && len(note.States.Codes) == len(run[owner])
		for i, name := range run[owner] {
			r := remoteFeed{owner: owner, at: note.at}
			if known {
				if code := strings.IndexByte(stateCodes, note.States.Codes[i]); code >= 0 {
					r.state, r.attention = states[code/4], attentions[code%4]
				}
			}
			remote[name] = r
		}
		for i := range note.Digest.Troubles {
			t := &note.Digest.Troubles[i]
			if r := remote[t.Feed]; r.owner == owner {
				r.trouble = t
				remote[t.Feed] = r
			}
		}
	}
	n.fleet.remote.Store(&remote)
	return outdated
}
