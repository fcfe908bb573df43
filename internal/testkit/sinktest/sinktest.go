// Package sinktest has the conformance suite that every sink passes, and
// [Memory], a topic in memory whose sinks fail on demand.
package sinktest

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	codec "github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// Sink is the subject of the suite: a bridge's sink, with its IDs.
type Sink interface {
	Resume(ctx context.Context) (checkpoint.Checkpoint, error)
	Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error
	IDs() *sink.IDs
}

// Mover is a [Sink] whose checkpoint a person can move.
type Mover interface {
	Sink
	Overwrite(ctx context.Context, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error
}

// Log is a topic that is read back by position.
type Log interface {
	Span(ctx context.Context) (feed.Span, error)
	Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error]
}

// Topic is a fresh topic of a bus.
type Topic struct {
	// Open returns another sink on the topic. Sinks share nothing but the
	// topic, as if each were in a process of its own.
	Open func() Sink
	// Log reads the topic back. There may be none before the first Resume; then it
	// says feed.ErrNoTopic.
	Log Log
	// DeadLetters reads the topic's dead letters back.
	DeadLetters Log
	// MaxEntities limits the entities of one commit.
	MaxEntities int
	// Window limits the IDs without marks that a sink holds; at least 50.
	Window int
	// Backup takes a backup of the bus and returns a function that restores it
	// while sinks stay open. After a restore a sink's first calls may fail with
	// transient errors for some seconds, until the bus is reachable again. It is
	// used by [TestRewind] and may be nil otherwise.
	Backup func(t *testing.T) (restore func())
	// Pause is after how long without a commit a sink compares more than a sequence
	// number before the next one. Zero if it always does.
	Pause time.Duration
}

type test struct {
	name string
	run  func(*testing.T, Topic)
}

// Test runs the suite. Each of its tests asks open for a topic.
func Test(t *testing.T, open func(t *testing.T) Topic) { TestIn(t, parallel, open) }

// TestIn is Test with a function that runs each test, as in a synctest bubble.
func TestIn(t *testing.T, in func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) Topic) {
	run(t, in, open, []test{
		{"an empty topic has the zero checkpoint", emptyTopic},
		{"a checkpoint comes back byte for byte", checkpointComesBack},
		{"entities come back in order", order},
		{"a commit without entities moves the checkpoint", moveCheckpoint},
		{"a feed is paused before its first entity", pausedBeforeFirst},
		{"a pause makes every writer stale, and entities come after its end", pausedBetween},
		{"a writer that resumed from an empty topic is stale after another's commit", staleFromZero},
		{"a writer is stale after another's commit, whatever it committed before", staleAfterCommits},
		{"a stale writer that moves the checkpoint alone is refused", staleMove},
		{"a conflict heals by resuming", conflictHeals},
		{"two writers that race yield the feed exactly", race},
		{"headers survive and do no harm", headers},
		{"bodies survive", bodies},
		{"the largest commit is one commit", largest},
		{"a new sink knows the IDs that the topic holds", idsOfNewSink},
		{"a new sink knows the ID of an entity that has an empty one, too", idsBesideEmpty},
		{"a sink learns the IDs that another committed", idsOfOther},
		{"IDs that were never committed are forgotten", idsForgotten},
		{"the newest mark of each ID is known to every sink", marks},
		{"a new sink knows all marks, however many and whatever lies around them", marksOfNewSink},
		{"a sink learns all marks that another committed, however many", marksOfOther},
		{"a person who moves the checkpoint gets the newest one, and makes every writer stale", movedFromNewest},
		{"a move and a commit at the same moment do not both take place", movedAtOnce},
		{"a dead letter goes to its own topic, in the same commit, with its reason and all that fits", deadLetter},
		{"a topic may begin with a dead letter", deadLetterFirst},
		{"a new sink knows the dead letters", deadLettersOfNewSink},
		{"a sink learns the dead letters that another committed", deadLettersOfOther},
		{"a dead letter of a stale writer is refused with its commit", deadLetterStale},
		{"a dead letter keeps the mark of its entity", deadLetterMark},
		{"the newest version of an entity counts, in the topic or a dead letter", deadLetterVersions},
		{"an entity of any size becomes a dead letter", deadLetterHuge},
		{"the memory of committed entities may be used again", memoryReused},
		{"what is read back has its position for ever", positions},
		{"every part of a topic can be read back", parts},
		{"a topic is read back by many at once", readByMany},
		{"reading back ends when its reader does", readersEnd},
		{"a foreign checkpoint is returned as it is", foreign},
		{"a cancelled context starts nothing", cancelled},
	})
}

