package nats_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

// rewindable is a server whose store can be taken back to an earlier state, as a
// power cut does that loses the tail, or a backup that is restored.
type rewindable struct {
	t           *testing.T
	dir, listen string
	server      *embedded.Server
	backup      string
}

func newRewindable(t *testing.T) *rewindable {
	r := &rewindable{t: t, dir: t.TempDir(), listen: freeAddress(t)}
	r.server = startServer(t, r.dir, r.listen)
	return r
}

// save keeps a copy of the store as it is now.
func (r *rewindable) save() {
	r.t.Helper()
	r.restart(func() { r.backup = copyOf(r.t, r.dir) })
}

// rewind restarts the server with the store that was saved.
func (r *rewindable) rewind() {
	r.t.Helper()
	r.restart(func() {
		must.Succeed(r.t, os.RemoveAll(r.dir))
		must.Succeed(r.t, os.CopyFS(r.dir, os.DirFS(r.backup)))
	})
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	must.Succeed(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func (r *rewindable) restart(while func()) {
	r.t.Helper()
	r.server.Close()
	while()
	r.server = startServer(r.t, r.dir, r.listen)
}

func (r *rewindable) open() *nats.Sink {
	return connect(r.t, nats.Config{URL: r.server.URL()}).Sink(orders())
}

// resumeAgain resumes a sink whose server was away.
func resumeAgain(t *testing.T, s *nats.Sink) (cp checkpoint.Checkpoint) {
	t.Helper()
	eventually(t, "the sink resumes", func() bool {
		var err error
		cp, err = s.Resume(t.Context())
		return err == nil
	})
	return cp
}

// wantHeld checks which of the first n entities of the feed a sink takes for held: the
// first held ones.
func wantHeld(t *testing.T, s *nats.Sink, n, held int) {
	t.Helper()
	for i, e := range sinktest.Entities(0, n) {
		if fresh := s.IDs().Add(e.ID); fresh != (i >= held) {
			t.Errorf("entity %d counts as fresh: %v, want %v", i, fresh, i >= held)
		}
	}
}

// The bus loses its tail, and another copy publishes it again in smaller commits and
// stops half-way: the stream is longer than before, and holds fewer entities. A copy that
// trusted its memory would drop the rest as duplicates.
func TestLostTailIsFilledInSmallerCommits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		remember func(s, writer *nats.Sink) // has s know the entities up to 40
	}{
		"a copy that wrote the tail": {remember: func(s, _ *nats.Sink) {
			resumeAndCommit(t, s, 10, 40)
		}},
		"a copy that stood by": {remember: func(s, writer *nats.Sink) {
			resumeAndCommit(t, writer, 10, 40)
			resume(t, s)
		}},
		"a copy that stood by and moved the checkpoint": {remember: func(s, writer *nats.Sink) {
			resumeAndCommit(t, writer, 10, 40)
			resumeAndCommit(t, s, 40, 40)
		}},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			r := newRewindable(t)
			first := r.open()
			resume(t, first)
			commit(t, first, 0, 10) // 1 to 10, and the checkpoint
			r.save()
			var log logbuffer.Buffer
			s := connectLogging(t, nats.Config{URL: r.server.URL()}, &log).Sink(orders())
			test.remember(s, r.open())
			before := lastSequence(t, admin(t, r.server.URL()))

			r.rewind()
			other := r.open()
			wantCount(t, other, 10)
			for i := 10; i < 30; i++ {
				commit(t, other, i, i+1)
			}
			if after := lastSequence(t, admin(t, r.server.URL())); after <= before {
				t.Fatalf("the stream ends at %d, want more than %d", after, before)
			}

			if cp := resumeAgain(t, s); cp.Count != 30 {
				t.Fatalf("checkpoint %+v, want count 30", cp)
			}
			wantHeld(t, s, 40, 30)
			continueTo(t, s, 30, 40)
			if n := strings.Count(log.String(), "the newest known message is gone"); n != 1 {
				t.Errorf("the loss is logged %d times, want 1:\n%s", n, log.String())
			}
		})
	}
}

