package nats_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// move sets a topic's checkpoint as a person does.
func move(t *testing.T, s *nats.Sink, to int) {
	t.Helper()
	err := s.Overwrite(t.Context(), func(old checkpoint.Checkpoint) checkpoint.Checkpoint {
		cp := sinktest.At(to)
		cp.Count, cp.Moved = old.Count, time.Now()
		return cp
	})
	must.Succeed(t, err)
}

// Checkpoints take sequences, too, so a topic may begin anywhere in its stream. Missing
// sequences before it are no loss as long as its first entity exists. Otherwise they are,
// whatever the limits are now.
func TestLogReportsWhetherTheFirstEntityExists(t *testing.T) {
	t.Parallel()
	type topic struct {
		s    *nats.Sink
		js   jetstream.JetStream
		more func() *nats.Sink
		log  *nats.Log
	}
	purged := func(t *testing.T, b topic, sequence uint64) {
		purge(t, b.js, jetstream.WithPurgeSequence(sequence))
	}
	limit := func(t *testing.T, b topic, change func(*jetstream.StreamConfig)) {
		t.Helper()
		stream := ordersStream(t, b.js)
		c := stream.CachedInfo().Config
		change(&c)
		updateStream(t, b.js, c)
	}
	for name, test := range map[string]struct {
		do    func(*testing.T, topic)
		first uint64
	}{
		"the stream begins with it": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 3)
			commit(t, b.s, 3, 6)
		}, 0},
		"checkpoints were there before": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 0)
			commit(t, b.s, 0, 0)
			commit(t, b.s, 0, 3)
			commit(t, b.s, 3, 6)
		}, 0},
		"checkpoints of two copies were": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 0)
			next := b.more()
			resumeAndCommit(t, next, 0, 0)
			resumeAndCommit(t, b.s, 0, 3)
		}, 0},
		"a person has moved the checkpoint before it": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 0)
			move(t, b.s, 0)
			resumeAndCommit(t, b.s, 0, 3)
		}, 0},
		"a person has set the checkpoint at the beginning": {func(t *testing.T, b topic) {
			move(t, b.s, 0)
			resumeAndCommit(t, b.s, 0, 3)
		}, 0},
		"a person has moved the checkpoint after it": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 0)
			commit(t, b.s, 0, 3)
			move(t, b.s, 0)
			resumeAndCommit(t, b.s, 3, 6)
		}, 0},
		"one in the middle is deleted": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 0)
			commit(t, b.s, 0, 3) // 2 to 4
			stream := ordersStream(t, b.js)
			must.Succeed(t, stream.DeleteMsg(t.Context(), 3))
		}, 0},

		"it is deleted": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 0)
			commit(t, b.s, 0, 3)
			stream := ordersStream(t, b.js)
			must.Succeed(t, stream.DeleteMsg(t.Context(), 2))
		}, 3},
		"it is purged": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 5)
			purged(t, b, 3)
		}, 3},
		"all but the newest are purged": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 5)
			purge(t, b.js, jetstream.WithPurgeKeep(3)) // the checkpoint, which is 6, among them
		}, 4},
		"the first batch is purged, and another copy was about to write it": {func(t *testing.T, b topic) {
			late := b.more()
			resume(t, late)
			commit(t, b.s, 0, 3)
			if err := late.Commit(t.Context(), sinktest.Entities(0, 3), sinktest.At(3)); !errors.Is(err, checkpoint.ErrConflict) {
				t.Fatalf("a stale writer: %v", err)
			}
			resumeAndCommit(t, late, 3, 6)
			purged(t, b, 5)
		}, 5},
		"a limit took it and was lifted": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 9)
			limit(t, b, func(c *jetstream.StreamConfig) { c.MaxMsgs = 5 })
			limit(t, b, func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
		}, 6},
		"a limit took it and was raised": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 9)
			limit(t, b, func(c *jetstream.StreamConfig) { c.MaxMsgs = 5 })
			limit(t, b, func(c *jetstream.StreamConfig) { c.MaxMsgs = 500 })
			commit(t, b.s, 9, 12)
		}, 6},
		"a large one went, and the limit is far": {func(t *testing.T, b topic) {
			limit(t, b, func(c *jetstream.StreamConfig) { c.MaxBytes = 100_000 })
			for n, size := range []int{10, 10, 80_000, 10, 10, 40_000} { // 1, 3, 5, 7, 9, 11
				e := sinktest.Entities(n, 1)
				e[0].Body = bytes.Repeat([]byte("x"), size)
				must.Succeed(t, b.s.Commit(t.Context(), e, sinktest.At(n+1)))
			}
		}, 7},
		"all are purged, and the feed starts over": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 0)
			commit(t, b.s, 0, 3)
			purge(t, b.js)
			move(t, b.s, 0) // 6
			resumeAndCommit(t, b.s, 0, 3)
		}, 7},
		"all are purged but the checkpoint": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 3) // 1 to 4
			purge(t, b.js, jetstream.WithPurgeSubject("shop.orders"))
			resumeAndCommit(t, b.s, 3, 6)
		}, 5},
		"there was one that no checkpoint knows of": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 0)
			publish(t, b.js, "shop.orders", "x") // 2
			resumeAndCommit(t, b.s, 0, 3)
			purged(t, b, 3)
		}, 3},
		"there was one without a checkpoint, and a person has moved the checkpoint": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 0)
			publish(t, b.js, "shop.orders", "x")
			move(t, b.s, 0) // 3
			purge(t, b.js, jetstream.WithPurgeSubject("shop.orders"))
			resumeAndCommit(t, b.s, 0, 3)
		}, 4},
		"another feed has taken over the topic": {func(t *testing.T, b topic) {
			commit(t, b.s, 0, 3) // 1 to 4
			heir := orders()
			heir.Feed = "parcels"
			s := b.log.Conn().Sink(heir)
			move(t, s, 0) // 5
			resumeAndCommit(t, s, 0, 3)
			purged(t, b, 6)
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, js, more := open(t, orders())
			log := s.Log()
			spanOf(t, log)
			test.do(t, topic{s, js, more, log})
			for _, l := range []*nats.Log{log, s.Log()} { // also another copy's
				span := spanOf(t, l)
				if span.First != test.first {
					t.Errorf("positions %+v, want %d on", span, test.first)
				}
				if all := records(t, l, 0, span.End); len(all) == 0 || all[0].Position < span.First {
					t.Errorf("%d records, the first of them in front of %d", len(all), span.First)
				}
			}
		})
	}
}

