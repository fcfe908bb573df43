package nats_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	codec "github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/nats"
)

const deadSubject = "shop.orders.dead"

// ordersWithDead is a topic with dead letters.
func ordersWithDead() nats.Topic {
	topic := orders()
	topic.DeadLetters = true
	return topic
}

// wantDead checks the IDs of the dead letters.
func wantDead(t *testing.T, c *nats.Conn, numbers ...int) {
	t.Helper()
	sinktest.WantNumbers(t, "dead letters", c.Log(deadSubject, "shop_orders"), numbers...)
}

func TestStreamWithoutTheSubjectOfDeadLetters(t *testing.T) {
	t.Parallel()
	server, js := newServer(t)
	config := fitting()
	createStream(t, js, config)
	s := connect(t, nats.Config{URL: server.URL()}).Sink(ordersWithDead())
	want := "it does not have shop.orders.dead; run 'nats stream edit shop_orders --subjects shop.orders,_feedbridge.shop.orders,shop.orders.dead'"
	wantError(t, s.Check(t.Context()), true, nil, want)
	_, err := s.Resume(t.Context())
	wantError(t, err, true, nil, want)
	config.Subjects = append(config.Subjects, deadSubject)
	updateStream(t, js, config)
	resume(t, s)
	// The subject stays when dead letters are no longer configured, and its stream is still the
	// topic's own: a limit by size is allowed there.
	config.MaxBytes, config.Discard = 1<<20, jetstream.DiscardOld
	updateStream(t, js, config)
	resume(t, connect(t, nats.Config{URL: server.URL()}).Sink(orders()))
}

// Nothing of a commit is stored if there is no room for its dead letter.
func TestStreamThatIsFullOfDeadLetters(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit func(*jetstream.StreamConfig)
		cure  func(t *testing.T, js jetstream.JetStream, c jetstream.StreamConfig)
	}{
		"in bytes": {
			func(c *jetstream.StreamConfig) { c.MaxBytes = 40 << 10 },
			func(t *testing.T, js jetstream.JetStream, c jetstream.StreamConfig) {
				c.MaxBytes = 1 << 20
				updateStream(t, js, c)
			},
		},
		"in messages, purged as docs/dead-letters.md says": {
			func(c *jetstream.StreamConfig) { c.MaxMsgs = 5 },
			func(t *testing.T, js jetstream.JetStream, _ jetstream.StreamConfig) {
				s, err := js.Stream(t.Context(), "shop_orders")
				if err == nil {
					err = s.Purge(t.Context(), jetstream.WithPurgeSubject(deadSubject))
				}
				must.Succeed(t, err)
			},
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			server, js := newServer(t)
			config := fitting()
			config.Subjects, config.Discard = append(config.Subjects, deadSubject), jetstream.DiscardNew
			test.limit(&config)
			createStream(t, js, config)
			c := connect(t, nats.Config{URL: server.URL()})
			s := c.Sink(ordersWithDead())
			resume(t, s)
			entities, cp := withDead(0, 2, 0)
			must.Succeed(t, s.Commit(t.Context(), entities, cp))
			entities, next := withDead(2, 4, 1)
			entities[1].Body = bytes.Repeat([]byte("x"), 100<<10)
			wantError(t, s.Commit(t.Context(), entities, next), true, nil,
				"the stream is full and refuses new messages")
			if now := resume(t, s); string(now.Cursor) != string(cp.Cursor) {
				t.Errorf("the position has moved to %s", now.Cursor)
			}
			wantFeed(t, s, 1)
			wantDead(t, c, 1)
			test.cure(t, js, config)
			resume(t, s)
			must.Succeed(t, s.Commit(t.Context(), entities, next))
			log := c.Log(deadSubject, "shop_orders")
			dead := records(t, log, 0, spanOf(t, log).End)
			if id, _ := dead[len(dead)-1].Header.Get(codec.ContentID); id != entities[1].ID {
				t.Errorf("the last dead letter is %s", id)
			}
		})
	}
}

// A power cut may leave a dead letter of a torn batch behind the checkpoint, as it may leave
// entities.
func TestDeadLetterBehindTheCheckpointIsKnown(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	c := connect(t, nats.Config{URL: server.URL()})
	s := c.Sink(ordersWithDead())
	resumeAndCommit(t, s, 0, 2)
	torn(t, server.URL(), deadSubject, 2)
	for _, s := range []*nats.Sink{s, c.Sink(ordersWithDead())} {
		resume(t, s)
		wantKnown(t, s, true, sinktest.Entities(2, 1)...)
	}
}

