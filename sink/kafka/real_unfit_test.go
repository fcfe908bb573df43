//go:build integration

package kafka_test

import (
	"crypto/rand"
	"sort"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// The first request about transactions makes a new cluster create its topic for them.
func TestRealClusterIsNew(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	s := connect(t, atReal(b.Addr())).Sink(ordersIn(t))
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	resumeAndCommit(t, s, 0, 1)
}

func TestRealPassword(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t, kafkatest.User("fb", "right"), kafkatest.Property("super.users", "User:ANONYMOUS;User:fb"))
	for _, mechanism := range []kafka.Mechanism{kafka.Plain, kafka.ScramSHA256, kafka.ScramSHA512} {
		parallel.Run(t, string(mechanism), func(t *testing.T) {
			topic := ordersIn(t)
			cfg := atReal(b.SASLAddr())
			cfg.SASL = kafka.SASL{Mechanism: mechanism, Username: "fb", Password: "wrong"}
			conn := connect(t, cfg)
			_, err := conn.Sink(topic).Resume(t.Context())
			for _, err := range []error{err, conn.Check(t.Context())} {
				wantError(t, err, true, nil, "Kafka at 127.0.0.1:", "refuses the credentials (sasl.mechanism \""+string(mechanism)+"\")")
			}
			cfg.SASL.Password = "right"
			conn = connect(t, cfg)
			if err := conn.Check(t.Context()); err != nil {
				t.Error(err)
			}
			s := conn.Sink(topic)
			continueTo(t, s, 0, 2)
		})
	}
	parallel.Run(t, "none", func(t *testing.T) {
		wantError(t, connect(t, atReal(b.SASLAddr())).Check(t.Context()), false, nil, "whether tls and sasl are what it expects on this port")
	})
}

func TestRealTopicIsCompactedWithoutAKey(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	topic := ordersIn(t)
	createTopic(t, b.Addr(), topic.Name, 1, map[string]string{"cleanup.policy": "compact"})
	s := connect(t, atReal(b.Addr())).Sink(topic)
	_, err := s.Resume(t.Context())
	for _, err := range []error{err, s.Check(t.Context())} {
		wantError(t, err, true, nil, "it is compacted (cleanup.policy=compact), and takes no messages without a key", `set one, such as "key: /id"`)
	}
	topic.Key = "/n"
	s = connect(t, atReal(b.Addr())).Sink(topic)
	resumeAndCommit(t, s, 0, 3)
	fresh := connect(t, atReal(b.Addr())).Sink(topic)
	wantCount(t, fresh, 3)
	wantIDs(t, fresh, 3)
	_, err = s.Log(0).Span(t.Context())
	wantError(t, err, true, nil, "it is compacted (cleanup.policy=compact), so messages are deleted from its middle")

	// Somebody makes it compacted while the sink is at work.
	topic = ordersIn(t)
	s = connect(t, atReal(b.Addr())).Sink(topic)
	resumeAndCommit(t, s, 0, 1)
	alter(t, b, topic.Name, "cleanup.policy", "compact", []byte("no key"))
	err = s.Commit(t.Context(), sinktest.Entities(1, 1), sinktest.At(2))
	wantError(t, err, true, nil, "INVALID_RECORD", "is it compacted, which takes no messages without a key?")
}

