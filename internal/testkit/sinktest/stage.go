package sinktest

import (
	"testing"

	"github.com/feedbridge/feedbridge/feed"
)

// commitAhead commits the entities from up to to, and announces those up to
// ahead, which it returns.
func commitAhead(t *testing.T, s Sink, entities []feed.Entity, to, ahead int) []feed.Entity {
	t.Helper()
	next := Entities(to, ahead-to)
	if err := s.Commit(t.Context(), entities, At(to), func() []feed.Entity { return next }); err != nil {
		t.Fatalf("commit up to %d: %v", to, err)
	}
	return next
}

func stagedOnce(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	next := commitAhead(t, s, Entities(0, 3), 3, 10)
	wantFeed(t, topic, 3)
	next = commitAhead(t, s, next, 10, 11)
	wantFeed(t, topic, 10)
	next = commitAhead(t, s, next, 11, 11)
	wantFeed(t, topic, 11)
	if len(next) > 0 {
		t.Fatal("the test announced something")
	}
	commit(t, s, 11, 13)
	wantFeed(t, topic, 13)
	wantCheckpoint(t, resume(t, topic.Open()), At(13))
}

func stagedInVain(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commitAhead(t, s, Entities(0, 2), 2, 9)
	// Another batch than the one that was announced, after a look at the topic
	// and without one.
	wantCheckpoint(t, resume(t, s), At(2))
	commit(t, s, 2, 4)
	wantFeed(t, topic, 4)
	other := func() []feed.Entity { return Entities(500, 2) }
	if err := s.Commit(t.Context(), Entities(4, 1), At(5), other); err != nil {
		t.Fatal(err)
	}
	commit(t, s, 5, 7)
	wantFeed(t, topic, 7)
	commitAhead(t, s, Entities(7, 1), 8, 9)
	moved := At(8)
	moved.Cursor = []byte("elsewhere")
	if err := s.Commit(t.Context(), nil, moved, nil); err != nil {
		t.Fatal(err)
	}
	wantFeed(t, topic, 8)
	wantCheckpoint(t, resume(t, topic.Open()), moved)
}

func stagedStale(t *testing.T, topic Topic) {
	s, other := topic.Open(), topic.Open()
	resume(t, s)
	next := commitAhead(t, s, Entities(0, 2), 2, 6)
	resume(t, other)
	commit(t, other, 2, 4)
	wantConflict(t, topic, s, next, 4)
	wantCheckpoint(t, resume(t, s), At(4))
	commit(t, s, 4, 5)
	wantFeed(t, topic, 5)
}
