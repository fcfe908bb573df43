package sinktest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	codec "github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// ErrFault is matched by the errors that a [MemorySink] returns on demand.
var ErrFault = errors.New("fault on demand")

// A Fault is a way in which one commit fails.
type Fault struct {
	Kind Kind
	// After is the time from its error until a Late commit arrives.
	After time.Duration
}

// Kind is a way in which a commit fails.
type Kind int

const (
	// None: the commit is carried out and answered.
	None Kind = iota
	// FailBefore: the commit never arrives.
	FailBefore
	// FailAfter: the commit is carried out and the answer is lost.
	FailAfter
	// Late: the writer gets an error, and the commit arrives later, when the
	// writer and others may have looked and gone on. It meets the fence then.
	Late
	// Torn: a beginning of the commit is stored, without its checkpoint, unless it is the first
	// commit of the topic.
	Torn
)

// Faults decides what fails. A nil function never fails anything. The functions
// are called by the goroutine that uses the sink.
type Faults struct {
	// Resume returns the error of the next Resume, or nil.
	Resume func() error
	// Commit returns how the next Commit fails.
	Commit func() Fault
}

// Memory is a topic in memory that any number of sinks write to; the zero
// Memory is empty. It uses no goroutines and no time but [time.AfterFunc], so
// it may be used in a bubble of testing/synctest.
//
// Like a stream it gives every entity and every checkpoint a sequence number, and
// like a bus that lost its newest data it can return to an earlier state: see
// [Memory.Backup], [Memory.LoseCheckpoint] and [Memory.LoseMessages]. Sequence
// numbers go back with it and are given out again.
//
// It records every violation of the sink's contract by its caller, and every invalid content of
// the topic; see [Memory.Err].
type Memory struct {
	// Broken has the guards that are switched off, to show that a test notices.
	Broken Guards

	mu       sync.Mutex
	state    state
	breaches []error
}

// Guards protect a [Memory] from stale writers, and from those that know a state of the
// topic that no longer exists.
type Guards struct {
	// Fence refuses commits of stale writers.
	Fence bool
	// Tail is the part of the fence that compares what lies behind the checkpoint.
	Tail bool
	// Content is the part of the fence that compares the checkpoint by content.
	// Without it two states with the same sequence number pass for one.
	Content bool
	// Checkpoint stores the checkpoint with each commit.
	Checkpoint bool
	// IDs is the part of Resume that discards the loaded IDs unless the topic continues the one
	// that they were loaded from. Without it they are discarded only when the sequence number
	// has fallen.
	IDs bool
	// Counted is the part of IDs that counts the entities behind the loaded ones.
	// Without it the IDs are forgotten only when the sequence number or the
	// checkpoint's Count has fallen.
	Counted bool
	// Missing refuses a topic that had a checkpoint and has none.
	Missing bool
	// End refuses a topic that has fewer entities than its checkpoint says.
	End bool
}

// state is the state of a topic between two commits. Its slices are only appended
// to and never written to, so a copy of the struct is a backup.
type state struct {
	messages   []message
	dead       []message // the dead letters
	checkpoint []byte    // encoded; nil if there is none
	// sequence is the sequence of the newest entity or checkpoint, and committed that of the
	// checkpoint.
	sequence, committed uint64
	// end is the number of messages in the topic after the commit of the checkpoint.
	end int
}

type message struct {
	feed.Entity
	sequence uint64
}

// decode returns the checkpoint, whose count includes the entities behind it.
func (s state) decode() (checkpoint.Checkpoint, error) {
	if s.checkpoint == nil {
		return checkpoint.Checkpoint{}, nil
	}
	cp, err := checkpoint.Decode(s.checkpoint)
	if s.end < len(s.messages) {
		cp.Count += uint64(len(s.messages) - s.end)
	}
	return cp, err
}

// Entities returns the entities of the topic, in order.
func (m *Memory) Entities() []feed.Entity {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []feed.Entity
	for _, msg := range m.state.messages {
		all = append(all, msg.Entity)
	}
	return all
}

