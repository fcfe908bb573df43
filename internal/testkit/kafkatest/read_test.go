//go:build integration

package kafkatest_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func TestReadersSeeWhatIsCommitted(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := newTopic(t, b, 1, nil)
	transaction(t, b, kgo.TryCommit,
		&kgo.Record{Topic: topic, Key: []byte("k\x00\xff"), Value: []byte("first"), Headers: []kgo.RecordHeader{
			{Key: "B", Value: []byte("1")}, {Key: "Ä\n", Value: []byte{0xff}}, {Key: "B", Value: []byte("")}, {Key: "none"},
		}},
		&kgo.Record{Topic: topic, Value: []byte("no key")},
	)
	transaction(t, b, kgo.TryAbort, &kgo.Record{Topic: topic, Value: []byte("aborted")})
	transaction(t, b, kgo.TryCommit,
		&kgo.Record{Topic: topic, Key: []byte("k"), Value: nil},
		&kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte{}},
	)
	// The end of the topic is a control record, which consumers do not see.
	transaction(t, b, kgo.TryAbort, &kgo.Record{Topic: topic, Value: []byte("aborted")})

	// A transaction takes one offset more than it has records.
	want := []kafkatest.Record{
		{Offset: 0, Key: []byte("k\x00\xff"), Value: []byte("first"), Headers: []kafkatest.Header{
			{Key: "B", Value: []byte("1")}, {Key: "Ä\n", Value: []byte{0xff}}, {Key: "B", Value: []byte("")}, {Key: "none"},
		}},
		{Offset: 1, Value: []byte("no key")},
		{Offset: 5, Key: []byte("k")},
		{Offset: 6, Key: []byte("k"), Value: []byte{}},
	}
	must.Match(t, "franz-go reads", want, read(t, b, topic, len(want)))
	must.Match(t, "the Java client reads", want, kafkatest.ReadJava(t, b, topic))
}

func TestJavaReadsUpToAnOpenTransaction(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := newTopic(t, b, 3, nil)
	var want []kafkatest.Record
	for p := range int32(3) {
		transaction(t, b, kgo.TryCommit, &kgo.Record{Topic: topic, Partition: p, Value: []byte("committed")})
		want = append(want, kafkatest.Record{Partition: p, Value: []byte("committed")})
	}
	cl := client(t, b.Addr(), kgo.TransactionalID(kafkatest.Name(t)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must.Succeed(t, cl.BeginTransaction())
	must.Succeed(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 1, Value: []byte("open")}).FirstErr())
	must.Match(t, "the Java client reads", want, kafkatest.ReadJava(t, b, topic))
}

func TestJavaPutsKeysWhereFranzGoDoes(t *testing.T) {
	const partitions = 6
	keys := []string{"", "a", "orders/17", "Ä", "\x00\xff", "a\nb"}
	for i := range 500 {
		keys = append(keys, fmt.Sprintf("key %d", i*i))
	}
	p := kgo.StickyKeyPartitioner(nil).ForTopic("topic")
	var want []int32
	for _, key := range keys {
		want = append(want, int32(p.Partition(&kgo.Record{Key: []byte(key)}, partitions)))
	}
	if diff := cmp.Diff(want, kafkatest.JavaPartitions(t, keys, partitions)); diff != "" {
		t.Errorf("partitions of the Java client (-franz-go +Java):\n%s", diff)
	}
}
