package nats_test

import (
	"bytes"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// open starts a server and returns a sink on a fresh topic that has been
// resumed, and an administrator of the server.
func open(t *testing.T, topic nats.Topic) (*nats.Sink, jetstream.JetStream, func() *nats.Sink) {
	t.Helper()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	more := func() *nats.Sink { return connect(t, nats.Config{URL: server.URL()}).Sink(topic) }
	s := more()
	resume(t, s)
	return s, admin(t, server.URL()), more
}

func purge(t *testing.T, js jetstream.JetStream, opts ...jetstream.StreamPurgeOpt) {
	t.Helper()
	stream := ordersStream(t, js)
	must.Succeed(t, stream.Purge(t.Context(), opts...))
}

func TestTopicHasMessagesAndNoCheckpoint(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *nats.Sink, jetstream.JetStream){
		"someone else has published": func(t *testing.T, _ *nats.Sink, js jetstream.JetStream) {
			publish(t, js, "shop.orders", "mine")
		},
		"the checkpoint was purged": func(t *testing.T, s *nats.Sink, js jetstream.JetStream) {
			commit(t, s, 0, 3)
			purge(t, js, jetstream.WithPurgeSubject("_feedbridge.shop.orders"))
		},
		"all was purged": func(t *testing.T, s *nats.Sink, js jetstream.JetStream) {
			commit(t, s, 0, 3)
			purge(t, js)
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			s, js, more := open(t, orders())
			lose(t, s, js)
			bus.WantMissing(t, s, more)
		})
	}
}

func TestSharedStreamWithOthersMessagesIsAFreshTopic(t *testing.T) {
	t.Parallel()
	for name, subjects := range map[string][]string{
		"named":    {"shop.orders", "shop.carts", "_feedbridge.shop.orders"},
		"patterns": {"shop.>", "_feedbridge.shop.>"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			server, js := newServer(t)
			config := fitting()
			config.Subjects = subjects
			createStream(t, js, config)
			publish(t, js, "shop.carts", "a cart")
			s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
			if cp := resume(t, s); !cp.IsZero() {
				t.Errorf("checkpoint %+v", cp)
			}
			commitAndCheck(t, s, 0, 2)
		})
	}
}

func TestStoredCheckpointCannotBeRead(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	publish(t, js, "_feedbridge.shop.orders", "?")
	_, err := s.Resume(t.Context())
	wantError(t, err, true, checkpoint.ErrUnreadable, "'feedbridge checkpoint set orders'", "'feedbridge checkpoint reset orders'")
	must.Succeed(t, s.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(0))))
	resumeAndCommit(t, s, 0, 1)
}

func TestTopicIsPurgedAndStartedOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		shared bool
		opts   []jetstream.StreamPurgeOpt
	}{
		"the stream":  {},
		"the subject": {opts: []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject("shop.orders")}},
		"the subject, while other subjects keep messages": {shared: true, opts: []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject("shop.orders")}},
		"the stream, with other subjects":                 {shared: true},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			server, js := newServer(t)
			if test.shared {
				share(t, js)
			}
			s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
			resumeAndCommit(t, s, 0, 3)
			purge(t, js, test.opts...)
			reset := sinktest.At(3)
			reset.Cursor, reset.Moved = nil, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			must.Succeed(t, connect(t, nats.Config{URL: server.URL()}).Sink(orders()).Overwrite(t.Context(), sinktest.MoveTo(reset)))
			// A sink that still took the IDs for held would publish nothing.
			resume(t, s)
			wantIDs(t, s, 0)
			commitAndCheck(t, s, 0, 3)
		})
	}
}

// share adds the subject of carts to the stream of the orders, and publishes a cart.
func share(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	config := fitting()
	config.Subjects = append(config.Subjects, "shop.carts")
	createStream(t, js, config)
	cart(t, js)
}

func cart(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if _, err := js.Publish(t.Context(), "shop.carts", nil); err != nil {
		t.Fatal(err)
	}
}

func TestStreamIsReplacedByAnotherThatIsLonger(t *testing.T) {
	t.Parallel()
	s, js, more := open(t, orders())
	commit(t, s, 0, 3)
	must.Succeed(t, js.DeleteStream(t.Context(), "shop_orders"))
	other := more()
	resume(t, other)
	must.Succeed(t, other.Commit(t.Context(), sinktest.Entities(100, 10), sinktest.At(10)))
	resume(t, s)
	wantIDs(t, s, 10)
}

func TestResumeReadsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	nc, err := natsgo.Connect(server.URL(), natsgo.Timeout(time.Minute))
	must.Succeed(t, err)
	defer nc.Close()
	// Whoever reads makes a consumer, which the server reports.
	var readers atomic.Int32
	if _, err := nc.Subscribe("$JS.EVENT.ADVISORY.CONSUMER.CREATED.>", func(*natsgo.Msg) { readers.Add(1) }); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, nc.Flush())
	a := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	b := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	wantReaders := func(want int32, situation string) {
		t.Helper()
		eventually(t, situation, func() bool {
			if readers.Load() > want {
				t.Fatalf("%s: %d have read, want %d", situation, readers.Load(), want)
			}
			return readers.Load() == want
		})
	}
	resumeAndCommit(t, a, 0, 3)
	commit(t, a, 3, 6)
	resume(t, a)
	resume(t, a)
	wantReaders(0, "own commits")
	resume(t, b)
	wantReaders(1, "a new sink")
	resumeAndCommit(t, b, 6, 8)
	resume(t, b)
	resume(t, a)
	wantReaders(2, "another's commit")
	js := admin(t, server.URL())
	wantNoReaders(t, js, "shop_orders")
	stream := ordersStream(t, js)
	if info := stream.CachedInfo(); info.State.Msgs != 8+1 {
		t.Errorf("state %+v, want 8 entities and one checkpoint", info.State)
	}
	if a.IDs().Len() != 8 || b.IDs().Len() != 8 {
		t.Errorf("%d and %d IDs, want 8", a.IDs().Len(), b.IDs().Len())
	}
}