// DeadLetters returns the dead letters of the topic, in order.
func (m *Memory) DeadLetters() []feed.Entity {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []feed.Entity
	for _, msg := range m.state.dead {
		all = append(all, msg.Entity)
	}
	return all
}

// Backup takes a backup of the topic with its checkpoint and returns a function
// that restores it. Open sinks are not informed.
func (m *Memory) Backup() (restore func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	backup := m.state
	// Appending to the messages after a restore must not write to other backups.
	backup.messages, backup.dead = slices.Clip(backup.messages), slices.Clip(backup.dead)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.state = backup
	}
}

// LoseCheckpoint removes the checkpoint, and no entity.
func (m *Memory) LoseCheckpoint() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.checkpoint, m.state.end = nil, 0
}

// LoseMessages removes all entities behind the checkpoint, and n in front of it, or all if there are
// fewer, and keeps the checkpoint. It does nothing and returns false if the checkpoint counts none.
func (m *Memory) LoseMessages(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	counted := min(len(m.state.messages), m.state.end)
	if m.state.checkpoint != nil && counted == 0 {
		return false
	}
	m.state.messages = slices.Clip(m.state.messages[:max(0, counted-n)])
	return counted > 0
}

// Log reads the topic back. A position is the number of an entity in the order.
func (m *Memory) Log() MemoryLog { return MemoryLog{m.Entities} }

// DeadLog reads the dead letters back.
func (m *Memory) DeadLog() MemoryLog { return MemoryLog{m.DeadLetters} }

// MemoryLog is a [Memory] to be read back.
type MemoryLog struct{ entities func() []feed.Entity }

// deadLetterRoom is the room for a dead letter in a [Memory].
var deadLetterRoom = codec.Room{Header: 64 << 10, Message: 1 << 20, Field: func(f feed.Field) (int, bool) { return len(f.Name) + len(f.Value), true }}

// Span returns the span of the positions.
func (l MemoryLog) Span(ctx context.Context) (feed.Span, error) {
	return feed.Span{End: uint64(len(l.entities())), Epoch: "memory"}, ctx.Err()
}

// Read returns the entities from one position to before another, as messages.
func (l MemoryLog) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(feed.Record{}, err)
			return
		}
		entities := l.entities()
		for i := from; i < min(to, uint64(len(entities))); i++ {
			e := entities[i]
			h, body := codec.Header("", e), e.Body
			if e.Dead != nil {
				h, body = codec.DeadLetter("orders", e, deadLetterRoom)
			}
			if !yield(feed.Record{Position: i, Time: e.Modified, Header: h, Body: body}, nil) {
				return
			}
		}
	}
}

// Checkpoint returns the stored checkpoint; the zero one if there is none.
func (m *Memory) Checkpoint() checkpoint.Checkpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	cp, err := m.state.decode()
	if err != nil {
		m.breach("the stored checkpoint: %v", err)
	}
	return cp
}

// Err returns the breaches that were noted, or nil.
func (m *Memory) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.breaches...)
}

func (m *Memory) breach(format string, args ...any) {
	m.breaches = append(m.breaches, fmt.Errorf(format, args...))
}