// Two feeds write to one stream, and neither has the other's loss.
func TestLogOfTwoTopicsInOneStream(t *testing.T) {
	t.Parallel()
	server, js := newServer(t)
	config := fitting()
	config.Name, config.Subjects = "SHOP", []string{"shop.orders", "shop.parcels", "_feedbridge.>"}
	stream := createStream(t, js, config)
	conn := connect(t, nats.Config{URL: server.URL()})
	var sinks [2]*nats.Sink
	var logs [2]*nats.Log
	for i, subject := range []string{"shop.orders", "shop.parcels"} {
		sinks[i] = conn.Sink(nats.Topic{Feed: "feed", Subject: subject, Stream: nats.Stream{Name: "SHOP"}})
		logs[i] = conn.Log(subject, "SHOP")
		resumeAndCommit(t, sinks[i], 0, 0)
	}
	want := func(orders, parcels uint64) {
		t.Helper()
		for i, first := range []uint64{orders, parcels} {
			for _, log := range []*nats.Log{logs[i], sinks[i].Log()} {
				if span := spanOf(t, log); span.First != first {
					t.Errorf("positions %+v of topic %d, want %d on", span, i, first)
				}
			}
		}
	}
	commit(t, sinks[0], 0, 4) // 3 to 6, and the checkpoint
	commit(t, sinks[1], 0, 4) // 8 to 11
	want(0, 0)
	must.Succeed(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("shop.orders"), jetstream.WithPurgeSequence(5)))
	want(5, 0)
	must.Succeed(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("shop.parcels"), jetstream.WithPurgeKeep(1)))
	want(5, 11)
	commit(t, sinks[1], 4, 6)
	want(5, 11)
}