// A dead letter without a checkpoint is what a torn batch has left. The feed is not started over.
func TestDeadLetterWithoutACheckpoint(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{"a stream of its own": nil, "a shared stream": {"other"}} {
		parallel.Run(t, name, func(t *testing.T) {
			server := startServer(t, t.TempDir(), "127.0.0.1:0")
			config := fitting()
			config.Subjects = append(append(config.Subjects, deadSubject), more...)
			createStream(t, admin(t, server.URL()), config)
			s := connect(t, nats.Config{URL: server.URL()}).Sink(ordersWithDead())
			resume(t, s)
			torn(t, server.URL(), deadSubject, 0)
			_, err := s.Resume(t.Context())
			wantError(t, err, true, checkpoint.ErrMissing)
		})
	}
}

// torn publishes the message of an entity without a checkpoint.
func torn(t *testing.T, url, subject string, number int) {
	t.Helper()
	m := &natsgo.Msg{Subject: subject, Header: natsgo.Header{codec.ContentID: {sinktest.Entities(number, 1)[0].ID}, codec.FeedName: {"orders"}}}
	publishMsg(t, admin(t, url), m)
}

func TestAnswerOfACommitWithDeadLettersIsLost(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	p := runProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	s := connect(t, nats.Config{URL: p.url()}).Sink(ordersWithDead())
	resume(t, s)
	entities, cp := withDead(0, 3, 0)
	js := admin(t, server.URL())
	before := lastSequence(t, js)
	s.Hurry() // after a pause it would wait for an answer first
	p.set(true)
	done := make(chan error, 1)
	go func() { done <- s.Commit(t.Context(), entities, cp) }()
	eventually(t, "the commit arrives", func() bool { return lastSequence(t, js) > before })
	p.cut()
	wantError(t, <-done, false, nil)
	p.set(false)
	eventually(t, "the sink resumes", func() bool {
		now, err := s.Resume(t.Context())
		if err == nil && now.Count != 2 {
			t.Fatalf("checkpoint %+v, want that of the commit", now)
		}
		return err == nil
	})
	wantKnown(t, s, true, entities...)
	wantFeed(t, s, 2)
	wantDead(t, connect(t, nats.Config{URL: server.URL()}), 2)
}

// The limit is lowered after the gate has checked an entity. The next attempt makes it a dead
// letter that fits the new limit.
func TestLimitIsLoweredBeforeTheCommit(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	c := connect(t, nats.Config{URL: server.URL()})
	s := c.Sink(ordersWithDead())
	resume(t, s)
	e := sinktest.Entities(0, 1)
	e[0].Body = bytes.Repeat([]byte("x"), 10_000)
	must.Succeed(t, fits(s, e[0]))
	js := admin(t, server.URL())
	stream := ordersStream(t, js)
	config := stream.CachedInfo().Config
	config.MaxMsgSize = 4096
	updateStream(t, js, config)
	if err := s.Commit(t.Context(), e, sinktest.At(1)); err == nil {
		t.Fatal("the commit is not refused")
	}
	resume(t, s)
	if err := fits(s, e[0]); !errors.Is(err, sink.ErrTooLarge) {
		t.Fatalf("Fits: %v", err)
	}
	e[0].Dead = sinktest.TooLarge()
	cp := sinktest.At(1)
	cp.Count = 0
	must.Succeed(t, s.Commit(t.Context(), e, cp))
	wantFeed(t, s, 0)
	wantDead(t, c, 0)
}

// A person deletes the dead letters, of which one is the newest message that a copy knows. The IDs are
// loaded again.
func TestPurgeOfDeadLettersIsNoLoss(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	s, other := connect(t, nats.Config{URL: server.URL()}).Sink(ordersWithDead()), connect(t, nats.Config{URL: server.URL()}).Sink(ordersWithDead())
	resume(t, s)
	entities, cp := withDead(0, 3, 0)
	must.Succeed(t, s.Commit(t.Context(), entities, cp))
	stream := ordersStream(t, admin(t, server.URL()))
	must.Succeed(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject(deadSubject)))
	resume(t, other)
	next := sinktest.At(5)
	next.Count--
	must.Succeed(t, other.Commit(t.Context(), sinktest.Entities(3, 2), next))
	resume(t, s)
	wantKnown(t, s, false, entities[2])
	wantKnown(t, s, true, entities[1])
}