// Another copy fills the lost tail with other entities, in as many commits of the same
// sizes, so that the checkpoint has the same sequence and the same Count.
func TestLostTailIsFilledWithOtherEntities(t *testing.T) {
	t.Parallel()
	r := newRewindable(t)
	s := r.open()
	resumeAndCommit(t, s, 0, 10)
	r.save()
	s = r.open()
	resumeAndCommit(t, s, 10, 20)

	r.rewind()
	other := r.open()
	resume(t, other)
	cp := sinktest.At(20)
	cp.Cursor = []byte("another position")
	must.Succeed(t, other.Commit(t.Context(), sinktest.Entities(100, 10), cp))
	resumeAgain(t, s)
	wantHeld(t, s, 20, 10)
	wantKnown(t, s, true, sinktest.Entities(100, 10)...)
}

// A message behind the checkpoint was known, and is gone although the checkpoint is the
// same.
func TestMessageBehindTheCheckpointIsLost(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	commit(t, s, 0, 3)
	e := sinktest.Entities(3, 1)[0]
	msg := &natsgo.Msg{Subject: "shop.orders", Header: natsgo.Header{"Content-ID": {e.ID}}}
	publishMsg(t, js, msg)
	next := starts(t, js.Conn().ConnectedUrl())
	resume(t, s)
	wantHeld(t, s, 4, 4)
	resume(t, s)
	wantHeld(t, s, 4, 4)
	must.Match(t, "it is read from", []uint64{4}, next())
	stream := ordersStream(t, js)
	must.Succeed(t, stream.DeleteMsg(t.Context(), 5))
	resume(t, s)
	wantHeld(t, s, 4, 3)
}

// While a copy is idle its stream is replaced, and the newest checkpoint has the very
// sequence that the copy knows. The server compares only sequences.
func TestAnotherCheckpointHasTheSameSequence(t *testing.T) {
	t.Parallel()
	for name, entities := range map[string][]feed.Entity{
		"a commit of entities":          sinktest.Entities(5, 2),
		"a commit of a checkpoint only": nil,
	} {
		parallel.Run(t, name, func(t *testing.T) {
			s, js, more := open(t, orders())
			commit(t, s, 0, 2) // 1 to 2, and the checkpoint
			commit(t, s, 2, 5) // 4 to 6, and the checkpoint
			must.Succeed(t, js.DeleteStream(t.Context(), "shop_orders"))
			other := more()
			resumeAndCommit(t, other, 0, 2)
			commit(t, other, 2, 3)
			commit(t, other, 3, 4)
			if last := lastSequence(t, js); last != 7 {
				t.Fatalf("the checkpoint has the sequence %d, want 7", last)
			}
			s.Rest()
			err := s.Commit(t.Context(), entities, sinktest.At(5+len(entities)))
			wantError(t, err, false, checkpoint.ErrConflict, "its checkpoint differs from the one that was read")
			wantCount(t, s, 4)
			commitAndCheck(t, s, 4, 7)
		})
	}
}

// A commit proves what was there when the server stored it, and not when its answer came, which may be
// much later.
func TestCommitProvesTheFenceAtItsBeginning(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	stream := ordersStream(t, js)
	for to := range 3 { // of which the first has no entities
		commit(t, s, max(0, to-1), to)
		stored, err := stream.GetLastMsgForSubject(t.Context(), "_feedbridge.shop.orders")
		must.Succeed(t, err)
		if proved := s.Proved(); proved.Round(0).After(stored.Time) {
			t.Errorf("the fence counts as proved at %v, %v after the checkpoint was stored", proved, proved.Sub(stored.Time))
		}
	}
}

// The comparison finds both a checkpoint that was read and one that the copy has stored
// itself.
func TestCommitAfterAPause(t *testing.T) {
	t.Parallel()
	s, _, more := open(t, orders())
	s.Rest() // with no checkpoint
	commit(t, s, 0, 2)
	s.Rest() // with its own, of a batch
	commit(t, s, 2, 2)
	s.Rest() // with its own checkpoint, in a commit without entities
	commit(t, s, 2, 3)
	s = more()
	resume(t, s)
	s.Rest() // with one that it has read
	commitAndCheck(t, s, 3, 4)
}

