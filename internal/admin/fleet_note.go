package admin

import (
	"encoding/json"
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
	// States has the state of each feed that the member runs.
	States feedStates `json:"states"`

	at, goneSince time.Time
}

// readNotes returns the notes of all members, and of those that are gone. The texts are not trusted: others may write
// to the bus.
func (f *Fleet) readNotes() map[string]*memberNote {
	if f.seen == nil {
		return nil
	}
	all := map[string]*memberNote{}
	for name, s := range f.seen() {
		all[name] = decodeNote(s)
	}
	return all
}

// decodeNote returns the note of a member. It has no digest if that is not one.
func decodeNote(s fleet.Seen) *memberNote {
	note := &memberNote{}
	if json.Unmarshal(s.Note, note) != nil {
		note = &memberNote{}
	}
	note.at, note.goneSince = s.At, s.GoneSince
	if d := note.Digest; d != nil {
		if len(d.States) > mostStates || d.Feeds < 0 || d.NeedYou < 0 || d.Failing < 0 || d.Behind < 0 || d.MoreTroubles < 0 {
			note.Digest = nil
		} else {
			d.Troubles = d.Troubles[:min(len(d.Troubles), status.MostTroubles)]
		}
	}
	return note
}
