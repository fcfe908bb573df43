package nats_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// sent returns a function that returns the number of messages sent to the topic's subject,
// stored or not.
func sent(t *testing.T, url string) func() int {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync(orders().Subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return func() int {
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		n, _, err := sub.Pending()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// commitAhead commits entities up to to, and announces those up to ahead.
func commitAhead(t *testing.T, s *nats.Sink, entities []feed.Entity, to, ahead int) []feed.Entity {
	t.Helper()
	next := sinktest.Entities(to, ahead-to)
	if err := s.Commit(t.Context(), entities, sinktest.At(to), func() []feed.Entity { return next }); err != nil {
		t.Fatal(err)
	}
	return next
}

func TestEntitiesThatWereSentAheadAreNotSentAgain(t *testing.T) {
	t.Parallel()
	url := runServer(t, &server.Options{JetStream: true, JetStreamLimits: server.JSLimitOpts{MaxBatchTimeout: time.Hour}}).ClientURL()
	conn := connect(t, nats.Config{URL: url})
	s := conn.Sink(orders())
	resume(t, s)
	messages := sent(t, url)
	next := commitAhead(t, s, sinktest.Entities(0, 3), 3, 10)
	s.Hurry() // after a pause it would send them again
	if err := s.Commit(t.Context(), next, sinktest.At(10), nil); err != nil {
		t.Fatal(err)
	}
	wantFeed(t, s, 10)
	eventually(t, "the messages arrive", func() bool { return messages() >= 10 })
	if n := messages(); n != 10 {
		t.Errorf("%d messages were sent for 10 entities", n)
	}
}

// The sequences that the fence of a batch sent ahead has were predicted. Another message in the
// stream makes them wrong, which costs no commit, and ends the prediction for a while.
func TestWhatWasSentAheadIsSentAgainIfTheStreamHasOtherMessages(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	js := admin(t, server.URL())
	share(t, js)
	s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 2)
	next := commitAhead(t, s, sinktest.Entities(2, 1), 3, 10)
	cart(t, js)
	s.Hurry()
	next = commitAhead(t, s, next, 10, 15)
	s.Hurry()
	asked := false
	if err := s.Commit(t.Context(), next, sinktest.At(15), func() []feed.Entity {
		asked = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if asked {
		t.Error("more is sent ahead")
	}
	wantFeed(t, s, 15)
}

// A server that was restarted has dropped what was sent ahead. A Resume forgets it, so that the
// next commit does not rely on it.
func TestWhatWasSentAheadIsForgottenByAResume(t *testing.T) {
	t.Parallel()
	dir, listen := t.TempDir(), freeAddress(t)
	server := startServer(t, dir, listen)
	s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resume(t, s)
	next := commitAhead(t, s, sinktest.Entities(0, 3), 3, 10)
	server.Close()
	startServer(t, dir, listen)
	resumeAgain(t, s)
	if err := s.Commit(t.Context(), next, sinktest.At(10), nil); err != nil {
		t.Fatal(err)
	}
	wantFeed(t, s, 10)
}

// A server that takes few batches at a time drops those beyond without a word,
// and a commit that relies on one fails. Sending ahead must not make that last.
func TestNothingIsSentAheadSoonAfterAFailedCommit(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	s, other := connect(t, nats.Config{URL: server.URL()}).Sink(orders()), connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resume(t, s)
	resume(t, other)
	commit(t, other, 0, 2)
	if err := s.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2), nil); !errors.Is(err, checkpoint.ErrConflict) {
		t.Fatalf("commit of a stale writer: %v", err)
	}
	resume(t, s)
	asked := false
	err := s.Commit(t.Context(), sinktest.Entities(2, 1), sinktest.At(3), func() []feed.Entity {
		asked = true
		return nil
	})
	if err != nil || asked {
		t.Errorf("commit: %v; asked for more: %v", err, asked)
	}
}

// A server allows few open batches at once, and entities that are sent ahead keep a batch
// open for long. So with many sinks on one stream nothing is sent ahead.
func TestManySinksOfOneStreamSendNothingAhead(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	conn := connect(t, nats.Config{URL: server.URL()})
	asks := func(s *nats.Sink) (asked bool) {
		resume(t, s)
		err := s.Commit(t.Context(), sinktest.Entities(0, 1), sinktest.At(1), func() []feed.Entity {
			asked = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return asked
	}
	topic := orders()
	topic.Stream.Name = "SHOP"
	if !asks(conn.Sink(topic)) {
		t.Error("the only sink does not send ahead")
	}
	for range 10 {
		conn.Sink(topic)
	}
	other := orders()
	other.Subject, other.Stream.Name = "shop.returns", "RETURNS"
	if !asks(conn.Sink(other)) {
		t.Error("the only sink of another stream does not send ahead")
	}
	last := conn.Sink(topic)
	asked := false
	cp := resume(t, last)
	cp.Count++
	err := last.Commit(t.Context(), sinktest.Entities(1, 1), cp, func() []feed.Entity {
		asked = true
		return nil
	})
	if err != nil || asked {
		t.Errorf("one of many sinks: %v; asked for more: %v", err, asked)
	}
}

// Entities that are sent ahead are not sent between the entities of a commit, which would delay
// that.
func TestSentAheadAfterTheCommit(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	nc, err := natsgo.Connect(server.URL(), natsgo.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync(orders().Subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resume(t, s)
	const n, commits = 300, 5
	for i := range commits {
		commitAhead(t, s, sinktest.Entities(i*n, n), (i+1)*n, (i+2)*n)
	}
	// Later messages on the same connection arrive later.
	if err := s.Log().Conn().Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	batches := map[string]bool{}
	for before := ""; ; {
		msg, err := sub.NextMsg(time.Millisecond)
		if err != nil {
			break
		}
		id := msg.Header.Get("Nats-Batch-Id")
		if id != before && batches[id] {
			t.Fatal("the entities of two batches are mixed")
		}
		before, batches[id] = id, true
	}
	if len(batches) != 2*commits {
		t.Errorf("%d batches, want %d", len(batches), 2*commits)
	}
}

// TestPanicOfNextReachesTheCaller: a panic in another goroutine would end the process, and
// with it all other feeds.
func TestPanicOfNextReachesTheCaller(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resume(t, s)
	func() {
		defer func() {
			if v := recover(); v != "defect" {
				t.Errorf("Commit panicked with %v", v)
			}
		}()
		_ = s.Commit(t.Context(), sinktest.Entities(0, 3), sinktest.At(3), func() []feed.Entity { panic("defect") })
	}()
	if cp := resume(t, s); cp.Count != 3 {
		t.Errorf("the checkpoint has %d entities, want 3", cp.Count)
	}
}