// apply carries out a commit of a writer that knows the topic in the state known. It stores the
// entities only if cp is nil.
func (m *Memory) apply(known state, entities []feed.Entity, cp *checkpoint.Checkpoint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := &m.state
	if m.Broken.Tail {
		known.sequence = now.sequence - now.committed + known.committed
	}
	if !m.Broken.Fence && (known.sequence != now.sequence || !m.Broken.Content && !bytes.Equal(known.checkpoint, now.checkpoint)) {
		return fmt.Errorf("sequence %d: %w", now.sequence, checkpoint.ErrConflict)
	}
	if err := m.checkEnd(); err != nil {
		return err
	}
	if before, err := now.decode(); err == nil && cp != nil && len(entities) > 0 && cp.Count != before.Count+uint64(len(entities)-feed.CountDead(entities)) && m.Broken == (Guards{}) {
		m.breach("the count went from %d to %d with %d entities", before.Count, cp.Count, len(entities))
	}
	for _, e := range entities {
		if e.ID == "" || e.Op == "" {
			m.breach("an entity without ID or operation was committed: %+v", e)
		}
		now.sequence++
		if e.Dead != nil {
			now.dead = append(now.dead, message{e, now.sequence})
			continue
		}
		now.messages = append(now.messages, message{e, now.sequence})
	}
	if cp == nil {
		return nil
	}
	data := checkpoint.Encode(*cp)
	if _, err := checkpoint.Decode(data); err != nil {
		m.breach("a checkpoint that cannot be read was committed: %v", err)
	}
	now.sequence++
	now.committed = now.sequence
	if !m.Broken.Checkpoint {
		now.checkpoint, now.end = data, len(now.messages)
	}
	return nil
}

// checkEnd returns an error if entities are missing that the checkpoint counts.
func (m *Memory) checkEnd() error {
	if held, end := len(m.state.messages), m.state.end; held < end && !m.Broken.End {
		return feed.Permanent(fmt.Errorf("the topic has %d entities and had %d when its checkpoint was stored", held, end))
	}
	return nil
}

// Open returns a new sink on the topic that fails as f says.
func (m *Memory) Open(f Faults) *MemorySink {
	return &MemorySink{topic: m, faults: f, ids: sink.NewIDs(0)}
}

// MemorySink is a sink on a [Memory].
type MemorySink struct {
	topic  *Memory
	faults Faults
	ids    *sink.IDs

	busy    atomic.Bool // for the assertion that one goroutine uses it at a time
	resumed bool        // since the last error
	// known is the topic as of the last Resume or Commit: the fence.
	known state
	// loaded is the part of the topic from which ids was loaded: all entities up to a
	// sequence number, as of a checkpoint. It outlives errors.
	loaded struct {
		sequence uint64
		count    uint64
		dead     int // dead letters
		moved    time.Time
	}
}

// IDs returns the IDs that the topic holds, as of the last Resume or Commit.
func (s *MemorySink) IDs() *sink.IDs { return s.ids }

// Resume returns the stored checkpoint.
func (s *MemorySink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	defer s.use()()
	s.resumed = false
	if err := ctx.Err(); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	if s.faults.Resume != nil {
		if err := s.faults.Resume(); err != nil {
			return checkpoint.Checkpoint{}, fmt.Errorf("resume: %w: %w", ErrFault, err)
		}
	}
	m := s.topic
	m.mu.Lock()
	defer m.mu.Unlock()
	cp, err := m.state.decode()
	if err != nil {
		return cp, err
	}
	// A topic that this sink has seen with a checkpoint is not a fresh one, even if
	// it is empty.
	if m.state.checkpoint == nil && (len(m.state.messages)+len(m.state.dead) > 0 || s.loaded.sequence > 0) && !m.Broken.Missing && !m.Broken.Checkpoint {
		return cp, feed.Permanent(checkpoint.ErrMissing)
	}
	if err := m.checkEnd(); err != nil {
		return cp, err
	}
	s.load(cp)
	s.resumed, s.known = true, m.state
	return cp, nil
}

