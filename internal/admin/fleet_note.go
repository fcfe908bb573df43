package admin

import (
	"encoding/json"
	"fmt"
	"strings"
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

// Follow makes the fleet show what its members publish. self is the name of this copy and seen that of its
// [fleet.Member]; address is where the others reach the admin server of this copy, empty if they cannot. It is
// called before the first request.
func (f *Fleet) Follow(self string, seen func() map[string]fleet.Seen, address string) {
	f.notes.self, f.notes.seen, f.notes.address = self, seen, address
}

// failed reports whether an error keeps this copy from taking part that requires action by a person.
func (f *Fleet) failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err != nil
}

// Note returns what this copy publishes in a fleet of so many members.
func (s *Server) Note(members int) fleet.Note {
	d := s.digest(time.Now(), min(longestNote, longestNotes/members))
	note := memberNote{Admin: s.fleet.notes.address, Digest: &d}
	if note.Admin != "" {
		if key, err := s.forward.sealKey(); err == nil && key != nil {
			note.Seal = addressSeal(key, s.fleet.notes.self, note.Admin)
		}
	}
	text, err := json.Marshal(note)
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	// What changes all the time is not in the key.
	key := []string{note.Admin, note.Seal, fmt.Sprint(d.Feeds, d.NeedYou)}
	for _, t := range d.Troubles {
		key = append(key, t.Feed, t.State)
	}
	return fleet.Note{Text: text, Key: strings.Join(key, "\n")}
}

// readNotes returns the notes of all members, and of those that are gone. One that cannot be read is missing.
// Nobody changes them. The texts are not trusted: others may write to the bus.
func (f *Fleet) readNotes() map[string]*memberNote {
	if f == nil || f.notes.seen == nil {
		return nil
	}
	seen := f.notes.seen()
	f.notes.mu.Lock()
	defer f.notes.mu.Unlock()
	all := make(map[string]*memberNote, len(seen))
	for name, s := range seen {
		note := f.notes.decoded[name]
		if note == nil || !note.at.Equal(s.At) || !note.goneSince.Equal(s.GoneSince) {
			note = decodeNote(s)
		}
		all[name] = note
	}
	f.notes.decoded = all
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

// noteOf returns the note of a member; nil if there is none.
func (f *Fleet) noteOf(member string) *memberNote { return f.readNotes()[member] }

// troubleOf returns what a member has published about a feed that needs a person; nil if it has not.
func (f *Fleet) troubleOf(member, feed string) *status.Trouble {
	if note := f.noteOf(member); member != "" && note != nil {
		return note.troubles[feed]
	}
	return nil
}
