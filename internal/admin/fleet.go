package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/fleet"
)

// stateElsewhere is the state of a feed that another member of the fleet runs, or that no copy runs
// yet. It is no state of a bridge: this copy has none for the feed.
const stateElsewhere bridge.State = "elsewhere"

// Fleet is the membership of this copy in a fleet. Its methods may be called from any
// goroutine.
type Fleet struct {
	bus string

	mu    sync.Mutex // guards known
	known membership

	// The fields below are zero before Follow.
	self    string                       // the name of this copy
	seen    func() map[string]fleet.Seen // what the members have published
	address string                       // of the admin server of this copy
	// remote is what other members have published about the feeds that they run, by feed.
	remote atomic.Pointer[map[string]remoteFeed]
}

// membership has what this copy knew of its fleet at one moment. It is zero in a process without a fleet.
type membership struct {
	fleet string // the name
	// assignment is the last one; nil before the first.
	assignment *fleet.Assignment
	err        error // that requires action by a person; nil if there is none
	blind      bool  // the members are not known at present, so that the assignment may be old
}

// NewFleet returns the membership in the fleet with a name, whose members find each other by a
// bus. This copy is not a member yet.
func NewFleet(name, bus string) *Fleet { return &Fleet{bus: bus, known: membership{fleet: name}} }

// membership returns what is known at present. f may be nil.
func (f *Fleet) membership() membership {
	if f == nil {
		return membership{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known
}

// Assigned records the newest assignment.
func (f *Fleet) Assigned(a fleet.Assignment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known.assignment = &a
}

// Failed records why the members are not known at present, or nil when they are. An error that requires
// action by a person remains until then.
func (f *Fleet) Failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known.blind = err != nil
	if err == nil || errors.Is(err, feed.ErrPermanent) {
		f.known.err = err
	}
}

// ownerElsewhere returns whether a topic's feed is not run by this copy, and the member that
// runs it, if there is one. Without a fleet this copy runs all feeds.
func (m membership) ownerElsewhere(topic string) (owner string, elsewhere bool) {
	switch {
	case m.fleet == "":
		return "", false
	case m.assignment == nil:
		return "", true
	case m.assignment.Owns(topic):
		return "", false
	}
	return m.assignment.Owner(topic), true
}

// listVersion returns the digest of the version of a list on which the members agree, empty if there is none, and the
// members that hold the version of this copy.
func (m membership) listVersion(list string) (digest string, heldBy []string) {
	if m.assignment == nil {
		return "", nil
	}
	return m.assignment.Version(list), m.assignment.HeldBy(list)
}

// notMember returns why this copy is not a member and thus runs no feeds, "" if it is one.
func (m membership) notMember() string {
	isMember := m.assignment != nil && slices.Contains(m.assignment.Members, m.assignment.Self)
	text := fmt.Sprintf("fleet %s: this copy is not a member, and runs no feeds", m.fleet)
	switch {
	case m.fleet == "" || isMember && m.err == nil:
		return ""
	case isMember:
		text = fmt.Sprintf("fleet %s: this copy cannot take part, and keeps the feeds that it had", m.fleet)
	}
	if m.err != nil {
		text += ": " + m.err.Error()
	}
	return text
}

// differs returns a note that the members have had different feeds for longer than a rollout takes, "" if
// they have not.
func (m membership) differs(now time.Time) string {
	if m.assignment == nil || !m.assignment.StillDifferent(now) {
		return ""
	}
	return fmt.Sprintf("fleet %s: for %s members have had other feeds than this copy (%s); each feed is run by a member that has it",
		m.fleet, status.FormatDuration(now.Sub(m.assignment.DifferentSince)), strings.Join(m.assignment.Different, ", "))
}

var states = []bridge.State{
	bridge.Starting, bridge.Reading, bridge.Idle, bridge.Standby, bridge.Paused, bridge.Retrying, bridge.Halted, bridge.Stopped,
}

// states returns the states that feeds can be in.
func (m membership) states() []bridge.State {
	if m.fleet == "" {
		return states
	}
	return append(slices.Clip(states), stateElsewhere)
}

// Follow makes the fleet show what its members publish. self is the name of this copy and seen that of its
// [fleet.Member]; address is where the others reach the admin server of this copy, empty if they cannot. It is
// called before the first request.
func (f *Fleet) Follow(self string, seen func() map[string]fleet.Seen, address string) {
	f.self, f.seen, f.address = self, seen, address
}

// remoteOf returns what a member has published about a feed.
func (f *Fleet) remoteOf(owner, feed string) remoteFeed {
	if f == nil {
		return remoteFeed{}
	}
	if all := f.remote.Load(); owner != "" && all != nil && (*all)[feed].owner == owner {
		return (*all)[feed]
	}
	return remoteFeed{}
}
