package nats_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// A stock server writes to the disk every two minutes, so a power cut may leave
// the first half of a batch in its log, without the checkpoint that was last in
// it. The entities of the batch are read again then, and those that are there
// must be known.
func TestEntitiesBehindTheCheckpointAreKnown(t *testing.T) {
	const whole, torn = 3, 10
	dir := t.TempDir()
	first := runServer(t, &server.Options{JetStream: true, StoreDir: dir})
	s := connect(t, nats.Config{URL: first.ClientURL()}).Sink(orders())
	resumeAndCommit(t, s, 0, whole)
	before := size(t, block(t, dir))
	commit(t, s, whole, whole+torn)
	after := size(t, block(t, dir))

	// The store as it would be after the cut: half of the batch is there, and
	// the index, which the server rebuilds, is not.
	cut := t.TempDir()
	must.Succeed(t, os.CopyFS(cut, os.DirFS(dir)))
	must.Succeed(t, os.Truncate(block(t, cut), before+(after-before)/2))
	if err := os.Remove(filepath.Join(filepath.Dir(block(t, cut)), "index.db")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	second := runServer(t, &server.Options{JetStream: true, StoreDir: cut})
	s = connect(t, nats.Config{URL: second.ClientURL()}).Sink(orders())
	cp := resume(t, s)
	survivors := 0
	for _, e := range sinktest.Entities(whole, torn) {
		if !s.IDs().Add(e.ID) {
			survivors++
		}
	}
	if int(cp.Count) != whole+survivors || string(cp.Cursor) != strconv.Itoa(whole) {
		t.Errorf("checkpoint %+v, want the cursor %d and the count %d", cp, whole, whole+survivors)
	}
	if survivors == 0 || survivors == torn {
		t.Fatalf("%d of the %d entities of the batch are known: it was not cut in half, or nobody noticed", survivors, torn)
	}
	// The entities that pass the gate complete the topic.
	commitAndCheck(t, s, whole+survivors, whole+torn)
}

// block is the file of the stream's messages in a server's store.
func block(t *testing.T, dir string) string {
	t.Helper()
	var found string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".blk") && strings.Contains(path, string(filepath.Separator)+"msgs"+string(filepath.Separator)) {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("no block of messages in %s: %v", dir, err)
	}
	return found
}

func size(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	must.Succeed(t, err)
	return info.Size()
}

// A sink whose session began before the batch of another copy was torn does not know what is stored
// behind the checkpoint. The other copy is dead, and this one commits without a resume in between.
// The window is much smaller than the batch.
func TestACopyThatDoesNotKnowATornBatchStoresNothing(t *testing.T) {
	t.Parallel()
	const whole, beginning, all = 3, 23, 30
	entity, dead := orders().Subject, deadSubject
	for name, test := range map[string]struct {
		subjects []string // of the messages of the torn batch, in turn
		others   []string // other subjects of the stream
		moves    bool     // the copy commits a checkpoint without entities before
	}{
		"entities":                     {subjects: []string{entity}},
		"entities, in a shared stream": {subjects: []string{entity}, others: []string{"other"}},
		"dead letters":                 {subjects: []string{dead}},
		"entities and dead letters":    {subjects: []string{entity, dead, dead}},
		"entities, and a checkpoint without entities is stored behind them":                    {subjects: []string{entity}, moves: true},
		"entities, and a checkpoint without entities is stored behind them in a shared stream": {subjects: []string{entity}, others: []string{"other"}, moves: true},
		"dead letters, and a checkpoint without entities is stored behind them":                {subjects: []string{dead}, moves: true},
	} {
		for begin, first := range map[string]int{"a dead letter": 0, "an entity": 1} {
			t.Run(name+", and the commit begins with "+begin, func(t *testing.T) {
				t.Parallel()
				server := startServer(t, t.TempDir(), "127.0.0.1:0")
				config := fitting()
				config.Subjects = append(append(config.Subjects, deadSubject), test.others...)
				createStream(t, admin(t, server.URL()), config)
				c := connect(t, nats.Config{URL: server.URL()})
				topic := ordersWithDead()
				topic.Window = 5
				stale, more := c.Sink(topic), func() *nats.Sink { return c.Sink(topic) }
				resumeAndCommit(t, stale, 0, whole)
				behind := 0 // the checkpoint, in the topic
				for i := whole; i < beginning; i++ {
					subject := test.subjects[i%len(test.subjects)]
					torn(t, server.URL(), subject, i)
					if subject == entity && !test.moves {
						behind++
					}
				}
				if test.moves {
					commit(t, stale, whole, whole)
				}
				entities := sinktest.Entities(whole, all-whole)
				entities[first].Dead = sinktest.TooLarge()
				before := lastSequence(t, admin(t, server.URL()))
				err := stale.Commit(t.Context(), entities, sinktest.At(all))
				// No copy has committed, so there is none to stand by for.
				if errors.Is(err, checkpoint.ErrConflict) {
					t.Errorf("the error %v is a conflict", err)
				}
				wantError(t, err, false, nil, "the beginning of a batch that was not stored to its end")
				if after := lastSequence(t, admin(t, server.URL())); after != before {
					t.Errorf("%d messages were stored", after-before)
				}
				wantKnown := func(who string, s *nats.Sink) {
					if cp := resume(t, s); int(cp.Count) != whole+behind {
						t.Errorf("%s: checkpoint %+v, want count %d", who, cp, whole+behind)
					}
					for i, e := range sinktest.Entities(whole, all-whole) {
						if fresh := s.IDs().Add(e.ID); fresh != (whole+i >= beginning) {
							t.Errorf("%s: entity %d counts as fresh: %v", who, whole+i, fresh)
						}
					}
				}
				wantKnown("the copy", stale)
				// Neither a checkpoint without entities nor a person who sets the position ends it.
				other := more()
				resumeAndCommit(t, other, whole, whole)
				behind = 0
				must.Succeed(t, other.Overwrite(t.Context(), func(old checkpoint.Checkpoint) checkpoint.Checkpoint { return old }))
				wantKnown("the copy again", stale)
				wantKnown("another", other)
				wantKnown("a new one", more())
				// The commit of what is left ends that.
				resume(t, stale)
				must.Succeed(t, stale.Commit(t.Context(), sinktest.Entities(beginning, all-beginning), sinktest.At(all)))
				wantIDs(t, stale, topic.Window)
			})
		}
	}
}