func TestRealEntityIsTooLarge(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	for name, compression := range map[string]kafka.Compression{"compressed": kafka.Snappy, "as it is": kafka.None} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := ordersIn(t)
			createTopic(t, b.Addr(), topic.Name, 1, map[string]string{"max.message.bytes": "20000"})
			cfg := atReal(b.Addr())
			cfg.Compression = compression
			s := connect(t, cfg).Sink(topic)
			resume(t, s)
			// Nothing makes it smaller.
			noise := make([]byte, 20_000)
			_, _ = rand.Read(noise)
			sized := func(n int) feed.Entity {
				e := sinktest.Entities(0, 1)[0]
				e.Body = noise[:n]
				return e
			}
			tooMuch := sort.Search(len(noise), func(n int) bool { return fits(s, sized(n)) != nil })
			if tooMuch < 19_000 || tooMuch == len(noise) {
				t.Errorf("a body of %d bytes is too large for a topic that takes 20,000", tooMuch)
			}
			wantError(t, fits(s, sized(tooMuch)), false, sink.ErrTooLarge, "the topic takes 20000", "--add-config max.message.bytes=")
			err := s.Commit(t.Context(), []feed.Entity{sized(tooMuch)}, sinktest.At(1))
			wantError(t, err, true, sink.ErrTooLarge, "<0@feed.example.com>")
			resume(t, s)
			if err := s.Commit(t.Context(), []feed.Entity{sized(tooMuch - 1)}, sinktest.At(1)); err != nil {
				t.Errorf("the largest that fits: %v", err)
			}
			// Somebody makes the topic take less while the sink is at work.
			resume(t, s)
			alter(t, b, topic.Name, "max.message.bytes", "10000", noise[:15_000])
			err = s.Commit(t.Context(), []feed.Entity{sized(15_000)}, sinktest.At(2))
			wantError(t, err, true, sink.ErrTooLarge, "MESSAGE_TOO_LARGE")
			resume(t, s)
			wantError(t, fits(s, sized(15_000)), false, sink.ErrTooLarge, "the topic takes 10000")
			commitAndCheck(t, s, 1, 200)
		})
	}
}

func TestRealTopicIsNotCreated(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	topic := ordersIn(t)
	topic.Create = false
	cfg := atReal(b.Addr())
	cfg.Checkpoints = topic.Name + "-checkpoints"
	s := connect(t, cfg).Sink(topic)
	for _, missing := range []struct {
		topic, command string
		settings       map[string]string
	}{
		{cfg.Checkpoints, "--partitions 60 --config cleanup.policy=compact", map[string]string{"cleanup.policy": "compact"}},
		{topic.Name, "--partitions 1 --config retention.ms=-1", nil},
	} {
		_, err := s.Resume(t.Context())
		for _, err := range []error{err, s.Check(t.Context())} {
			wantError(t, err, true, nil, "there is no topic "+missing.topic+", and create is off; create it with 'kafka-topics.sh", missing.command)
		}
		createTopic(t, b.Addr(), missing.topic, 1, missing.settings)
	}
	continueTo(t, s, 0, 2)
}

func TestRealTopicsAreCreated(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	topic := ordersIn(t)
	topic.Partitions, topic.Key, topic.Config = 6, "/n", []string{"cleanup.policy=compact"}
	cfg := atReal(b.Addr())
	cfg.Checkpoints = topic.Name + "-checkpoints"
	resume(t, connect(t, cfg).Sink(topic))
	admin := kadm.NewClient(kafkaClient(t, b.Addr()))
	for name, want := range map[string]struct {
		partitions int
		settings   map[string]string
	}{
		topic.Name:      {6, map[string]string{"cleanup.policy": "compact", "retention.ms": "-1"}},
		cfg.Checkpoints: {kafka.CheckpointPartitions, map[string]string{"cleanup.policy": "compact", "segment.bytes": "4194304"}},
	} {
		topics, err := admin.ListTopics(t.Context(), name)
		must.Succeed(t, err)
		if n := len(topics[name].Partitions); n != want.partitions {
			t.Errorf("%s has %d partitions, want %d", name, n, want.partitions)
		}
		all, err := admin.DescribeTopicConfigs(t.Context(), name)
		must.Succeed(t, err)
		for _, kv := range all[0].Configs {
			if value, ok := want.settings[kv.Key]; ok && kv.MaybeValue() != value {
				t.Errorf("%s has %s=%s, want %s", name, kv.Key, kv.MaybeValue(), value)
			}
		}
	}
}

// alter changes a setting of a topic, and returns when the broker applies it: when it refuses a
// message that it accepted before.
func alter(t *testing.T, b *kafkatest.Broker, topic, name, value string, body []byte) {
	t.Helper()
	admin := kadm.NewClient(kafkaClient(t, b.Addr()))
	if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic); err != nil {
		t.Fatal(err)
	}
	cl := kafkaClient(t, b.Addr(), kgo.TransactionalID(kafkatest.Name(t)), kgo.ProducerBatchCompression(kgo.NoCompression()))
	until(t, func() bool {
		must.Succeed(t, cl.BeginTransaction())
		refused := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: body}).FirstErr()
		must.Succeed(t, cl.EndTransaction(t.Context(), kgo.TryAbort))
		return refused != nil
	})
}
