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

// DefaultWindow is the number of IDs that an [IDs] holds by default.
const DefaultWindow = 100_000

// IDs are the newest IDs that a topic holds. They detect an entity that its feed repeats. They
// are a cache of the topic: a sink loads them when it resumes, and adds to them when it
// commits.
//
// Reading runs ahead of committing, so an ID is tentative when it is read, and
// permanent when its entity has been committed. [IDs.Rollback], which a sink calls when it
// resumes, drops the tentative ones.
//
// Of entities with marks, the newest mark of each ID is held, without a limit of their
// number, so that their source can detect changes. An ID with a mark takes the bytes of both
// and about 100 more.
//
// IDs without marks take about 50 bytes each. They are safe for concurrent use: a reader adds
// while a writer commits.
type IDs struct {
	window int

	mu sync.Mutex
	// states has the hashes in ring and in tentative, and which of the two has each.
	states map[idHash]idState
	// ring has the permanent hashes. When it has grown to window, the next one replaces
	// the oldest, which is at the index oldest.
	ring   []idHash
	oldest int
	// marks has the permanent marks, by ID, and tentativeMarks those that were set
	// and not committed.
	marks          map[string]string
	tentativeMarks map[string]tentativeMark
	// tentative has the hashes that were added and not committed, in their order. They
	// do not count towards the window: a tentative hash, which may be rolled back, evicts
	// no permanent one.
	tentative []idHash
}

// idHash is a hash of 128 bits: two of 100,000 IDs have the same one with a probability of 1
// in 10^28. The seeds are random, so a feed cannot contain IDs that collide on purpose.
type idHash [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// tentativeMark is the newest mark of an ID that was set and not committed, and the number of
// marks of that ID that were.
type tentativeMark struct {
	mark    string
	pending int
}

type idState uint8

const (
	_ idState = iota
	isTentative
	isPermanent
)

// NewIDs returns an empty IDs that holds the newest window permanent IDs;
// [DefaultWindow] if window is 0.
func NewIDs(window int) *IDs {
	if window <= 0 {
		window = DefaultWindow
	}
	return &IDs{window: window, states: make(map[idHash]idState)}
}

func hashID(id string) idHash {
	return idHash{maphash.String(seeds[0], id), maphash.String(seeds[1], id)}
}

// Add adds a tentative ID, and reports whether it is fresh: neither held by the
// topic nor added before.
func (s *IDs) Add(id string) (fresh bool) {
	k := hashID(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states[k] != 0 {
		return false
	}
	s.states[k] = isTentative
	s.tentative = append(s.tentative, k)
	return true
}

// Commit makes the IDs of entities permanent, whether they were added or not.
// They are the newest from then on.
func (s *IDs) Commit(entities []feed.Entity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range entities {
		if e := &entities[i]; e.Mark == "" {
			s.makePermanent(hashID(e.ID))
		} else {
			s.makeMarkPermanent(e.ID, e.Mark, true)
		}
	}
}

// Load adds a permanent ID, which was read from the topic.
func (s *IDs) Load(id string) {
	k := hashID(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makePermanent(k)
}

// LoadMessage adds the ID of a message that was read from the topic, and its mark if it has
// one, as permanent. h has the headers of the message. Messages are loaded in the topic's
// order.
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
	s.makeMarkPermanent(id, mark, false)
}

// Mark returns the newest mark of an ID, permanent or tentative.
func (s *IDs) Mark(id string) (mark string, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if set, ok := s.tentativeMarks[id]; ok {
		return set.mark, true
	}
	mark, held = s.marks[id]
	return mark, held
}

// Marks iterates over the IDs that have marks, with their newest mark, in no order. It may or
// may not include marks that are set during the iteration.
func (s *IDs) Marks() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		s.mu.Lock()
		ids := slices.Collect(maps.Keys(s.marks))
		for id := range s.tentativeMarks {
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

// Marked reports whether any ID has a permanent mark. If so, a sink that has loaded the newest
// messages of a topic has to load all of them.
func (s *IDs) Marked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.marks) > 0
}

// SetMark adds a tentative mark of an entity. It becomes permanent when the entity has been
// committed.
func (s *IDs) SetMark(id, mark string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tentativeMarks == nil {
		s.tentativeMarks = map[string]tentativeMark{}
	}
	s.tentativeMarks[id] = tentativeMark{mark, s.tentativeMarks[id].pending + 1}
}

// makeMarkPermanent adds a permanent mark. committed reports that its entity was committed, so
// that it is the oldest of the tentative marks of this ID; otherwise it was loaded.
func (s *IDs) makeMarkPermanent(id, mark string, committed bool) {
	if s.marks == nil {
		s.marks = map[string]string{}
	}
	// Without clones the strings would keep a whole page, or the headers of a message, in
	// memory.
	s.marks[strings.Clone(id)] = strings.Clone(mark)
	if !committed {
		return
	}
	switch set := s.tentativeMarks[id]; {
	case set.pending > 1:
		s.tentativeMarks[id] = tentativeMark{set.mark, set.pending - 1}
	case set.pending == 1:
		delete(s.tentativeMarks, id)
	}
}

// makePermanent adds a permanent hash. One that is permanent already keeps its position in the
// ring: that happens only for duplicates, which the gate leaves out.
func (s *IDs) makePermanent(k idHash) {
	switch s.states[k] {
	case isPermanent:
		return
	case isTentative:
		// Commits come in the order of reading, so this is usually the first one.
		i := slices.Index(s.tentative, k)
		if i == 0 {
			s.tentative = s.tentative[1:]
		} else {
			s.tentative = slices.Delete(s.tentative, i, i+1)
		}
	}
	s.states[k] = isPermanent
	if len(s.ring) < s.window {
		s.ring = append(s.ring, k)
		return
	}
	delete(s.states, s.ring[s.oldest])
	s.ring[s.oldest] = k
	s.oldest = (s.oldest + 1) % s.window
}

// Rollback drops the tentative IDs and marks.
func (s *IDs) Rollback() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.tentative {
		delete(s.states, k)
	}
	s.tentative, s.tentativeMarks = nil, nil
}

// Reset drops all IDs and marks.
func (s *IDs) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = make(map[idHash]idState)
	s.ring, s.oldest, s.tentative = nil, 0, nil
	s.marks, s.tentativeMarks = nil, nil
}

// Len returns the number of IDs without marks, permanent and tentative, and with permanent
// marks.
func (s *IDs) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.states) + len(s.marks)
}
