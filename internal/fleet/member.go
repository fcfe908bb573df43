package fleet

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
)

const (
	// Waits after errors that require action by a person double from the first to the second, and so
	// do those after other errors.
	minFixRetry, maxFixRetry = 5 * time.Second, time.Minute
	minRetry, maxRetry       = settleTime, 4 * time.Second
)

// Member is the membership of this copy in a fleet. It is safe for concurrent use.
type Member struct {
	self string
	log  *slog.Logger
	// changed and wake have capacity 1: the published value has changed, and the roster has.
	// noted is the same for the note of this copy.
	changed, wake, noted chan struct{}

	mu        sync.Mutex // guards the fields below
	roster    roster
	published string // the newest value
	// failing is set from the first error to the next report, and strangers are the names of entries
	// that are no member's, for the log.
	failing   bool
	strangers map[string]bool
	notes     notes
}

// NewMember returns the membership of the copy with a name. It does nothing before Run.
func NewMember(writer string, log *slog.Logger) *Member {
	name := memberName(writer)
	return &Member{
		self: name, log: log, roster: newRoster(name), strangers: map[string]bool{},
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), noted: make(chan struct{}, 1),
		notes: notes{seen: map[string]Seen{}},
	}
}

// SetTopics takes the topics of the feeds in this copy's configuration, and the lists that it has read, by name. It
// is called before Run, and when they change.
func (m *Member) SetTopics(names []string, lists map[string]List) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roster.setTopics(NewTopics(names), lists)
	m.publish()
}

// publish makes the bus publish the value of this copy if it has changed. The caller holds m.mu.
func (m *Member) publish() {
	if value := string(m.roster.value()); value != m.published {
		m.published = value
		signal(m.changed)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run takes part in the fleet until ctx ends, and then leaves it. It calls open before each attempt
// to join.
//
// It calls assigned whenever the assignment has changed, from one goroutine; the first time when this
// copy has become a member. assigned returns when the feeds that this copy owns no longer have ended their
// commits, or after a few seconds; a member that joins starts them after joinTime, and others may
// start them earlier, since the fence keeps topics exact.
//
// It calls failed with an error while the members are not known, and with nil when they are again.
// Meanwhile the last assignment remains. An error that matches feed.ErrPermanent requires action by a person.
func (m *Member) Run(ctx context.Context, open func(context.Context) (Bus, error), assigned func(Assignment), failed func(error)) {
	var joining sync.WaitGroup
	joining.Go(func() { m.join(ctx, open, failed) })
	defer joining.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var look <-chan time.Time
	if m.notes.own != nil {
		ticker := time.NewTicker(noteInterval)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-look:
			m.checkNote()
			continue
		case <-m.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if a, ok := m.next(); ok {
			assigned(a)
		}
		timer.Stop()
		if due := m.due(); !due.IsZero() {
			timer.Reset(time.Until(due))
		}
	}
}

// next returns the assignment that is due, if there is one.
func (m *Member) next() (Assignment, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if due := m.roster.warnDue(); !due.IsZero() && !now.Before(due) {
		m.roster.warned = true
		m.log.Warn("members of the fleet have other feeds than this copy; each feed is run by a member that has it", "members", m.roster.others(), "for", Rollout)
	}
	return m.roster.next(now)
}

// due returns when next is due; zero if that depends on a report.
func (m *Member) due() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	due, warn := m.roster.due, m.roster.warnDue()
	if due.IsZero() || !warn.IsZero() && warn.Before(due) {
		return warn
	}
	return due
}

// join joins until ctx ends.
func (m *Member) join(ctx context.Context, open func(context.Context) (Bus, error), failed func(error)) {
	self := Self{Name: m.self, Changed: m.changed, Noted: m.noted, Value: func() []byte {
		m.mu.Lock()
		m.published = string(m.roster.value())
		value := []byte(m.published)
		m.mu.Unlock()
		return m.addNote(value)
	}}
	fix, again := retry.Backoff{Min: minFixRetry, Max: maxFixRetry}, retry.Backoff{Min: minRetry, Max: maxRetry}
	for ctx.Err() == nil {
		began := time.Now()
		bus, err := open(ctx)
		if err == nil {
			err = bus.Join(ctx, self, func(r Report) {
				failed(r.Err)
				m.report(r)
			})
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxFixRetry {
			fix, again = retry.Backoff{Min: minFixRetry, Max: maxFixRetry}, retry.Backoff{Min: minRetry, Max: maxRetry}
		}
		failed(err)
		var wait time.Duration
		if errors.Is(err, feed.ErrPermanent) {
			wait = fix.Next()
			m.log.Error("this copy cannot take part in the fleet", "error", err, "retry_in", wait)
		} else {
			wait = again.Next()
			m.report(Report{Err: err})
		}
		m.interrupt()
		_ = retry.Sleep(ctx, wait)
	}
}

// interrupt records that the members are not known until the next report.
func (m *Member) interrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roster.interrupted = true
}

// report takes a report of the bus.
func (m *Member) report(r Report) {
	if r.Err != nil {
		m.interrupt()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Err != nil {
		if !m.failing {
			m.failing = true
			m.log.Warn("this copy does not see the other members of the fleet, and is trying again", "error", r.Err)
		}
		return
	}
	m.failing = false
	now := time.Now()
	cores, changed := m.notes.take(r.Members, r.Left, now)
	if !changed && len(r.Left) == 0 && !m.roster.interrupted {
		return // other notes at most
	}
	for _, name := range m.roster.report(cores, r.Left, now) {
		if !m.strangers[name] {
			m.strangers[name] = true
			m.log.Warn("the fleet has an entry that is no member's; it is ignored", "entry", name)
		}
	}
	m.publish()
	signal(m.wake)
}
