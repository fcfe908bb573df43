package fleet

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

const (
	// noteInterval is how often a member looks whether its note has changed.
	noteInterval = 10 * time.Second
	// noteAge is after how long a note is published again if only its text has changed.
	noteAge = 5 * time.Minute
	// longestNote is the largest note of another member that is kept, in bytes. Those of this program are
	// smaller.
	longestNote = 32 << 10
	// goneTime is how long a member is remembered that is gone, and mostGone how many of them are.
	goneTime = time.Hour
	mostGone = 100
)

// Note is what a member tells the others besides its topics. This package does not read it.
type Note struct {
	// Text is JSON.
	Text []byte
	// Key changes when the others should know the new text soon.
	Key string
}

// Seen is a member as this copy sees it.
type Seen struct {
	// Note is the text of its last note; nil if it has none.
	Note json.RawMessage
	// At is when the bus last reported a value of it that was new.
	At time.Time
	// GoneSince is when the bus first reported that it is not a member any more; zero if it is one.
	GoneSince time.Time
}

// notes are the notes of the members. Member.mu guards them.
type notes struct {
	own       func(members int) Note // nil if there is none
	published Note                   // the last one that the bus has taken, at that time
	at        time.Time
	seen      map[string]Seen
	// values are the members' values as reported, and cores the same without notes.
	values map[string]string
	cores  map[string][]byte
}

// SetNote sets the function that returns the note of this copy, for a fleet of so many members. It is called
// before Run.
func (m *Member) SetNote(note func(members int) Note) { m.notes.own = note }

// Name returns the name of this copy in the fleet.
func (m *Member) Name() string { return m.self }

// Seen returns the members by name, this copy included, and those that are gone since less than an hour.
// One that has left is not among them if the bus reports that it did.
func (m *Member) Seen() map[string]Seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.notes.seen)
}

// noteKey is the key of the note in a value, which is a JSON object.
const noteKey = "note"

// addNote adds the note of this copy to its value.
func (m *Member) addNote(value []byte) []byte {
	if m.notes.own == nil {
		return value
	}
	m.mu.Lock()
	members := len(m.roster.present)
	m.mu.Unlock()
	note := m.notes.own(max(members, 1))
	m.mu.Lock()
	m.notes.published, m.notes.at = note, time.Now()
	m.mu.Unlock()
	value = append(slices.Clip(value[:len(value)-1]), `,"`+noteKey+`":`...)
	return append(append(value, note.Text...), '}')
}

// checkNote makes the bus publish the note of this copy if the others should know it.
func (m *Member) checkNote() {
	m.mu.Lock()
	members, last, at := len(m.roster.present), m.notes.published, m.notes.at
	m.mu.Unlock()
	if note := m.notes.own(max(members, 1)); note.Key != last.Key || time.Since(at) >= noteAge && string(note.Text) != string(last.Text) {
		signal(m.noted)
	}
}

// take takes the values of a report, and returns them without the notes, and whether they have changed.
func (n *notes) take(members map[string][]byte, left []string, now time.Time) (cores map[string][]byte, changed bool) {
	cores, values := map[string][]byte{}, map[string]string{}
	for name, value := range members {
		before, known := n.values[name]
		if values[name] = string(value); known && before == values[name] {
			cores[name] = n.cores[name]
			continue
		}
		var note json.RawMessage
		cores[name], note = splitNote(value)
		n.seen[name] = Seen{Note: note, At: now}
	}
	changed = n.cores == nil || !maps.EqualFunc(cores, n.cores, func(a, b []byte) bool { return (a == nil) == (b == nil) && string(a) == string(b) })
	n.cores, n.values = cores, values
	for _, name := range left {
		delete(n.seen, name)
	}
	var gone []string
	for name, seen := range n.seen {
		switch _, present := members[name]; {
		case present:
			continue
		case seen.GoneSince.IsZero():
			seen.GoneSince = now
			n.seen[name] = seen
		case now.Sub(seen.GoneSince) > goneTime:
			delete(n.seen, name)
			continue
		}
		gone = append(gone, name)
	}
	slices.SortFunc(gone, func(a, b string) int { return n.seen[b].GoneSince.Compare(n.seen[a].GoneSince) })
	for _, name := range gone[min(len(gone), mostGone):] {
		delete(n.seen, name)
	}
	return cores, changed
}

// splitNote returns a value without its note, and the note.
func splitNote(value []byte) (core []byte, note json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) != nil || fields[noteKey] == nil {
		return value, nil
	}
	note = fields[noteKey]
	delete(fields, noteKey)
	core, err := json.Marshal(fields)
	if err != nil {
		return value, nil
	}
	if len(note) > longestNote {
		note = nil
	}
	return core, note
}
