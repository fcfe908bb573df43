package sink

import (
	"hash/maphash"
	"iter"
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
// number, so that their source can detect changes. An ID of 45 characters with the mark of an
// entry takes less than 100 bytes.
//
// IDs without marks take 32 to 64 bytes each, counted when there were most of them, tentative ones
// included. They are safe for concurrent use: a reader adds while a writer commits.
type IDs struct {
	window int

	mu sync.Mutex
	// hashes has the permanent hashes, window at most, and after them the tentative ones: those
	// that were added and not committed, in their order. Tentative hashes do not count towards the
	// window: one that may be rolled back evicts no permanent one.
	hashes    hashQueue
	permanent int // number of permanent hashes
	// kept is the number of permanent hashes beside the window; see [IDs.LoadUncommitted].
	kept int
	// marks has the permanent marks, by ID, and tentativeMarks those that were set
	// and not committed.
	marks          markTable
	tentativeMarks map[string]*tentativeMark
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// tentativeMark is the newest mark of an ID that was set and not committed, and the number of
// marks of that ID that were.
type tentativeMark struct {
	mark    string
	pending int
}

// NewIDs returns an empty IDs that holds the newest window permanent IDs;
// [DefaultWindow] if window is 0.
func NewIDs(window int) *IDs {
	if window <= 0 {
		window = DefaultWindow
	}
	return &IDs{window: window}
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
	return s.hashes.push(k)
}

// AddAll is Add for the entities at the indexes that isWanted reports, in their order. It returns
// the indexes of those that are not fresh, in ascending order.
func (s *IDs) AddAll(entities []feed.Entity, isWanted func(i int) bool) (repeated []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var hashes [hashesAtOnce]idHash
	for from := 0; from < len(entities); from += hashesAtOnce {
		part := entities[from:min(from+hashesAtOnce, len(entities))]
		for i := range part {
			hashes[i] = hashID(part[i].ID)
		}
		s.hashes.loadSlots(hashes[:len(part)])
		for i := range part {
			if isWanted(from+i) && !s.hashes.push(hashes[i]) {
				repeated = append(repeated, from+i)
			}
		}
	}
	return repeated
}

// Commit makes the IDs of entities permanent, whether they were added or not.
// They are the newest from then on.
func (s *IDs) Commit(entities []feed.Entity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(entities) > 0 {
		s.endKept()
	}
	for part := range slices.Chunk(entities, hashesAtOnce) {
		if s.permanent+len(part) > s.window+s.kept {
			s.hashes.loadOldestSlots(len(part)) // which are evicted
		}
		for i := range part {
			if e := &part[i]; e.Mark == "" {
				s.makePermanent(hashID(e.ID))
				s.evict()
			} else {
				s.makeMarkPermanent(e.ID, e.Mark, true)
			}
		}
	}
}

// Load adds a permanent ID, which was read from the topic.
func (s *IDs) Load(id string) {
	s.LoadMessage(feed.Header{{Name: message.ContentID, Value: id}})
}

// LoadMessage adds the ID of a message that was read from the topic, and its mark if it has
// one, as permanent. h has the headers of the message. Messages are loaded in the topic's
// order.
func (s *IDs) LoadMessage(h feed.Header) { s.loadMessage(h, false) }

// LoadUncommitted is LoadMessage for a message that was stored without its checkpoint, so that the
// feed's cursor may be in front of it. Such IDs do not count towards the window until an entity
// behind them is committed or loaded: the window bounds memory, not what is published once.
func (s *IDs) LoadUncommitted(h feed.Header) { s.loadMessage(h, true) }

func (s *IDs) loadMessage(h feed.Header, keep bool) {
	id := message.ID(h)
	if id == "" {
		return
	}
	mark, marked := h.Get(message.Mark)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !keep {
		s.endKept()
	}
	switch {
	case marked:
		s.makeMarkPermanent(id, mark, false)
	case s.makePermanent(hashID(id)) && keep:
		s.kept++
	}
	s.evict()
}

// endKept makes the IDs beside the window ordinary ones.
func (s *IDs) endKept() {
	s.kept = 0
	s.evict()
}

// evict drops the oldest permanent hashes that exceed the window.
func (s *IDs) evict() {
	for ; s.permanent > s.window+s.kept; s.permanent-- {
		s.hashes.popOldest()
	}
}

// Committed reports whether the topic has an ID without a mark, as far as the window goes. IDs that were loaded by
// [IDs.LoadUncommitted] do not count until an entity behind them is committed.
func (s *IDs) Committed(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.hashes.indexOf(hashID(id))
	return ok && i < s.permanent-s.kept
}

// Mark returns the newest mark of an ID, permanent or tentative.
func (s *IDs) Mark(id string) (mark string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if set, ok := s.tentativeMarks[id]; ok {
		return set.mark, true
	}
	return s.marks.mark(id)
}

// Marks iterates over the IDs that have marks, with their newest mark, in no order. It may or
// may not include marks that are set during the iteration.
func (s *IDs) Marks() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		s.mu.Lock()
		permanent := s.marks.allIDs()
		var others []string
		for id := range s.tentativeMarks {
			if _, both := s.marks.mark(id); !both {
				others = append(others, id)
			}
		}
		s.mu.Unlock()
		for _, ids := range []iter.Seq[string]{permanent, slices.Values(others)} {
			for id := range ids {
				if mark, found := s.Mark(id); found && !yield(id, mark) {
					return
				}
			}
		}
	}
}

