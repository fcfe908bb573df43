// Package fleet decides which copy of feedbridge runs which feed.
//
// Copies with the same fleet name and bus are the members of a fleet. Each feed is run by one of
// those that have it in their configuration. A bus only reports who is a member, and what each has
// published: which feeds it can run. From that every member computes the same owners, without a leader.
// The same holds for the version of each [List] of feeds.
//
// Who runs a feed is no part of the promise: for a moment two members may run it, or none. The fence of
// the sink keeps the topic exact in both cases.
package fleet

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Bus is the bus by which the members of a fleet find each other. It decides nothing.
type Bus interface {
	// Join makes this copy a member until ctx ends, and then leaves, so that the others need not wait
	// for a time limit. It calls report from one goroutine at a time: when this copy has become a
	// member, and whenever members or their values have changed.
	//
	// It returns nil after ctx has ended, and otherwise an error. One that matches feed.ErrPermanent
	// requires action by a person; after any other one the caller calls Join again.
	Join(ctx context.Context, self Self, report func(Report)) error
}

// Self is this copy, as a bus makes it known to the others.
type Self struct {
	// Name is unique in the fleet. It is made by memberName.
	Name string
	// Value returns what this copy publishes at present. It is never empty. It changes with the time, since
	// it has a note.
	Value func() []byte
	// Changed has an element when Value returns something else than before. It is published at once.
	Changed <-chan struct{}
	// Noted has an element when the note in Value has changed, which changes nothing that a member does. A
	// bus that stores Value again and again anyway ignores it. Another one publishes Value as soon as that
	// costs little.
	Noted <-chan struct{}
}

// Report is what a bus knows of the members.
type Report struct {
	// Members are the values of all members, by name. A nil value is an entry that is no member's,
	// because it has not what the bus gives to members.
	Members map[string][]byte
	// Left are members that are known to have ended, so that they do not come back. Others that are
	// missing may only be silent.
	Left []string
	// Err is why the members are not known at present. The bus tries again by itself.
	Err error
}

// Assignment is the division of a fleet's feeds among its members, as far as one member knows
// it. It is immutable, and safe for concurrent use.
type Assignment struct {
	// Self is the name of this copy.
	Self string
	// Members are the names of all members, in order. Self is missing if this copy is not, or
	// no longer, one of them.
	Members []string
	// Owner returns the name of the member that runs the feed of a topic. It is empty if no
	// member can run it, as far as is known.
	Owner func(topic string) string
	// Different are the members that have other feeds than this copy, in order.
	Different []string
	// DifferentSince is when this copy first saw members with different feeds; zero if all have the
	// same.
	DifferentSince time.Time
	// OtherLists are the lists of which a member has not the version that the members agree on, by member.
	OtherLists map[string][]string
	// agreed are the versions that the members agree on, by list.
	agreed map[string]*Topics
	// held and confirmed are those of holds, and entries has those of the lists of this copy.
	held      map[entriesOf][]string
	confirmed map[entriesOf]bool
	entries   map[string]string
}

// Owns reports whether this copy runs the feed of a topic.
func (a Assignment) Owns(topic string) bool {
	return slices.Contains(a.Members, a.Self) && a.Owner(topic) == a.Self
}

// Rollout is the time for which members may have different feeds without a warning, as while their
// configurations are replaced one by one.
const Rollout = time.Minute

// StillDifferent reports whether the members have had different feeds for longer than Rollout.
func (a Assignment) StillDifferent(now time.Time) bool {
	return !a.DifferentSince.IsZero() && now.Sub(a.DifferentSince) >= Rollout
}

// memberName returns the name of a copy with the characters replaced that keys of a NATS bucket cannot
// have. Those of host names remain.
func memberName(writer string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, writer)
	if slices.Contains(strings.Split(name, "."), "") {
		name = strings.ReplaceAll(name, ".", "_") // subjects have no empty tokens
	}
	return name
}