// A copy knows the beginning of a batch and has left its entities out, and the stream loses them.
// That is not what retention does: they have to be published.
func TestTheBeginningOfATornBatchIsLost(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	createStream(t, admin(t, server.URL()), fitting())
	s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resumeAndCommit(t, s, 0, 3)
	for i := 3; i < 6; i++ {
		torn(t, server.URL(), orders().Subject, i)
	}
	resume(t, s)
	wantHeld(t, s, 6, 6)
	purge(t, admin(t, server.URL()), jetstream.WithPurgeSubject(orders().Subject))
	wantError(t, s.Commit(t.Context(), sinktest.Entities(6, 1), sinktest.At(7)), false, nil, "or has lost it")
	resume(t, s)
	wantKnown(t, s, false, sinktest.Entities(3, 3)...)
}

// A batch of one entity compares one of the topic's two subjects. So a copy that has taken over a topic in a
// shared stream does not compare less, as fast commits do, before it has looked at the other subject.
func TestADeadLetterOfATornBatchIsNotStoredAgain(t *testing.T) {
	t.Parallel()
	url := startServer(t, t.TempDir(), "127.0.0.1:0").URL()
	js := fastStream(t, url, []string{"other"})
	s := connect(t, nats.Config{URL: url}).Sink(ordersWithDead())
	resumeAndCommit(t, s, 0, 3)
	resume(t, s)
	torn(t, url, deadSubject, 4)
	commit(t, s, 3, 4)
	before := newest(t, js, deadSubject).Sequence
	entities, cp := withDead(4, 5, 0)
	wantError(t, s.Commit(t.Context(), entities, cp), false, nil, "the beginning of a batch that was not stored to its end")
	if newest(t, js, deadSubject).Sequence != before {
		t.Error("it is stored again")
	}
}

// The first commit is an atomic batch, and the second one a fast batch.
func TestEachIDOfALargeCommitIsKnown(t *testing.T) {
	t.Parallel()
	const first, all = 950, 950 + nats.MaxEntities
	c := connect(t, nats.Config{URL: startServer(t, t.TempDir(), "127.0.0.1:0").URL()})
	s, fresh := c.Sink(orders()), c.Sink(orders())
	resumeAndCommit(t, s, 0, first)
	commit(t, s, first, all)
	resume(t, fresh)
	for _, s := range []*nats.Sink{s, fresh} {
		wantHeld(t, s, all, all)
	}
}
