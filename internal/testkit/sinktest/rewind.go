package sinktest

import (
	"errors"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// TestRewind is the part of the suite that restores a bus from a backup: it returns
// to an earlier state, with its checkpoints, while sinks that know a newer one stay
// open. Each of its tests asks open for a topic on a bus that no other test uses.
func TestRewind(t *testing.T, open func(t *testing.T) Topic) {
	run(t, parallel, open, []test{
		{"a sink forgets IDs that the topic lost with its newest messages", rewoundIDs},
		{"a sink that only stood by forgets IDs that the topic lost", rewoundStandby},
		{"a sink learns IDs that another put below a sequence that it had loaded", rewoundBelow},
		{"a sink forgets marks that the topic lost with its newest messages", rewoundMarks},
		{"a commit after a state that the topic lost is refused", rewoundStale},
		{"a commit after a state that the topic lost is refused at the same sequence", rewoundSameSequence},
		{"a sink continues alone from the state that the topic returned to", rewoundAlone},
	})
}

// backUp takes a backup of the bus of a sink, which is resumed afterwards.
func backUp(t *testing.T, topic Topic, s Sink) (restore func()) {
	t.Helper()
	restore = topic.Backup(t)
	resumeRestored(t, topic, s)
	return restore
}

// patience limits how long a bus takes to be reachable again after a restore.
const patience = time.Minute

// resumeRestored resumes a sink whose bus was restored, and waits until the topic can
// be read back, too. It repeats transient errors.
func resumeRestored(t *testing.T, topic Topic, s Sink) checkpoint.Checkpoint {
	t.Helper()
	for begin := time.Now(); ; wait(t, 50*time.Millisecond) {
		cp, err := s.Resume(t.Context())
		if err == nil {
			_, err = topic.Log.Span(t.Context())
		}
		if err == nil {
			return cp
		}
		if errors.Is(err, feed.ErrPermanent) || time.Since(begin) > patience {
			t.Fatalf("resume after a restore: %v", err)
		}
	}
}

func wait(t *testing.T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// wantRefused checks that a commit of a sink that knows a lost state of the topic fails, and
// that the topic still has the first n entities of the feed. The error depends on whether the
// connection has survived the restore.
func wantRefused(t *testing.T, topic Topic, stale Sink, n int) {
	t.Helper()
	err := stale.Commit(t.Context(), Entities(500, 3), At(1000))
	if err == nil {
		t.Error("the commit of a sink that knows a lost state of the topic is not refused")
	}
	if errors.Is(err, feed.ErrPermanent) {
		t.Errorf("the error of a stale commit is permanent: %v", err)
	}
	wantCheckpoint(t, resumeRestored(t, topic, topic.Open()), At(n))
	wantFeed(t, topic, n)
}

// commitEach commits the entities from up to to, each in a commit of its own.
func commitEach(t *testing.T, s Sink, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		commit(t, s, n, n+1)
	}
}

// move commits the checkpoint behind n entities again, times times: the position in
// the topic grows, its entities do not.
func move(t *testing.T, s Sink, n, times int) {
	t.Helper()
	for range times {
		commit(t, s, n, n)
	}
}

func rewoundIDs(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, 3)
	restore := backUp(t, topic, s)
	commit(t, s, 3, 20)
	restore()
	// Another copy publishes less of the lost tail, in more commits, and reaches a
	// higher sequence.
	other := topic.Open()
	wantCheckpoint(t, resumeRestored(t, topic, other), At(3))
	commitEach(t, other, 3, 13)
	move(t, other, 13, 20)
	wantCheckpoint(t, resumeRestored(t, topic, s), At(13))
	wantHeld(t, s, 13)
	resume(t, s)
	commit(t, s, 13, 20)
	wantFeed(t, topic, 20)
}

func rewoundStandby(t *testing.T, topic Topic) {
	s, standby := topic.Open(), topic.Open()
	resume(t, s)
	commit(t, s, 0, 3)
	restore := backUp(t, topic, s)
	commit(t, s, 3, 20)
	wantCheckpoint(t, resumeRestored(t, topic, standby), At(20))
	restore()
	wantCheckpoint(t, resumeRestored(t, topic, s), At(3))
	commitEach(t, s, 3, 13)
	move(t, s, 13, 20)
	wantCheckpoint(t, resumeRestored(t, topic, standby), At(13))
	wantHeld(t, standby, 13)
}

func rewoundBelow(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, 3)
	restore := backUp(t, topic, s)
	commitEach(t, s, 3, 13)
	restore()
	// Another copy publishes more in fewer commits: entities that s has never seen
	// have sequences below the newest that it has loaded, and the count has not fallen.
	other := topic.Open()
	wantCheckpoint(t, resumeRestored(t, topic, other), At(3))
	commit(t, other, 3, 18)
	move(t, other, 18, 20)
	wantCheckpoint(t, resumeRestored(t, topic, s), At(18))
	wantHeld(t, s, 18)
}

func rewoundMarks(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	first := marked(0, 3, 1)
	n := commitAll(t, topic, s, 0, first)
	restore := backUp(t, topic, s)
	commitAll(t, topic, s, n, marked(0, 10, 2))
	restore()
	other := topic.Open()
	wantCheckpoint(t, resumeRestored(t, topic, other), At(3))
	added := marked(10, 2, 1)
	n = commitAll(t, topic, other, n, added)
	move(t, other, n, 20)
	resumeRestored(t, topic, s)
	wantMarks(t, s, first, added)
}

func rewoundStale(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, 3)
	restore := backUp(t, topic, s)
	commit(t, s, 3, 10)
	restore()
	wantRefused(t, topic, s, 3)
	wantCheckpoint(t, resumeRestored(t, topic, s), At(3))
	commit(t, s, 3, 5)
	wantFeed(t, topic, 5)
}

func rewoundSameSequence(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, 3)
	restore := backUp(t, topic, s)
	// Four messages: three entities and a checkpoint. Then the sink pauses: its next
	// commit is the first since it has looked.
	commit(t, s, 3, 6)
	wantCheckpoint(t, resume(t, s), At(6))
	wait(t, topic.Pause)
	restore()
	// Four others: an entity and three checkpoints.
	other := topic.Open()
	wantCheckpoint(t, resumeRestored(t, topic, other), At(3))
	commit(t, other, 3, 4)
	move(t, other, 4, 2)
	wantRefused(t, topic, s, 4)
	wantCheckpoint(t, resumeRestored(t, topic, s), At(4))
	commit(t, s, 4, 6)
	wantFeed(t, topic, 6)
}

func rewoundAlone(t *testing.T, topic Topic) {
	s := topic.Open()
	resume(t, s)
	commit(t, s, 0, 3)
	restore := backUp(t, topic, s)
	commit(t, s, 3, 10)
	for range 2 {
		restore()
		wantCheckpoint(t, resumeRestored(t, topic, s), At(3))
		wantHeld(t, s, 3)
		resume(t, s)
		commit(t, s, 3, 5)
		commit(t, s, 5, 12)
		wantFeed(t, topic, 12)
		resume(t, s)
		wantHeld(t, s, 12)
	}
}
