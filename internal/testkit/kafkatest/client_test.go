//go:build integration

package kafkatest_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr))...)
	must.Succeed(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// newTopic creates a topic and returns its name.
func newTopic(t *testing.T, b *kafkatest.Broker, partitions int32, config map[string]*string) string {
	t.Helper()
	name := kafkatest.Name(t)
	_, err := kadm.NewClient(client(t, b.Addr())).CreateTopic(t.Context(), partitions, 1, config, name)
	must.Succeed(t, err)
	return name
}

// transaction produces records in a transaction of its own.
func transaction(t *testing.T, b *kafkatest.Broker, end kgo.TransactionEndTry, records ...*kgo.Record) {
	t.Helper()
	cl := client(t, b.Addr(), kgo.TransactionalID(kafkatest.Name(t)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must.Succeed(t, cl.BeginTransaction())
	must.Succeed(t, cl.ProduceSync(t.Context(), records...).FirstErr())
	must.Succeed(t, cl.EndTransaction(t.Context(), end))
}

// read reads the first n records of a topic that has one partition, with read_committed.
func read(t *testing.T, b *kafkatest.Broker, topic string, n int) []kafkatest.Record {
	t.Helper()
	cl := client(t, b.Addr(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	var records []kafkatest.Record
	for len(records) < n {
		fetches := cl.PollFetches(t.Context())
		must.Succeed(t, fetches.Err())
		for _, r := range fetches.Records() {
			record := kafkatest.Record{Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				record.Headers = append(record.Headers, kafkatest.Header{Key: h.Key, Value: h.Value})
			}
			records = append(records, record)
		}
	}
	return records
}

// startOffset returns the first offset that is left in a topic's only partition.
func startOffset(t *testing.T, b *kafkatest.Broker, topic string) int64 {
	t.Helper()
	starts, err := kadm.NewClient(client(t, b.Addr())).ListStartOffsets(t.Context(), topic)
	if err == nil {
		err = starts.Error()
	}
	must.Succeed(t, err)
	start, _ := starts.Lookup(topic, 0)
	return start.Offset
}
