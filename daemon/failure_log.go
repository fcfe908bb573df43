package daemon

import (
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/logonce"
)

const (
	// joinTime is how long after the first feed others with the same error are counted, before
	// their number is logged.
	joinTime = 5 * time.Second
	// mostCauses bounds the memory for causes.
	mostCauses = 10_000
	// namedFeeds is how many feeds a line names.
	namedFeeds = 10
)

// failureLog logs the failures of feeds: not each attempt of each feed, but each cause. When a
// bus with a thousand feeds goes down, it writes a line at once, one with their number, one
// every ten minutes, and one when it is over. It is not a [logonce.Causes], because it knows which
// feeds have a cause: it counts and names them, and one that only recovers ends it. It is safe for
// concurrent use.
type failureLog struct {
	log *slog.Logger

	mu     sync.Mutex // guards the fields below
	causes map[causeKey]*failureGroup
	feeds  map[string]*failureGroup // that fail, by name
}

// causeKey identifies a cause. Errors of one cause differ in the names of their feeds, and in numbers.
type causeKey struct {
	state bridge.State
	bus   string // of an error of the bus
	text  string
}

// failureGroup has the feeds that fail for one cause, or did until a moment ago.
type failureGroup struct {
	key   causeKey
	since time.Time
	err   error                // of the feed that had it first
	feeds map[string]time.Time // since when each has it
	// all counts the feeds that have ever had it, as far as is known.
	all int
	// eases is set when a feed was logged that works again, until the next line about the others.
	eases bool
	timer *time.Timer
}

func newFailureLog(log *slog.Logger) *failureLog {
	return &failureLog{log: log, causes: map[causeKey]*failureGroup{}, feeds: map[string]*failureGroup{}}
}

// failureObserver passes the states of one feed to the log.
type failureObserver struct {
	log  *failureLog
	name string
	bus  string
	own  []string // the names of the feed in its errors, as regular expressions
}

// newObserver returns the observer of a feed's bridge.
func (l *failureLog) newObserver(name string, f config.Feed) bridge.Observer {
	own := []string{regexp.QuoteMeta(name), regexp.QuoteMeta(f.To.Topic)}
	if f.To.Stream != nil && f.To.Stream.Name != "" {
		own = append(own, regexp.QuoteMeta(f.To.Stream.Name))
	}
	slices.SortFunc(own, func(a, b string) int { return len(b) - len(a) })
	return &failureObserver{l, name, f.To.Bus, own}
}

// Polled implements [bridge.Observer].
func (*failureObserver) Polled(feed.Batch, error, time.Duration) {}

// Processed implements [bridge.Observer].
func (*failureObserver) Processed(feed.Batch, time.Duration) {}

// Entered implements [bridge.Observer].
func (o *failureObserver) Entered(s bridge.Status) {
	switch s.State {
	case bridge.Retrying, bridge.Halted:
		o.log.recordFailure(o.keyOf(s), o.name, s)
	case bridge.Reading, bridge.Idle, bridge.Standby:
		o.log.recordRecovery(o.name)
	case bridge.Paused, bridge.Stopped:
		o.log.forget(o.name)
	}
}

var urlPath = regexp.MustCompile(`(https?://[^/\s"]+)/[^\s"]*`)

// keyOf returns the key of the cause of an error.
func (o *failureObserver) keyOf(s bridge.Status) causeKey {
	text := urlPath.ReplaceAllString(s.Err.Error(), "$1")
	// Compiled here, because it is larger than all else that is kept of a feed without errors.
	own := regexp.MustCompile(`\b(` + strings.Join(o.own, "|") + `)\b`)
	key := causeKey{state: s.State, text: logonce.WithoutNumbers(own.ReplaceAllString(text, "*"))}
	if bridge.IsSinkError(s.Err) {
		key.bus = o.bus
	}
	return key
}