func TestNewSinkReadsOnlyTheWindow(t *testing.T) {
	t.Parallel()
	server, js := newServer(t)
	share(t, js) // sequence 1
	topic := orders()
	topic.Window = 10
	s := connect(t, nats.Config{URL: server.URL()}).Sink(topic)
	resume(t, s)
	// Of five sequences one is an entity's.
	for n := range 60 {
		commit(t, s, n, n+1)
		for range 3 {
			cart(t, js)
		}
	}
	const last = 1 + 59*5 + 1 // the last entity; its checkpoint follows

	nc, err := natsgo.Connect(server.URL(), natsgo.Timeout(time.Minute))
	must.Succeed(t, err)
	defer nc.Close()
	asked, err := nc.SubscribeSync("$JS.API.CONSUMER.CREATE.>")
	must.Succeed(t, err)
	must.Succeed(t, nc.Flush())
	fresh := connect(t, nats.Config{URL: server.URL()}).Sink(topic)
	resume(t, fresh)
	for _, want := range []uint64{last - 20, last - 80} {
		msg, err := asked.NextMsg(time.Minute)
		must.Succeed(t, err)
		var request struct {
			Config struct {
				Start uint64 `json:"opt_start_seq"`
			}
		}
		if err := json.Unmarshal(msg.Data, &request); err != nil || request.Config.Start != want {
			t.Errorf("it reads from %d (%v), want %d of %d", request.Config.Start, err, want, last)
		}
	}
	if got := fresh.IDs().Len(); got != 10 {
		t.Errorf("%d IDs, want the window of 10", got)
	}
	for i, e := range sinktest.Entities(45, 15) {
		if held := !fresh.IDs().Add(e.ID); held != (i >= 5) {
			t.Errorf("%s: held is %v", e.ID, held)
		}
	}
}

func TestCheckpointOutlivesTheMessages(t *testing.T) {
	t.Parallel()
	topic := orders()
	topic.Stream.MaxAge = time.Second
	s, js, more := open(t, topic)
	commit(t, s, 0, 3)
	eventually(t, "the messages expire", func() bool {
		stream := ordersStream(t, js)
		return stream.CachedInfo().State.Msgs <= 1
	})
	for _, s := range []*nats.Sink{s, more()} {
		wantCount(t, s, 3)
		wantFeed(t, s, 0)
	}
	resumeAndCommit(t, s, 3, 4)
}

func TestMessageHasTheHeadersOfTheEntityAndOurs(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	e := sinktest.Entities(0, 1)
	e[0].Body = bytes.Repeat([]byte("x"), 10)
	must.Succeed(t, s.Commit(t.Context(), e, sinktest.At(1)))
	stream := ordersStream(t, js)
	msg, err := stream.GetLastMsgForSubject(t.Context(), "shop.orders")
	must.Succeed(t, err)
	for name, want := range map[string]string{
		"Content-ID":      "<0@feed.example.com>",
		"Last-Modified":   "Mon, 01 Jan 2024 00:00:00 GMT",
		"Operation-Type":  "http-equiv=PUT",
		"Feedbridge-Feed": "orders",
		"Feedbridge-Page": "http://feed.example.com/1",
		"Nats-Msg-Id":     "", // the server would drop a supposed duplicate
	} {
		if got := msg.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	last, err := stream.GetLastMsgForSubject(t.Context(), "_feedbridge.shop.orders")
	must.Succeed(t, err)
	if !bytes.Equal(last.Data, checkpoint.Encode(sinktest.At(1))) {
		t.Errorf("checkpoint %s", last.Data)
	}
}

func TestCommitOfMoreThanABatchTakes(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, orders())
	err := s.Commit(t.Context(), make([]feed.Entity, nats.MaxEntities+1), sinktest.At(1000))
	wantError(t, err, true, nil, "1000 entities are too many: a batch takes at most 999")
}

// A person purges the topic while a sink knows its IDs, something new is
// published, and the person starts the feed over: the deleted entities are published again,
// though the checkpoint counts on and the stream's first message is old.
func TestIDsAreDroppedWhenTheCheckpointIsMoved(t *testing.T) {
	t.Parallel()
	s, js, more := open(t, orders())
	resumeAndCommit(t, s, 0, 3)
	purge(t, js, jetstream.WithPurgeSubject("shop.orders"))
	commit(t, s, 3, 4)
	reset := sinktest.At(4)
	reset.Cursor, reset.Moved = nil, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	must.Succeed(t, more().Overwrite(t.Context(), sinktest.MoveTo(reset)))
	resume(t, s)
	for i, e := range sinktest.Entities(0, 4) {
		if fresh, want := s.IDs().Add(e.ID), i < 3; fresh != want {
			t.Errorf("entity %d counts as fresh: %v, want %v", i, fresh, want)
		}
	}
}