// A process that has seen a topic's checkpoint does not take the topic for a fresh one
// when the checkpoint is gone, whatever the stream looks like.
func TestCheckpointThatWasSeenIsGone(t *testing.T) {
	t.Parallel()
	shared := func(t *testing.T, js jetstream.JetStream) { share(t, js) }
	alone := func(*testing.T, jetstream.JetStream) {}
	for name, test := range map[string]struct {
		stream func(*testing.T, jetstream.JetStream)
		see    func(*testing.T, *nats.Sink)
		lose   func(*testing.T, jetstream.JetStream)
	}{
		"a shared stream was purged":                                      {shared, seeByCommit, purgeAll},
		"a shared stream was purged after another copy had written to it": {shared, seeByResume, purgeAll},
		"a stream was deleted and created again": {alone, seeByCommit, func(t *testing.T, js jetstream.JetStream) {
			must.Succeed(t, js.DeleteStream(t.Context(), "shop_orders"))
			createStream(t, js, fitting())
		}},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			server, js := newServer(t)
			test.stream(t, js)
			more := func() *nats.Sink { return connect(t, nats.Config{URL: server.URL()}).Sink(orders()) }
			s := more()
			test.see(t, s)
			test.lose(t, js)
			for range 2 {
				_, err := s.Resume(t.Context())
				wantError(t, err, true, checkpoint.ErrMissing, "'feedbridge checkpoint set orders'", "'feedbridge checkpoint reset orders'")
			}
			_, err := s.Checkpoint(t.Context())
			wantError(t, err, true, checkpoint.ErrMissing)
			// The way out that it names.
			move(t, more(), 0)
			resume(t, s)
			wantHeld(t, s, 3, 0)
			continueTo(t, s, 0, 3)
		})
	}
}

func seeByCommit(t *testing.T, s *nats.Sink) {
	t.Helper()
	resumeAndCommit(t, s, 0, 3)
}

func seeByResume(t *testing.T, s *nats.Sink) {
	t.Helper()
	seeByCommit(t, s.Log().Conn().Sink(orders()))
	resume(t, s)
}

func purgeAll(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	purge(t, js)
}

// A stream that its server has back as it was created has lost its first commit, too. Where the
// feed began is known to nobody: with start: now that is not its beginning.
func TestAllOfTheTopicIsLost(t *testing.T) {
	t.Parallel()
	r := newRewindable(t)
	resume(t, r.open())
	r.save()
	s := r.open()
	resumeAndCommit(t, s, 0, 3)
	r.rewind()
	eventually(t, "the sink halts", func() bool {
		_, err := s.Resume(t.Context())
		return errors.Is(err, checkpoint.ErrMissing)
	})
	_, err := s.Resume(t.Context())
	wantError(t, err, true, checkpoint.ErrMissing, "'feedbridge checkpoint set orders'", "'feedbridge checkpoint reset orders'")
	// A process that starts later has not seen the checkpoint.
	other := r.open()
	if cp := resumeAgain(t, other); !cp.IsZero() {
		t.Errorf("checkpoint %+v, want the zero one", cp)
	}
	move(t, other, 0)
	resume(t, s)
	wantHeld(t, s, 3, 0)
	continueTo(t, s, 0, 4)
}

// The server starts without its tail, a copy forgets the IDs and is interrupted while it
// loads them again, and the server gets its tail back.
func TestLostTailComesBackWhileIDsAreLoaded(t *testing.T) {
	t.Parallel()
	r := newRewindable(t)
	writer := r.open()
	resumeAndCommit(t, writer, 0, 10)
	r.save()
	resumeAgain(t, writer)
	commit(t, writer, 10, 40)
	p := runProxy(t, r.listen)
	s := connect(t, nats.Config{URL: p.url()}).Sink(orders())
	resume(t, s)
	whole := ""
	r.restart(func() { whole = copyOf(t, r.dir) })
	r.rewind()

	p.setWatch(func(data []byte) {
		if bytes.Contains(data, []byte("API.CONSUMER.CREATE.")) {
			p.cut()
		}
	})
	eventually(t, "the load of the IDs is interrupted", func() bool {
		_, err := s.Resume(t.Context())
		return err != nil && strings.Contains(err.Error(), "lost") && s.IDs().Len() == 0
	})
	p.setWatch(nil)
	r.backup = whole
	r.rewind()
	if cp := resumeAgain(t, s); cp.Count != 40 {
		t.Fatalf("checkpoint %+v, want count 40", cp)
	}
	wantHeld(t, s, 50, 40)
}
