package admin

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/fleet"
)

const (
	// longestNote limits the digest that a copy publishes, and longestNotes those of all members, in bytes:
	// Kafka stores the group with all its members in one record of 1 MB at most.
	longestNote, longestNotes = 16 << 10, 384 << 10
	// mostStates limits the states in the digest of another member. Another version may have other states.
	mostStates = 32
)

// memberNote is what a member publishes for the others.
type memberNote struct {
	// Admin is the host:port of its admin server, if others can reach it, and Seal shows that a member has
	// published it; see forwarder.
	Admin  string         `json:"admin,omitempty"`
	Seal   string         `json:"seal,omitempty"`
	Digest *status.Digest `json:"digest"`
	// States has the state of each feed that the member runs; nil from a version that does not publish it.
	States *feedStates `json:"states,omitempty"`

	at, goneSince time.Time
	troubles      map[string]*status.Trouble // of Digest, by feed
}

// fleetNotes are the notes of the members.
type fleetNotes struct {
	self    string                       // the name of this copy; empty before Follow
	seen    func() map[string]fleet.Seen // nil before Follow
	address string                       // of this copy

	mu      sync.Mutex // guards decoded
	decoded map[string]*memberNote
}

// read returns the notes of all members, and of those that are gone. One that cannot be read is missing.
// Nobody changes them. The texts are not trusted: others may write to the bus.
func (n *fleetNotes) read() map[string]*memberNote {
	if n.seen == nil {
		return nil
	}
	seen := n.seen()
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[string]*memberNote, len(seen))
	for name, s := range seen {
		note := n.decoded[name]
		if note == nil || !note.at.Equal(s.At) || !note.goneSince.Equal(s.GoneSince) {
			note = decodeNote(s)
		}
		all[name] = note
	}
	n.decoded = all
	return all
}

// decodeNote returns the note of a member. It has no digest if that is not one.
func decodeNote(s fleet.Seen) *memberNote {
	note := &memberNote{}
	if json.Unmarshal(s.Note, note) != nil {
		note = &memberNote{}
	}
	note.at, note.goneSince = s.At, s.GoneSince
	d := note.Digest
	if d == nil {
		return note
	}
	if len(d.States) > mostStates || d.Feeds < 0 || d.NeedYou < 0 || d.Failing < 0 || d.Behind < 0 || d.MoreTroubles < 0 {
		note.Digest = nil
		return note
	}
	d.Troubles = d.Troubles[:min(len(d.Troubles), status.MostTroubles)]
	note.troubles = map[string]*status.Trouble{}
	for i := range d.Troubles {
		note.troubles[d.Troubles[i].Feed] = &d.Troubles[i]
	}
	return note
}