// recordFailure logs a failure if it has a new cause.
func (l *failureLog) recordFailure(key causeKey, name string, s bridge.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.feeds[name]; was != nil {
		if was.key == key {
			return
		}
		delete(was.feeds, name) // its cause stays until its timer ends, in case the error returns
	}
	c := l.causes[key]
	if c == nil {
		c = l.add(key, s.Err)
		attrs := c.withBus("feed", name, "error", s.Err, "attempt", s.Attempt, "next_attempt_in", time.Until(s.Until).Round(time.Millisecond))
		if s.State == bridge.Halted {
			l.log.Error("feed halted", attrs...)
		} else {
			l.log.Warn("feed retrying", attrs...)
		}
	}
	c.all++
	c.feeds[name] = time.Now()
	l.feeds[name] = c
}

// add returns a new cause. l.mu is held.
func (l *failureLog) add(key causeKey, err error) *failureGroup {
	if len(l.causes) >= mostCauses {
		for _, c := range l.causes {
			if len(c.feeds) == 0 {
				l.remove(c)
			}
		}
	}
	c := &failureGroup{key: key, since: time.Now(), err: err, feeds: map[string]time.Time{}}
	c.timer = time.AfterFunc(joinTime, func() { l.remind(c, true) })
	l.causes[key] = c
	return c
}

func (l *failureLog) remove(c *failureGroup) {
	c.timer.Stop()
	delete(l.causes, c.key)
}

// remind logs how many feeds have a cause: after joinTime if several do, and then in each [logonce.Reminder].
func (l *failureLog) remind(c *failureGroup, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.causes[c.key] != c: // it is over
		return
	case len(c.feeds) == 0 && !first:
		l.remove(c)
		return
	case len(c.feeds) > 1 || !first:
		c.eases = false
		names := slices.Sorted(maps.Keys(c.feeds))
		attrs := c.withBus("feeds", len(c.feeds), "names", strings.Join(names[:min(len(names), namedFeeds)], ", "), "error", c.err, "for", time.Since(c.since).Round(time.Second))
		if c.key.state == bridge.Halted {
			l.log.Error("feeds halted with the same error", attrs...)
		} else {
			l.log.Warn("feeds retrying after the same error", attrs...)
		}
	}
	c.timer = time.AfterFunc(logonce.Reminder, func() { l.remind(c, false) })
}

// withBus returns the attributes of a line, with the bus if the error is one of a bus.
func (c *failureGroup) withBus(attrs ...any) []any {
	if c.key.bus != "" {
		attrs = append(attrs, "bus", c.key.bus)
	}
	return attrs
}

// recordRecovery logs that a feed works again: the first of those with its cause, and that the cause is over when it is
// the last one.
func (l *failureLog) recordRecovery(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.feeds[name]
	if c == nil {
		return
	}
	after := time.Since(c.feeds[name]).Round(time.Second)
	switch isLast := l.take(name, c); {
	case isLast && c.all > 1:
		l.log.Info("all feeds that had the error work again", c.withBus("feeds", c.all, "last", name, "after", time.Since(c.since).Round(time.Second), "error", c.err)...)
	case isLast:
		l.log.Info("feed works again", c.withBus("feed", name, "after", after, "error", c.err)...)
	case !c.eases:
		c.eases = true
		l.log.Info("feed works again", c.withBus("feed", name, "after", after, "others", len(c.feeds), "error", c.err)...)
	}
}

// take removes a feed from its cause, and reports whether it was the last one. l.mu is held.
func (l *failureLog) take(name string, c *failureGroup) bool {
	delete(l.feeds, name)
	delete(c.feeds, name)
	if len(c.feeds) > 0 {
		return false
	}
	l.remove(c)
	if len(l.feeds) == 0 {
		for _, c := range l.causes { // causes that feeds had before
			l.remove(c)
		}
	}
	return true
}

// forget removes a feed that was paused or stopped.
func (l *failureLog) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.feeds[name]; c != nil {
		l.take(name, c)
	}
}