// Somebody may copy messages to another topic, with all of their headers.
func TestFirstEntityOfAnotherTopic(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	commit(t, s, 0, 1)
	original := ordersStream(t, js)
	msg, err := original.GetMsg(t.Context(), 1)
	must.Succeed(t, err)
	if got := msg.Header.Values("Feedbridge-First"); len(got) != 1 || got[0] != "shop.orders" {
		t.Fatalf("the header of the first entity is %q", got)
	}
	createStream(t, js, jetstream.StreamConfig{Name: "ALL", Subjects: []string{"all"}, MaxMsgs: 2})
	publish(t, js, "all", "x")
	for range 2 {
		msg := &natsgo.Msg{Subject: "all", Header: natsgo.Header{"Feedbridge-First": msg.Header.Values("Feedbridge-First")}}
		publishMsg(t, js, msg)
	}
	if span := spanOf(t, connect(t, nats.Config{URL: js.Conn().ConnectedUrl()}).Log("all", "ALL")); span != (feed.Span{First: 2, End: 4, Epoch: span.Epoch}) {
		t.Errorf("positions %+v, want 2 on", span)
	}
}

// A mirror has the messages as they are.
func TestLogOfAMirrorOfATopic(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	commit(t, s, 0, 0)
	commit(t, s, 0, 4) // 2 to 5
	mirror := jetstream.StreamConfig{Name: "COPY", Mirror: &jetstream.StreamSource{Name: "shop_orders"}}
	stream := createStream(t, js, mirror)
	log := s.Log().Conn().Log("shop.orders", "COPY")
	eventually(t, "the mirror has all", func() bool { return spanOf(t, log).End == 7 })
	if span := spanOf(t, log); span.First != 0 {
		t.Errorf("positions %+v, want all", span)
	}
	must.Succeed(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(4)))
	if span := spanOf(t, log); span.First != 4 {
		t.Errorf("positions %+v, want 4 on", span)
	}
}

// Others wrote the topic's first messages into a stream that is shared, then a person had
// feedbridge go on with it. Nothing was ever taken.
func TestLogOfATopicThatOthersBegan(t *testing.T) {
	t.Parallel()
	server, js := newServer(t)
	c := fitting()
	c.Name, c.Subjects = "SHOP", []string{"shop.>", "_feedbridge.shop.>"}
	createStream(t, js, c)
	publish(t, js, "shop.carts", "x", "x")
	publish(t, js, "shop.orders", "a", "b")
	conn := connect(t, nats.Config{URL: server.URL()})
	s := conn.Sink(nats.Topic{Feed: "orders", Subject: "shop.orders", Stream: nats.Stream{Name: "SHOP"}})
	if span := spanOf(t, s.Log()); span.First != 0 {
		t.Errorf("nothing was taken, and the positions are %+v", span)
	}
	move(t, s, 0)
	resumeAndCommit(t, s, 0, 3)
	if span := spanOf(t, s.Log()); span.First != 0 {
		t.Errorf("nothing was taken, and the positions are %+v", span)
	}
}

// A stream that has its messages from others has never had what those have lost.
func TestLogOfAStreamThatSourcesATopic(t *testing.T) {
	t.Parallel()
	server, js := newServer(t)
	conn := connect(t, nats.Config{URL: server.URL()})
	s := conn.Sink(orders())
	resumeAndCommit(t, s, 0, 6)
	purge(t, js, jetstream.WithPurgeSequence(3))
	createStream := func(config jetstream.StreamConfig) {
		t.Helper()
		if _, err := js.CreateOrUpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	createStream(jetstream.StreamConfig{Name: "PARCELS", Subjects: []string{"parcels"}})
	publish(t, js, "parcels", "a", "b", "c")
	all := jetstream.StreamConfig{Name: "ALL", Sources: []*jetstream.StreamSource{{Name: "PARCELS"}}}
	createStream(all)
	log := conn.Log("shop.orders", "ALL")
	eventually(t, "the parcels are there", func() bool { return spanOf(t, log).End == 4 })
	all.Sources = append(all.Sources, &jetstream.StreamSource{Name: "shop_orders"})
	createStream(all)
	eventually(t, "the orders are there", func() bool { return spanOf(t, log).End >= 8 })
	if span := spanOf(t, log); span.First != 0 {
		t.Errorf("nothing was taken, and the positions are %+v", span)
	}
}
