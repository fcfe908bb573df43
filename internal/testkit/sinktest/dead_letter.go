package sinktest

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	codec "github.com/feedbridge/feedbridge/message"
)

// withDead returns the entities from up to to, of which those in dead are dead letters.
func withDead(from, to int, dead ...int) []feed.Entity {
	entities := Entities(from, to-from)
	for _, i := range dead {
		entities[i-from].Dead = TooLarge()
	}
	return entities
}

// liveAt is [At] for a topic of which n entities of the feed were read and some are dead letters.
func liveAt(n, dead int) checkpoint.Checkpoint {
	cp := At(n)
	cp.Count -= uint64(dead)
	return cp
}

// LastDead returns the entities from up to to, of which the last is a dead letter, and the checkpoint
// behind them, before which there were dead ones.
func LastDead(from, to, dead int) ([]feed.Entity, checkpoint.Checkpoint) {
	return withDead(from, to, to-1), liveAt(to, dead+1)
}

// CommitLastDead commits what LastDead returns.
func CommitLastDead(t testing.TB, s Sink, from, to, dead int) {
	t.Helper()
	entities, cp := LastDead(from, to, dead)
	commitEntities(t, s, entities, cp)
}

func commitEntities(t testing.TB, s Sink, entities []feed.Entity, cp checkpoint.Checkpoint) {
	t.Helper()
	must.Succeed(t, s.Commit(t.Context(), entities, cp))
}

func readLog(t testing.TB, log Log) []feed.Record {
	t.Helper()
	span, err := log.Span(t.Context())
	if errors.Is(err, feed.ErrNoTopic) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return Records(t, log, span.First, span.End)
}