// Marked reports whether any ID has a mark. If so, a sink that has loaded the newest
// messages of a topic has to load all of them.
func (s *IDs) Marked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks.count()+len(s.tentativeMarks) > 0
}

// SetMark adds a tentative mark of an entity. It becomes permanent when the entity has been
// committed. Both strings are copied: their source uses the memory of an entity again after its
// commit, while newer versions of the entity may wait for theirs.
func (s *IDs) SetMark(id, mark string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.tentativeMarks[id]
	if set == nil {
		if s.tentativeMarks == nil {
			s.tentativeMarks = map[string]*tentativeMark{}
		}
		set = &tentativeMark{}
		s.tentativeMarks[strings.Clone(id)] = set
	}
	set.mark = strings.Clone(mark)
	set.pending++
}

// makeMarkPermanent adds a permanent mark. committed reports that its entity was committed, so
// that it is the oldest of the tentative marks of this ID; otherwise it was loaded.
func (s *IDs) makeMarkPermanent(id, mark string, committed bool) {
	s.marks.setMark(id, mark)
	if !committed {
		return
	}
	if set := s.tentativeMarks[id]; set != nil {
		if set.pending--; set.pending == 0 {
			delete(s.tentativeMarks, id)
		}
	}
}

// makePermanent adds a permanent hash, as the newest. It returns false if it is permanent already
// and keeps its place: that happens only for duplicates, which the gate leaves out.
func (s *IDs) makePermanent(k idHash) (added bool) {
	// Commits come in the order of reading, so this is usually the first tentative hash.
	if s.permanent == s.hashes.n || s.hashes.at(s.permanent) != k {
		s.hashes.push(k)
		i, _ := s.hashes.indexOf(k)
		if i < s.permanent {
			return false
		}
		s.hashes.move(i, s.permanent)
	}
	s.permanent++
	return true
}

// Rollback drops the tentative IDs and marks.
func (s *IDs) Rollback() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hashes.truncate(s.permanent)
	s.tentativeMarks = nil
}

// Reset drops all IDs and marks.
func (s *IDs) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hashes, s.permanent, s.kept = hashQueue{}, 0, 0
	s.marks, s.tentativeMarks = markTable{}, nil
}

// Len returns the number of IDs without marks, permanent and tentative, and with permanent
// marks.
func (s *IDs) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hashes.n + s.marks.count()
}
