package admin

import (
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// leftBehind is a feed that was stopped and has not ended.
type leftBehind struct {
	name  string
	since time.Time
	work  func() string
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

// leftBehind returns the feeds that were left behind, the oldest first.
func (n *inventory) leftBehind() []status.LeftBehind {
	rows := []status.LeftBehind{}
	for _, l := range n.contents().left {
		rows = append(rows, status.LeftBehind{Feed: l.name, Since: formatTime(l.since), Work: n.redact.Clip(l.work(), longestError)})
	}
	return rows
}

// slowHosts returns the hosts that are asked less often. Their names may come from redirects.
func (n *inventory) slowHosts() []status.SlowHost {
	rows := []status.SlowHost{}
	if n.slow != nil {
		for _, host := range n.slow() {
			host.Host = n.redact.Clip(host.Host, longestError)
			rows = append(rows, host)
		}
	}
	return rows
}
