package nats_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// fitting is the configuration of a stream that has only shop.orders.
func fitting() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "shop_orders", Subjects: []string{"shop.orders", "_feedbridge.shop.orders"},
		AllowAtomicPublish: true, AllowRollup: true, AllowMsgTTL: true,
	}
}

func TestStreamThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*jetstream.StreamConfig)
		want   []string
	}{
		"no atomic batches": {
			func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false },
			[]string{"stream shop_orders cannot hold the topic: it allows no atomic batches; run 'nats stream edit shop_orders --allow-batch'"},
		},
		"no roll-ups and no TTL": {
			func(c *jetstream.StreamConfig) { c.AllowRollup, c.AllowMsgTTL = false, false },
			[]string{
				"it allows no roll-ups; run 'nats stream edit shop_orders --allow-rollup'",
				"it allows no TTL per message; run 'nats stream edit shop_orders --allow-msg-ttl'",
			},
		},
		"no purging": {
			func(c *jetstream.StreamConfig) { c.AllowRollup, c.DenyPurge = false, true },
			[]string{"it denies purging, and so roll-ups, and that cannot be changed; give the feed another stream, without --deny-purge"},
		},
		"interest retention": {
			func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
			[]string{"its retention is interest, which deletes the checkpoint; give the feed another stream, with --retention limits"},
		},
		"work queue retention": {
			func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
			[]string{"its retention is workqueue"},
		},
		"no subject for the checkpoint": {
			func(c *jetstream.StreamConfig) { c.Subjects = []string{"shop.*"} },
			[]string{"it does not have _feedbridge.shop.orders; run 'nats stream edit shop_orders --subjects shop.*,_feedbridge.shop.orders'"},
		},
		"no acknowledgements": {
			func(c *jetstream.StreamConfig) { c.NoAck = true },
			[]string{"it does not acknowledge; run 'nats stream edit shop_orders --ack'"},
		},
		"a transform of subjects": {
			func(c *jetstream.StreamConfig) {
				c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "shop.orders", Destination: "other"}
			},
			[]string{"it transforms subjects; run 'nats stream edit shop_orders --no-transform'"},
		},
		"a counter": {
			func(c *jetstream.StreamConfig) { c.AllowMsgCounter, c.AllowMsgTTL = true, false },
			[]string{"it is a counter"},
		},
		"a mirror": {
			func(c *jetstream.StreamConfig) {
				*c = jetstream.StreamConfig{Name: "shop_orders", Mirror: &jetstream.StreamSource{Name: "elsewhere"}}
			},
			[]string{"it is a mirror, which accepts no messages", "it does not have shop.orders and _feedbridge.shop.orders"},
		},
		"a source": {
			func(c *jetstream.StreamConfig) {
				c.Sources = []*jetstream.StreamSource{{Name: "elsewhere", FilterSubject: "shop.carts"}}
			},
			[]string{"it copies messages from other streams, which may be of the topic; give the feed a stream without sources"},
		},
		"sealed": {
			func(c *jetstream.StreamConfig) { c.Sealed = true },
			[]string{"it is sealed"},
		},
		"messages that are too small": {
			func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1023 },
			[]string{"its max_msg_size of 1023 bytes is too small for a checkpoint; run 'nats stream edit shop_orders --max-msg-size=-1'"},
		},
		"messages of other subjects push the checkpoint out": {
			func(c *jetstream.StreamConfig) { c.Subjects, c.MaxMsgs = append(c.Subjects, "shop.carts"), 1000 },
			[]string{"it takes other subjects, too, and discards its oldest messages, which may be the checkpoint"},
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			s := runServer(t, &server.Options{JetStream: true})
			js := admin(t, s.ClientURL())
			config := fitting()
			test.change(&config)
			sealed := config.Sealed
			config.Sealed = false
			createStream(t, js, config)
			if config.Sealed = sealed; sealed {
				updateStream(t, js, config)
			}
			_, err := connect(t, nats.Config{URL: s.ClientURL()}).Sink(orders()).Resume(t.Context())
			wantError(t, err, true, nil, test.want...)
		})
	}
}

func TestStreamsThatFitAreNotChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"its own":           func(*jetstream.StreamConfig) {},
		"wildcards":         func(c *jetstream.StreamConfig) { c.Subjects = []string{"shop.>", "_feedbridge.*.orders"} },
		"shared, and new":   func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "shop.carts") },
		"memory, and limit": func(c *jetstream.StreamConfig) { c.Storage, c.MaxBytes = jetstream.MemoryStorage, 1<<20 },
	} {
		parallel.Run(t, name, func(t *testing.T) {
			server := runServer(t, &server.Options{JetStream: true})
			js := admin(t, server.ClientURL())
			config := fitting()
			change(&config)
			created := createStream(t, js, config)
			s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(orders())
			continueTo(t, s, 0, 5)
			after, err := js.Stream(t.Context(), config.Name)
			must.Succeed(t, err)
			if got, want := after.CachedInfo().Config.Subjects, created.CachedInfo().Config.Subjects; len(got) != len(want) {
				t.Errorf("subjects %v, want %v", got, want)
			}
		})
	}
}

func TestStreamIsCreatedAsConfigured(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	topic := orders()
	topic.Stream = nats.Stream{Name: "ORDERS", Create: true, MaxAge: time.Hour, MaxBytes: 1 << 30}
	resume(t, connect(t, nats.Config{URL: server.URL()}).Sink(topic))
	stream, err := admin(t, server.URL()).Stream(t.Context(), "ORDERS")
	must.Succeed(t, err)
	c := stream.CachedInfo().Config
	if c.MaxAge != time.Hour || c.MaxBytes != 1<<30 || c.Replicas != 1 || c.Discard != jetstream.DiscardOld ||
		c.Storage != jetstream.FileStorage || c.Retention != jetstream.LimitsPolicy ||
		!c.AllowAtomicPublish || !c.AllowRollup || !c.AllowMsgTTL || c.DenyPurge || c.MaxMsgs != -1 {
		t.Errorf("configuration %+v", c)
	}
}

func TestStreamThatIsMissingAndNotToBeCreated(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	topic := orders()
	topic.Stream.Create = false
	_, err := connect(t, nats.Config{URL: server.URL()}).Sink(topic).Resume(t.Context())
	wantError(t, err, true, nil, "there is no stream shop_orders, and stream.create is off",
		"nats stream add shop_orders --subjects shop.orders,_feedbridge.shop.orders --storage file --retention limits --allow-batch --allow-fast --allow-rollup --allow-msg-ttl")
}

func TestSubjectBelongsToAnotherStream(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	createStream(t, admin(t, server.URL()), jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"shop.*"}})
	_, err := connect(t, nats.Config{URL: server.URL()}).Sink(orders()).Resume(t.Context())
	wantError(t, err, true, nil, "cannot create stream shop_orders: shop.orders belongs to stream SHOP; name that stream in stream.name, or give the feed another topic")
}

func TestStreamCannotBeReplicatedOnOneServer(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	topic := orders()
	topic.Stream.Replicas = 3
	_, err := connect(t, nats.Config{URL: server.URL()}).Sink(topic).Resume(t.Context())
	wantError(t, err, true, nil, "create stream shop_orders: replicas > 1 not supported in non-clustered mode", "stream.replicas")
}

// Limits of the account and of the stream on streams and consumers are not raised by waiting.
func TestLimitsOnStreamsAndConsumers(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "streams", func(t *testing.T) {
		s := runServer(t, &server.Options{JetStream: true})
		must.Succeed(t, s.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {
			MaxMemory: -1, MaxStore: -1, MaxStreams: 1, MaxConsumers: -1,
		}}))
		createStream(t, admin(t, s.ClientURL()), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}})
		_, err := connect(t, nats.Config{URL: s.ClientURL()}).Sink(orders()).Resume(t.Context())
		wantError(t, err, true, nil, "maximum number of streams reached (NATS error 10027); raise the account's limit on streams, or set stream.name to one that has the topic")
	})
	parallel.Run(t, "consumers", func(t *testing.T) {
		s := runServer(t, &server.Options{JetStream: true})
		config := fitting()
		config.MaxConsumers = 1
		stream := createStream(t, admin(t, s.ClientURL()), config)
		writer := connect(t, nats.Config{URL: s.ClientURL()}).Sink(orders())
		resumeAndCommit(t, writer, 0, 5)
		if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "reader"}); err != nil {
			t.Fatal(err)
		}
		_, err := connect(t, nats.Config{URL: s.ClientURL()}).Sink(orders()).Resume(t.Context())
		wantError(t, err, true, nil, "maximum consumers limit reached (NATS error 10026); raise the limit on consumers of the stream or the account; feedbridge needs one while it loads IDs")
	})
}

