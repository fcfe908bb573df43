package sinktest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// ErrFault is matched by the errors that a [MemorySink] returns on demand.
var ErrFault = errors.New("fault on demand")

// A Fault is what befalls one commit.
type Fault struct {
	Kind Kind
	// After is how much later than its error a Late commit arrives.
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
)

// Faults decides what fails. A nil function never fails anything. The functions
// are called by the goroutine that uses the sink.
type Faults struct {
	// Resume returns the error of the next Resume, or nil.
	Resume func() error
	// Commit returns what befalls the next Commit.
	Commit func() Fault
}

// Memory is a topic in memory that any number of sinks write to; the zero
// Memory is empty. It uses no goroutines and no time but [time.AfterFunc], so
// it may be used in a bubble of testing/synctest.
//
// It notes every breach of what a sink may expect from its caller, and of what
// a topic may never hold; see [Memory.Err].
type Memory struct {
	// NoFence and NoCheckpoint break the topic, to show that a test notices:
	// a stale writer is not refused, or a commit does not store its checkpoint.
	NoFence, NoCheckpoint bool

	mu       sync.Mutex
	entities []feed.Entity
	last     []byte // the encoded checkpoint
	commits  int    // what the fence compares: a stale writer has seen fewer
	breaches []error
}

// Entities returns what the topic holds, in order.
func (m *Memory) Entities() []feed.Entity {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entities)
}

// Log reads the topic back. A position is an entity's place in the order.
func (m *Memory) Log() MemoryLog { return MemoryLog{m} }

// MemoryLog is a [Memory] to be read back.
type MemoryLog struct{ topic *Memory }

// Span returns the places.
func (l MemoryLog) Span(ctx context.Context) (feed.Span, error) {
	return feed.Span{End: uint64(len(l.topic.Entities())), Epoch: "memory"}, ctx.Err()
}

// Read returns the entities from one place on and before another, as messages.
func (l MemoryLog) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(feed.Record{}, err)
			return
		}
		entities := l.topic.Entities()
		for i := from; i < min(to, uint64(len(entities))); i++ {
			e := entities[i]
			if !yield(feed.Record{Position: i, Time: e.Modified, Header: message.Header("", e), Body: e.Body}, nil) {
				return
			}
		}
	}
}

// Checkpoint returns the stored checkpoint; the zero one if there is none.
func (m *Memory) Checkpoint() checkpoint.Checkpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	cp, err := m.checkpoint()
	if err != nil {
		m.breach("the stored checkpoint: %v", err)
	}
	return cp
}

func (m *Memory) checkpoint() (checkpoint.Checkpoint, error) {
	if m.last == nil {
		return checkpoint.Checkpoint{}, nil
	}
	return checkpoint.Decode(m.last)
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

// apply carries out a commit, now that it has arrived.
func (m *Memory) apply(fence int, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fence != m.commits && !m.NoFence {
		return fmt.Errorf("commit %d: %w", m.commits, checkpoint.ErrConflict)
	}
	data := checkpoint.Encode(cp)
	if _, err := checkpoint.Decode(data); err != nil {
		m.breach("a checkpoint that cannot be read was committed: %v", err)
	}
	if before, err := m.checkpoint(); err == nil && len(entities) > 0 && cp.Count != before.Count+uint64(len(entities)) && !m.NoFence && !m.NoCheckpoint {
		m.breach("the count went from %d to %d with %d entities", before.Count, cp.Count, len(entities))
	}
	for _, e := range entities {
		if e.ID == "" || e.Op == "" {
			m.breach("an entity without ID or operation was committed: %+v", e)
		}
	}
	m.entities = append(m.entities, entities...)
	m.commits++
	if !m.NoCheckpoint {
		m.last = data
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
	fence   int
	known   int // how many of the topic's entities ids has
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
	cp, err := m.checkpoint()
	if err != nil {
		return cp, err
	}
	s.ids.Rollback()
	for _, e := range m.entities[s.known:] {
		s.ids.LoadMessage(message.Header("", e))
	}
	s.resumed, s.fence, s.known = true, m.commits, len(m.entities)
	return cp, nil
}

// Commit appends entities and stores cp, unless a fault says otherwise.
func (s *MemorySink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	return s.CommitStaging(ctx, entities, cp, nil)
}

// CommitStaging is Commit, and asks what comes next.
func (s *MemorySink) CommitStaging(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, next func() []feed.Entity) error {
	defer s.use()()
	if !s.resumed {
		s.note("commit without a resume after an error or at the start")
		return errors.New("commit without resume")
	}
	s.resumed = false
	if next != nil {
		next()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	entities = slices.Clone(entities)
	var fault Fault
	if s.faults.Commit != nil {
		fault = s.faults.Commit()
	}
	switch fault.Kind {
	case FailBefore:
		return fmt.Errorf("%w: the commit is lost", ErrFault)
	case Late:
		fence := s.fence
		time.AfterFunc(fault.After, func() {
			// Nobody waits for this answer any more.
			_ = s.topic.apply(fence, entities, cp)
		})
		return fmt.Errorf("%w: the commit is late", ErrFault)
	}
	if err := s.topic.apply(s.fence, entities, cp); err != nil {
		return err
	}
	if fault.Kind == FailAfter {
		return fmt.Errorf("%w: the answer is lost", ErrFault)
	}
	s.ids.Commit(entities)
	s.resumed = true
	s.fence++
	s.known += len(entities)
	return nil
}

// use asserts that nobody else uses the sink until the returned function runs.
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
