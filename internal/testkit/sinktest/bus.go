package sinktest

import (
	"fmt"
	"testing"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Bus has the steps and checks that the tests of a bus use beside the suite. S is the type of its sinks.
type Bus[S Mover] struct {
	// Log returns the log of a sink's topic.
	Log func(S) Log
	// Succeed calls f until it succeeds, as far as the bus may refuse at first what is correct. Nil calls it once.
	Succeed func(t testing.TB, f func() error)
}

// Resume resumes a sink.
func (b Bus[S]) Resume(t testing.TB, s S) (cp checkpoint.Checkpoint) {
	t.Helper()
	resume := func() (err error) { cp, err = s.Resume(t.Context()); return err }
	if b.Succeed != nil {
		b.Succeed(t, resume)
	} else {
		must.Succeed(t, resume())
	}
	return cp
}

// Commit commits the entities from up to to, and the checkpoint behind them.
func (Bus[S]) Commit(t testing.TB, s S, from, to int) {
	t.Helper()
	commitEntities(t, s, Entities(from, to-from), At(to))
}

// ResumeAndCommit resumes a sink, and commits with it.
func (b Bus[S]) ResumeAndCommit(t testing.TB, s S, from, to int) {
	t.Helper()
	b.Resume(t, s)
	b.Commit(t, s, from, to)
}

// CommitAndCheck commits, and checks that the topic holds the feed up to to.
func (b Bus[S]) CommitAndCheck(t testing.TB, s S, from, to int) {
	t.Helper()
	b.Commit(t, s, from, to)
	b.WantFeed(t, s, to)
}

// ContinueTo resumes, commits, and checks that the topic holds the feed up to to.
func (b Bus[S]) ContinueTo(t testing.TB, s S, from, to int) {
	t.Helper()
	b.Resume(t, s)
	b.CommitAndCheck(t, s, from, to)
}

// WantCount resumes a sink, and checks how many entities its checkpoint has.
func (b Bus[S]) WantCount(t testing.TB, s S, want uint64) {
	t.Helper()
	if cp := b.Resume(t, s); cp.Count != want {
		t.Errorf("checkpoint %+v, want count %d", cp, want)
	}
}

// WantFeed checks that the topic of a sink holds the first n entities of the feed.
func (b Bus[S]) WantFeed(t testing.TB, s S, n int) {
	t.Helper()
	WantFeed(t, b.Log(s), n)
}

// WantMarks resumes a sink, and checks that it holds the marks of entities and no others.
func (b Bus[S]) WantMarks(t testing.TB, s S, entities []feed.Entity) {
	t.Helper()
	b.Resume(t, s)
	wantMarks(t, s, entities)
}

// CommitMarked commits entities, of which the topic has n then.
func (Bus[S]) CommitMarked(t testing.TB, s S, entities []feed.Entity, n int) {
	t.Helper()
	commitEntities(t, s, entities, At(n))
}

// Marked are the n entities of the feed that follow the first from ones, with marks.
func Marked(from, n int) []feed.Entity {
	entities := Entities(from, n)
	for i := range entities {
		entities[i].Mark = fmt.Sprintf("v1;%d", from+i)
	}
	return entities
}

// TooLarge returns why an entity is a dead letter.
func TooLarge() *feed.DeadReason {
	return &feed.DeadReason{Kind: feed.DeadTooLarge, Text: "it is too large"}
}

// Bodies returns the positions and bodies of records.
func Bodies(all []feed.Record) (text string) {
	for _, r := range all {
		text += fmt.Sprintf("%d:%s ", r.Position, r.Body)
	}
	return text
}

// WantBodies checks the positions and messages of a log.
func WantBodies(t testing.TB, log Log, first, end uint64, text string) {
	t.Helper()
	span := Span(t, log)
	if span.First != first || span.End != end {
		t.Errorf("positions %+v, want %d to %d", span, first, end)
	}
	WantPart(t, log, span.First, span.End, text)
}

// WantPart checks the messages of a log from one position up to another.
func WantPart(t testing.TB, log Log, from, to uint64, text string) {
	t.Helper()
	if got := Bodies(Records(t, log, from, to)); got != text {
		t.Errorf("from %d to %d: %q, want %q", from, to, got, text)
	}
}

// WantMissing checks that s, which has resumed, and another sink find that the checkpoint is missing, until a
// person sets it.
func (b Bus[S]) WantMissing(t testing.TB, s S, more func() S) {
	t.Helper()
	for _, s := range []S{s, more()} {
		_, err := s.Resume(t.Context())
		WantError(t, err, true, checkpoint.ErrMissing, "'feedbridge checkpoint set orders'", "'feedbridge checkpoint reset orders'")
		if err := s.Commit(t.Context(), nil, At(1)); err == nil {
			t.Error("a commit after a resume that failed is not refused")
		}
	}
	must.Succeed(t, more().Overwrite(t.Context(), MoveTo(At(7))))
	b.WantCount(t, s, 7)
	b.Commit(t, s, 7, 9)
}

// WantClosed checks that a sink whose connection was closed reports that.
func (Bus[S]) WantClosed(t testing.TB, s S) {
	t.Helper()
	WantError(t, s.Commit(t.Context(), nil, At(2)), false, nil, "is closed")
	_, err := s.Resume(t.Context())
	WantError(t, err, false, nil, "is closed")
}
