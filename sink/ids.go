package sink

import (
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

// DefaultWindow is the number of IDs that an [IDs] holds unless told otherwise.
const DefaultWindow = 100_000

// IDs are the newest IDs that a topic holds, so that an entity which its feed
// repeats can be told. They are memory that the topic can always rebuild: a
// sink loads them when it resumes and advances them when it commits.
//
// Reading runs ahead of committing, so an ID is first added as read, and made
// permanent when its entity has been committed. What was read and not committed
// is forgotten by [IDs.Rollback] when a sink resumes.
//
// Entities with a mark are another matter: of each ID the newest mark is held,
// however many there are, so that their source can tell what has changed. They
// take what the ID and the mark do, and about 100 bytes.
//
// IDs without marks take about 50 bytes each. They are safe for concurrent use: a reader adds
// while a writer commits.
type IDs struct {
	window int

	mu sync.Mutex
	// held has the keys of ring and read, and which of the two has each.
	held map[key]state
	// ring has the permanent keys. It grows up to window; from then on oldest
	// is the place of the oldest, which the next one replaces.
	ring   []key
	oldest int
	// marks has the permanent marks, by ID, and readMarks those that were set
	// and not committed.
	marks     map[string]string
	readMarks map[string]readMark
	// read has the keys that were added and not committed, in their order. It
	// does not count towards the window: a permanent key never makes room for
	// one that may yet be forgotten.
	read []key
}

// key is a hash of 128 bits: two of 100,000 IDs share one with a chance of 1 in
// 10^28. Its seeds are the process's own, so nobody can make them do so.
type key [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// readMark is the newest mark of an ID that was set and not committed, and how
// many of that ID were.
type readMark struct {
	mark    string
	pending int
}

type state uint8

const (
	_ state = iota
	tentative
	permanent
)

// NewIDs returns an empty IDs that holds the newest window permanent IDs;
// [DefaultWindow] if window is 0.
func NewIDs(window int) *IDs {
	if window <= 0 {
		window = DefaultWindow
	}
	return &IDs{window: window, held: make(map[key]state)}
}

func keyOf(id string) key {
	return key{maphash.String(seeds[0], id), maphash.String(seeds[1], id)}
}

// Add takes an ID as read, and says whether it is fresh: neither held by the
// topic nor read before.
func (s *IDs) Add(id string) (fresh bool) {
	k := keyOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[k] != 0 {
		return false
	}
	s.held[k] = tentative
	s.read = append(s.read, k)
	return true
}

// Commit makes the IDs of entities permanent, whether they were added or not.
// They are the newest from then on.
func (s *IDs) Commit(entities []feed.Entity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range entities {
		if e := &entities[i]; e.Mark == "" {
			s.keep(keyOf(e.ID))
		} else {
			s.keepMark(e.ID, e.Mark, true)
		}
	}
}

// Load makes an ID permanent that the topic is seen to hold.
func (s *IDs) Load(id string) {
	k := keyOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(k)
}

// LoadMessage makes permanent what a message of the topic has, by its headers: an
// ID, and perhaps a mark. Messages are loaded in the topic's order.
func (s *IDs) LoadMessage(h feed.Header) {
	id, ok := h.Get(message.ContentID)
	if !ok {
		return
	}
	mark, ok := h.Get(message.Mark)
	if !ok {
		s.Load(id)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepMark(id, mark, false)
}

// Mark returns the newest mark that an ID has, be it permanent or not.
func (s *IDs) Mark(id string) (mark string, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if read, ok := s.readMarks[id]; ok {
		return read.mark, true
	}
	mark, held = s.marks[id]
	return mark, held
}

// Marks are the IDs that have marks, with their newest, in no order. What is set
// while they are ranged over may be among them or not.
func (s *IDs) Marks() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		s.mu.Lock()
		ids := slices.Collect(maps.Keys(s.marks))
		for id := range s.readMarks {
			if _, both := s.marks[id]; !both {
				ids = append(ids, id)
			}
		}
		s.mu.Unlock()
		for _, id := range ids {
			if mark, held := s.Mark(id); held && !yield(id, mark) {
				return
			}
		}
	}
}

// Marked says whether any ID has a permanent mark. A sink that loads the newest
// messages of a topic finds out so that it has to load all of them.
func (s *IDs) Marked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.marks) > 0
}

// SetMark takes an entity's mark as read. It is permanent when the entity has been
// committed.
func (s *IDs) SetMark(id, mark string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readMarks == nil {
		s.readMarks = map[string]readMark{}
	}
	s.readMarks[id] = readMark{mark, s.readMarks[id].pending + 1}
}

// keepMark makes a mark permanent. Committed says whether its entity was: then one
// of those that were read is it, the first.
func (s *IDs) keepMark(id, mark string, committed bool) {
	if s.marks == nil {
		s.marks = map[string]string{}
	}
	// They are part of a page, or of a message's headers, all of which they would
	// keep in memory.
	s.marks[strings.Clone(id)] = strings.Clone(mark)
	if !committed {
		return
	}
	switch read := s.readMarks[id]; {
	case read.pending > 1:
		s.readMarks[id] = readMark{read.mark, read.pending - 1}
	case read.pending == 1:
		delete(s.readMarks, id)
	}
}

// keep makes k permanent. One that is permanent already keeps its place: only
// duplicates come twice, and the gate leaves those out.
func (s *IDs) keep(k key) {
	switch s.held[k] {
	case permanent:
		return
	case tentative:
		// Commits come in the order of reading, so this is the first one.
		i := slices.Index(s.read, k)
		if i == 0 {
			s.read = s.read[1:]
		} else {
			s.read = slices.Delete(s.read, i, i+1)
		}
	}
	s.held[k] = permanent
	if len(s.ring) < s.window {
		s.ring = append(s.ring, k)
		return
	}
	delete(s.held, s.ring[s.oldest])
	s.ring[s.oldest] = k
	s.oldest = (s.oldest + 1) % s.window
}

// Rollback forgets the IDs that were added and the marks that were set, and not
// committed.
func (s *IDs) Rollback() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.read {
		delete(s.held, k)
	}
	s.read, s.readMarks = nil, nil
}

// Reset forgets all IDs.
func (s *IDs) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = make(map[key]state)
	s.ring, s.oldest, s.read = nil, 0, nil
	s.marks, s.readMarks = nil, nil
}

// Len is the number of IDs held without marks, permanent or not, and of those that
// have a permanent mark.
func (s *IDs) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) + len(s.marks)
}