// WantNumbers checks that a log has exactly these entities of the feed.
func WantNumbers(t testing.TB, what string, log Log, numbers ...int) {
	t.Helper()
	var got, want []string
	for _, r := range readLog(t, log) {
		id, _ := r.Header.Get(codec.ContentID)
		got = append(got, id)
	}
	for _, n := range numbers {
		want = append(want, Entities(n, 1)[0].ID)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func deadLetter(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commitEntities(t, s, withDead(0, 4, 1, 3), liveAt(4, 2))
	commitEntities(t, s, withDead(4, 6), liveAt(6, 2))
	WantNumbers(t, "topic", topic.Log, 0, 2, 4, 5)
	WantNumbers(t, "dead letters", topic.DeadLetters, 1, 3)
	wantCheckpoint(t, resume(t, topic.Open()), liveAt(6, 2))
	want := Entities(1, 1)[0]
	got := readLog(t, topic.DeadLetters)[0]
	if !bytes.Equal(got.Body, want.Body) {
		t.Errorf("body %q, want %q", got.Body, want.Body)
	}
	for name, value := range map[string]string{
		codec.DeadReason: "it is too large", codec.DeadLength: strconv.Itoa(len(want.Body)),
		codec.Page: want.Page, codec.FeedName: "orders", "Content-Type": "application/json", codec.OperationType: "http-equiv=PUT",
	} {
		if v, _ := got.Header.Get(name); v != value {
			t.Errorf("%s is %q, want %q", name, v, value)
		}
	}
}

func deadLetterFirst(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commitEntities(t, s, withDead(0, 1, 0), liveAt(1, 1))
	// A sink that was not there knows that there was no entity yet.
	s = topic.Open()
	resume(t, s)
	WantNumbers(t, "topic", topic.Log)
	commitEntities(t, s, withDead(1, 3, 1), liveAt(3, 2))
	WantNumbers(t, "topic", topic.Log, 2)
	WantNumbers(t, "dead letters", topic.DeadLetters, 0, 1)
	s = topic.Open()
	wantCheckpoint(t, resume(t, s), liveAt(3, 2))
	wantHeld(t, s, 3)
	// Nothing was deleted in front of the first entity.
	span, err := topic.Log.Span(t.Context())
	if err != nil || span.First != 0 {
		t.Errorf("span %+v, %v; want that it begins at 0", span, err)
	}
}

func deadLettersOfNewSink(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	for n := 0; n < 50; n += 10 {
		commitEntities(t, s, withDead(n, n+10, n, n+9), liveAt(n+10, n/5+2))
	}
	wantHeld(t, s, 50)
	fresh := topic.Open()
	resume(t, fresh)
	wantHeld(t, fresh, 50)
}

func deadLettersOfOther(t *testing.T, topic Topic) {
	a, b := topic.Open(), topic.Open()
	resume(t, a)
	commit(t, a, 0, 2)
	resume(t, b)
	commitEntities(t, b, withDead(2, 4, 3), liveAt(4, 1))
	commitEntities(t, b, withDead(4, 5, 4), liveAt(5, 2))
	resume(t, a)
	wantHeld(t, a, 5)
	commitEntities(t, a, withDead(5, 6, 5), liveAt(6, 3))
	wantHeld(t, a, 6)
	resume(t, a)
	wantHeld(t, a, 6)
	resume(t, b)
	wantHeld(t, b, 6)
	WantNumbers(t, "dead letters", topic.DeadLetters, 3, 4, 5)
}

func deadLetterStale(t *testing.T, topic Topic) {
	stale, other := topic.Open(), topic.Open()
	resume(t, stale)
	resume(t, other)
	commitEntities(t, other, withDead(0, 1, 0), liveAt(1, 1))
	if err := stale.Commit(t.Context(), withDead(0, 1, 0), liveAt(1, 1)); !errors.Is(err, checkpoint.ErrConflict) {
		t.Errorf("commit of a stale writer: %v, want ErrConflict", err)
	}
	resume(t, stale)
	wantHeld(t, stale, 1)
	commitEntities(t, stale, withDead(1, 2, 1), liveAt(2, 2))
	WantNumbers(t, "topic", topic.Log)
	WantNumbers(t, "dead letters", topic.DeadLetters, 0, 1)
}

func deadLetterMark(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	entities := withDead(0, 2, 1)
	entities[0].Mark, entities[1].Mark = "v1;a", "v1;b"
	commitEntities(t, s, entities, liveAt(2, 1))
	fresh := topic.Open()
	resume(t, fresh)
	wantMarks(t, s, entities)
	wantMarks(t, fresh, entities)
	// The next version of the second entity fits.
	changed := withDead(1, 2)
	changed[0].Mark = "v1;c"
	commitEntities(t, s, changed, liveAt(3, 1))
	for _, s := range []Sink{s, fresh, topic.Open()} {
		resume(t, s)
		wantMarks(t, s, entities, changed)
	}
}

// A commit has several versions of an entity, of which some are dead letters.
func deadLetterVersions(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	var entities, newest []feed.Entity
	for n, dead := range []string{"10", "01", "101", "010"} {
		for i, kind := range dead {
			version := withDead(n, n+1)
			if kind == '1' {
				version = withDead(n, n+1, n)
			}
			version[0].Mark = "v1;" + strconv.Itoa(i)
			entities = append(entities, version...)
		}
		newest = append(newest, entities[len(entities)-1])
	}
	commitEntities(t, s, entities, liveAt(10, 5))
	fresh := topic.Open()
	resume(t, fresh)
	wantMarks(t, s, newest)
	wantMarks(t, fresh, newest)
}

// The body and the headers are larger than any bus takes.
func deadLetterHuge(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	entities := withDead(0, 4, 0, 1, 2)
	entities[0].Body = bytes.Repeat([]byte("12345678"), 1<<20)
	entities[1].Header = append(entities[1].Header, feed.Field{Name: "X-Large", Value: strings.Repeat("x", 8<<20)})
	for range 100_000 {
		entities[2].Header = append(entities[2].Header, feed.Field{Name: "X-Many", Value: "another value of the same header"})
	}
	entities[2].Page = "http://feed.example.com/" + strings.Repeat("p", 1<<20)
	commitEntities(t, s, entities, liveAt(4, 3))
	WantNumbers(t, "topic", topic.Log, 3)
	WantNumbers(t, "dead letters", topic.DeadLetters, 0, 1, 2)
	got := readLog(t, topic.DeadLetters)
	if n := len(got[0].Body); n < 1<<19 || n >= 8<<20 || !bytes.HasPrefix(entities[0].Body, got[0].Body) {
		t.Errorf("the first one has %d bytes, want most of what the bus takes", n)
	}
	if v, _ := got[0].Header.Get(codec.DeadLength); v != strconv.Itoa(8<<20) {
		t.Errorf("%s is %q", codec.DeadLength, v)
	}
	if _, has := got[1].Header.Get("X-Large"); has || string(got[1].Body) != string(entities[1].Body) {
		t.Errorf("the second one has the large header, or has not its body: %q", got[1].Body)
	}
	fresh := topic.Open()
	resume(t, fresh)
	wantHeld(t, fresh, 4)
}
