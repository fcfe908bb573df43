//go:build integration

package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// atReal is the configuration for a real broker. A busy machine answers within its timeout, and
// a transaction may be open for a fifth of it.
func atReal(addr string) kafka.Config {
	return kafka.Config{Brokers: []string{addr}, Timeout: 30 * time.Second, TransactionTimeout: 2 * time.Minute}
}

// ordersIn is a topic that no other test has.
func ordersIn(t testing.TB) kafka.Topic {
	topic := orders()
	topic.Name = kafkatest.Name(t)
	return topic
}

// kafkaClient is a client like Kafka's tools, and like other programs.
func kafkaClient(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	must.Succeed(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// createTopic creates a topic, and returns when the broker knows of it.
func createTopic(t testing.TB, addr, name string, partitions int32, settings map[string]string) {
	t.Helper()
	values := map[string]*string{}
	for k, v := range settings {
		values[k] = &v
	}
	admin := kadm.NewClient(kafkaClient(t, addr, kgo.MetadataMinAge(20*time.Millisecond)))
	if _, err := admin.CreateTopic(t.Context(), partitions, 1, values, name); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		topics, err := admin.ListTopics(t.Context(), name)
		must.Succeed(t, err)
		return topics[name].Err == nil && len(topics[name].Partitions) == int(partitions)
	})
}

func TestRealSink(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	sinktest.Test(t, func(t *testing.T) sinktest.Topic {
		topic := ordersIn(t)
		topic.Window, topic.DeadLetters = 50, true
		open := func() *kafka.Sink { return connect(t, atReal(b.Addr())).Sink(topic) }
		return sinktest.Topic{
			Open:        func() sinktest.Sink { return open() },
			Log:         settled{connect(t, atReal(b.Addr())).Log(topic.Name, 0)},
			DeadLetters: settled{connect(t, atReal(b.Addr())).Log(topic.Name+".dead", 0)},
			MaxEntities: kafka.MaxEntities,
			Window:      topic.Window,
		}
	})
}