func TestStreamIsFullAndDiscardsNewMessages(t *testing.T) {
	t.Parallel()
	server := runServer(t, &server.Options{JetStream: true})
	config := fitting()
	config.MaxMsgs, config.Discard = 10, jetstream.DiscardNew
	createStream(t, admin(t, server.ClientURL()), config)
	s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(orders())
	resumeAndCommit(t, s, 0, 5)
	err := s.Commit(t.Context(), sinktest.Entities(5, 20), sinktest.At(25))
	wantError(t, err, true, nil, "maximum messages exceeded", "raise its limits, and do not purge it")
	wantCount(t, s, 5)
	wantFeed(t, s, 5)
}

func TestStreamIsReconfiguredWhileItIsWrittenTo(t *testing.T) {
	t.Parallel()
	server := runServer(t, &server.Options{JetStream: true})
	js := admin(t, server.ClientURL())
	for name, test := range map[string]struct {
		topic  string
		change func(*jetstream.StreamConfig)
		want   string
	}{
		"atomic batches": {"a", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }, "it allows no atomic batches; run 'nats stream edit a --allow-batch'"},
		"roll-ups":       {"b", func(c *jetstream.StreamConfig) { c.AllowRollup = false }, "it allows no roll-ups; run 'nats stream edit b --allow-rollup'"},
		"sealed":         {"c", func(c *jetstream.StreamConfig) { c.Sealed = true }, "it is sealed"},
	} {
		t.Run(name, func(t *testing.T) {
			config := fitting() // without fast ingest, which stores the entities first
			config.Name, config.Subjects = test.topic, []string{test.topic, "_feedbridge." + test.topic}
			createStream(t, js, config)
			s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(nats.Topic{Feed: "orders", Subject: test.topic})
			resumeAndCommit(t, s, 0, 2)
			test.change(&config)
			updateStream(t, js, config)
			if err := s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4)); err == nil {
				t.Fatal("the commit is not refused")
			}
			wantFeed(t, s, 2)
			_, err := s.Resume(t.Context())
			wantError(t, err, true, nil, test.want)
		})
	}
}

func TestDeletedStreamIsNotCreatedAgain(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resumeAndCommit(t, s, 0, 2)
	js := admin(t, server.URL())
	must.Succeed(t, js.DeleteStream(t.Context(), "shop_orders"))
	s.Hurry()
	wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4)), false, nil, "stream shop_orders does not answer")
	_, err := s.Resume(t.Context())
	wantError(t, err, true, checkpoint.ErrMissing, "stream shop_orders is gone", "'feedbridge checkpoint reset orders'")
	// The way out that it names.
	other := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	onceRemoved(t, func() error { return other.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(0))) })
	resume(t, s)
	wantIDs(t, s, 0)
	commitAndCheck(t, s, 0, 3)
}

// After a pause a commit reads the checkpoint first. Its error is retried at once, by a Resume
// whose error has the cure.
func TestStreamIsGoneAtACommitAfterAPause(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resumeAndCommit(t, s, 0, 2)
	must.Succeed(t, admin(t, server.URL()).DeleteStream(t.Context(), "shop_orders"))
	s.Rest()
	wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4)), false, nil, "stream not found (NATS error 10059)")
	_, err := s.Resume(t.Context())
	wantError(t, err, true, checkpoint.ErrMissing, "stream shop_orders is gone", "'feedbridge checkpoint reset orders'")
}

// The first topic of a shared stream creates it with all of its subjects.
func TestTopicsShareACreatedStream(t *testing.T) {
	t.Parallel()
	server := runServer(t, &server.Options{JetStream: true})
	for _, subject := range []string{"news.a", "news.b"} {
		stream := nats.Stream{Create: true, Name: "news", Subjects: []string{"news.>"}}
		s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(nats.Topic{Feed: subject[5:], Subject: subject, Stream: stream})
		resumeAndCommit(t, s, 0, 5)
		commitAndCheck(t, s, 5, 8)
	}
}