// load makes the IDs those of the topic, whose checkpoint is cp.
func (s *MemorySink) load(cp checkpoint.Checkpoint) {
	now, loaded := s.topic.state, &s.loaded
	s.ids.Rollback()
	behind := func(messages []message, sequence uint64) []message {
		i := slices.IndexFunc(messages, func(m message) bool { return m.sequence > sequence })
		if i < 0 {
			return nil
		}
		return messages[i:]
	}
	// The topic continues the loaded part if exactly the entities behind it were counted since.
	// Neither number is sufficient by itself: after the topic went back, another writer may
	// have reached a higher sequence number with fewer entities, or the same one with more.
	fresh, dead := behind(now.messages, loaded.sequence), behind(now.dead, loaded.sequence)
	continued := now.sequence >= loaded.sequence
	if !s.topic.Broken.IDs {
		continued = continued && cp.Moved.Equal(loaded.moved) && cp.Count >= loaded.count
		if !s.topic.Broken.Counted {
			continued = continued && cp.Count-loaded.count == uint64(len(fresh)) && len(now.dead)-loaded.dead == len(dead)
		}
	}
	if !continued {
		s.ids.Reset()
		fresh, dead = now.messages, now.dead
	}
	for _, m := range slices.SortedFunc(slices.Values(slices.Concat(dead, fresh)), func(a, b message) int { return cmp.Compare(a.sequence, b.sequence) }) {
		s.ids.LoadMessage(codec.Header("", m.Entity))
	}
	loaded.sequence, loaded.count, loaded.dead, loaded.moved = now.sequence, cp.Count, len(now.dead), cp.Moved
}

// Unchanged returns the present time if the topic is as the last Resume or Commit left it, like a bus
// that was looked at just now, and otherwise the zero time.
func (s *MemorySink) Unchanged() time.Time {
	m := s.topic
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.known.sequence != m.state.sequence || !bytes.Equal(s.known.checkpoint, m.state.checkpoint) || m.checkEnd() != nil {
		return time.Time{}
	}
	return time.Now()
}

func cloneEntities(entities []feed.Entity) []feed.Entity {
	cloned := slices.Clone(entities)
	for i := range cloned {
		e := &cloned[i]
		e.ID, e.Page, e.Mark, e.Body = strings.Clone(e.ID), strings.Clone(e.Page), strings.Clone(e.Mark), bytes.Clone(e.Body)
		e.Header = slices.Clone(e.Header)
		for k, f := range e.Header {
			e.Header[k] = feed.Field{Name: strings.Clone(f.Name), Value: strings.Clone(f.Value)}
		}
	}
	return cloned
}

// Commit appends entities and stores cp, unless a fault says otherwise.
func (s *MemorySink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	defer s.use()()
	if !s.resumed {
		s.note("commit without a resume after an error or at the start")
		return errors.New("commit without resume")
	}
	s.resumed = false
	if err := ctx.Err(); err != nil {
		return err
	}
	// The source uses the memory again after the commit.
	entities = cloneEntities(entities)
	var fault Fault
	if s.faults.Commit != nil {
		fault = s.faults.Commit()
	}
	switch fault.Kind {
	case FailBefore:
		return fmt.Errorf("%w: the commit is lost", ErrFault)
	case Late:
		known := s.known
		time.AfterFunc(fault.After, func() {
			// Nobody waits for this answer any more.
			_ = s.topic.apply(known, entities, &cp)
		})
		return fmt.Errorf("%w: the commit is late", ErrFault)
	case Torn:
		if s.known.checkpoint != nil {
			_ = s.topic.apply(s.known, entities[:(len(entities)+1)/2], nil)
		}
		return fmt.Errorf("%w: the commit is torn", ErrFault)
	}
	if err := s.topic.apply(s.known, entities, &cp); err != nil {
		return err
	}
	if fault.Kind == FailAfter {
		return fmt.Errorf("%w: the answer is lost", ErrFault)
	}
	s.ids.Commit(entities)
	s.resumed = true
	s.known.sequence += uint64(len(entities)) + 1
	s.known.committed = s.known.sequence
	s.known.checkpoint = checkpoint.Encode(cp)
	s.loaded.sequence, s.loaded.count, s.loaded.moved = s.known.sequence, cp.Count, cp.Moved
	s.loaded.dead += feed.CountDead(entities)
	return nil
}

// use asserts that no other goroutine uses the sink until the returned function runs.
func (s *MemorySink) use() (done func()) {
	if !s.busy.CompareAndSwap(false, true) {
		s.note("two goroutines use one sink at the same time")
	}
	return func() { s.busy.Store(false) }
}

func (s *MemorySink) note(breach string) {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	s.topic.breach("%s", breach)
}