func parallel(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	test(t)
}

func run(t *testing.T, in func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) Topic, tests []test) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(t *testing.T) { test.run(t, open(t)) })
		})
	}
}

// Entities returns the n entities of a feed that follow the first from ones.
func Entities(from, n int) []feed.Entity {
	entities := make([]feed.Entity, n)
	for i := range entities {
		id := fmt.Sprintf("<%d@feed.example.com>", from+i)
		modified := time.Date(2024, 1, 1, 0, 0, from+i, 0, time.UTC)
		entities[i] = feed.Entity{
			ID: id, Op: feed.Put, Modified: modified, Page: "http://feed.example.com/1",
			Header: feed.Header{
				{Name: "Content-ID", Value: id},
				{Name: "Content-Type", Value: "application/json"},
				{Name: "Last-Modified", Value: modified.Format("Mon, 02 Jan 2006 15:04:05 GMT")},
				{Name: "Operation-Type", Value: "http-equiv=PUT"},
			},
			Body: fmt.Appendf(nil, `{"n":%d}`, from+i),
		}
	}
	return entities
}

// At returns the checkpoint behind the first n entities of the feed that
// [Entities] has.
func At(n int) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{
		Feed: "orders", Source: "test", Cursor: fmt.Appendf(nil, "%d", n), Count: uint64(n),
		At: time.Date(2024, 2, 1, 12, 0, 0, 0, time.UTC), Writer: "copy-1",
	}
}

// MoveTo returns what puts cp in the place of any checkpoint.
func MoveTo(cp checkpoint.Checkpoint) func(checkpoint.Checkpoint) checkpoint.Checkpoint {
	return func(checkpoint.Checkpoint) checkpoint.Checkpoint { return cp }
}

func resume(t *testing.T, s Sink) checkpoint.Checkpoint {
	t.Helper()
	cp, err := s.Resume(t.Context())
	if err != nil {
		t.Fatalf("resume: %v", err)
	}
	return cp
}

// commit commits the entities from up to to, and the checkpoint behind them.
func commit(t *testing.T, s Sink, from, to int) {
	t.Helper()
	if err := s.Commit(t.Context(), Entities(from, to-from), At(to)); err != nil {
		t.Fatalf("commit of %d to %d: %v", from, to, err)
	}
}

func read(t *testing.T, topic Topic) []feed.Entity {
	t.Helper()
	var entities []feed.Entity
	span := spanOf(t, topic.Log)
	for _, r := range Records(t, topic.Log, span.First, span.End) {
		e, err := codec.Entity(r.Header, r.Body)
		if err != nil {
			t.Fatal(err)
		}
		entities = append(entities, e)
	}
	return entities
}

func wantCheckpoint(t *testing.T, got, want checkpoint.Checkpoint) {
	t.Helper()
	if g, w := checkpoint.Encode(got), checkpoint.Encode(want); string(g) != string(w) {
		t.Errorf("checkpoint\n%s\nwant\n%s", g, w)
	}
}

// wantFeed checks that the topic holds the first n entities of the feed.
func wantFeed(t *testing.T, topic Topic, n int) {
	t.Helper()
	got := read(t, topic)
	if len(got) != n {
		t.Errorf("the topic holds %d entities, want %d", len(got), n)
	}
	for i, want := range Entities(0, min(n, len(got))) {
		if got[i].ID != want.ID || string(got[i].Body) != string(want.Body) {
			t.Fatalf("entity %d is %s %s, want %s", i, got[i].ID, got[i].Body, want.ID)
		}
	}
}
