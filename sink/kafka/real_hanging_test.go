//go:build integration

package kafka_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// A transaction that the cluster takes for ended hangs in all partitions that it
// wrote to. The next Resume ends it as it had ended.
func TestRealHangingTransactionIsEndedAsItHadEnded(t *testing.T) {
	t.Parallel()
	// Without this a broker takes no records of a transaction that its
	// coordinator knows nothing of.
	b := kafkatest.Start(t, kafkatest.Property("transaction.partition.verification.enable", "false"))
	for _, test := range []struct {
		name  string
		taken bool // by a copy that went no further
		want  int  // entities
	}{
		{"committed", false, 4},
		{"aborted", true, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			topic := ordersIn(t)
			cfg := atReal(b.Addr())
			cfg.Checkpoints = kafkatest.Name(t)
			s := connect(t, cfg).Sink(topic)
			resumeAndCommit(t, s, 0, 2)
			commit(t, s, 2, 3)

			id := "feedbridge." + topic.Name + "/orders"
			place := kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(topic.Name)}, kafka.CheckpointPartitions)
			h := hanging{t, b.Addr(), id}
			entity := sinktest.Entities(3, 1)[0]
			h.write(topic.Name, 0, nil, entity.Body, message.Header("orders", entity))
			h.write(cfg.Checkpoints, int32(place), []byte(topic.Name+"/orders"), checkpoint.Encode(sinktest.At(4)), nil)
			if test.taken {
				if _, _, err := kafkaClient(t, b.Addr(), kgo.TransactionalID(id)).ProducerID(t.Context()); err != nil {
					t.Fatal(err)
				}
			}

			successor := connect(t, cfg).Sink(topic)
			wantCount(t, successor, uint64(test.want))
			wantFeed(t, successor, test.want)
			commitAndCheck(t, successor, test.want, 7)
			if got := len(kafkatest.ReadJava(t, b, topic.Name)); got != 7 {
				t.Errorf("the Java client reads %d messages, want 7", got)
			}
		})
	}
}

// The last commit hangs, and if the next one were aborted, so would both. It does not come to
// that.
func TestRealNoCommitJoinsATransactionThatHangs(t *testing.T) {
	t.Parallel()
	b, _, topic, s := hangingEntity(t)

	// The broker refuses the next one when it has begun, which aborts it.
	large := sinktest.Entities(4, 1)
	large[0].Body = make([]byte, 15_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(large[0].Body) // which never fails
	alter(t, b, topic.Name, "max.message.bytes", "10000", large[0].Body)
	s.Doubt() // that record is none of its own, so it has not missed it
	wantError(t, s.Commit(t.Context(), large, sinktest.At(5)), false, nil, "is not ended in all partitions")
	// The forged records do not include the checkpoint of the hung transaction.
	wantCount(t, s, 3)
	wantFeed(t, s, 4)
	commitAndCheck(t, s, 4, 9)
}

// A copy's open transaction was aborted when another copy initialized the id, and hangs. The
// next commit of any copy does not commit it, too.
func TestRealNoCommitPublishesWhatHangs(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t, kafkatest.Property("transaction.partition.verification.enable", "false"))
	topic := ordersIn(t)
	cfg := atReal(b.Addr())
	cfg.Checkpoints = kafkatest.Name(t)
	cfg.Timeout = 20 * time.Second
	s, other := connect(t, cfg).Sink(topic), connect(t, cfg).Sink(topic)
	resumeAndCommit(t, s, 0, 2)
	commit(t, s, 2, 3)
	resume(t, other)
	h := hanging{t, b.Addr(), "feedbridge." + topic.Name + "/orders"}
	entity := sinktest.Entities(3, 1)[0]
	h.write(topic.Name, 0, nil, entity.Body, message.Header("orders", entity))
	if _, _, err := kafkaClient(t, b.Addr(), kgo.TransactionalID(h.id)).ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantError(t, other.Commit(t.Context(), sinktest.Entities(3, 2), sinktest.At(5)), false, nil, "is held back by a transaction of \""+h.id)
	wantCount(t, other, 3)
	commit(t, other, 3, 5)
	commitAndCheck(t, other, 5, 7)
}

// A commit hangs only in the dead-letter topic. The next Resume ends it as it had ended.
func TestRealDeadLetterThatHangsIsCommitted(t *testing.T) {
	t.Parallel()
	_, cfg, topic, _ := hangingDeadLetter(t)
	successor := connect(t, cfg).Sink(topic)
	resume(t, successor)
	entities, cp := withDead(3, 5, 1)
	wantKnown(t, successor, true, entities[0])
	must.Succeed(t, successor.Commit(t.Context(), entities[1:], cp))
	wantFeed(t, successor, 3)
	wantDeadOf(t, connect(t, cfg), topic, 3, 4)
}

// A transaction that was aborted hangs only in the dead-letter topic. The next commit of any copy
// does not commit it, too.
func TestRealNoCommitPublishesADeadLetterThatHangs(t *testing.T) {
	t.Parallel()
	h, cfg, topic, other := hangingDeadLetter(t)
	if _, _, err := kafkaClient(t, h.addr, kgo.TransactionalID(h.id)).ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	entities, cp := withDead(4, 5, 0)
	wantError(t, other.Commit(t.Context(), entities, cp), false, nil, "is held back by a transaction of \""+h.id)
	wantCount(t, other, 3)
	must.Succeed(t, other.Commit(t.Context(), entities, cp))
	wantFeed(t, other, 3)
	wantDeadOf(t, connect(t, cfg), topic, 4)
}

// hangingDeadLetter starts a broker with a topic that a sink has committed three entities to. Then a
// dead letter hangs, of the number 3. The sink other has resumed before.
func hangingDeadLetter(t *testing.T) (h hanging, cfg kafka.Config, topic kafka.Topic, other *kafka.Sink) {
	t.Helper()
	b := kafkatest.Start(t, kafkatest.Property("transaction.partition.verification.enable", "false"))
	topic = ordersIn(t)
	topic.DeadLetters = true
	cfg = atReal(b.Addr())
	cfg.Checkpoints, cfg.Timeout = kafkatest.Name(t), 20*time.Second
	s := connect(t, cfg).Sink(topic)
	resumeAndCommit(t, s, 0, 2)
	commit(t, s, 2, 3)
	other = connect(t, cfg).Sink(topic)
	resume(t, other)
	h = hanging{t, b.Addr(), "feedbridge." + topic.Name + "/orders"}
	entity := sinktest.Entities(3, 1)[0]
	h.write(topic.Name+sink.DeadSuffix, 0, nil, entity.Body, message.Header("orders", entity))
	return h, cfg, topic, other
}

// A commit is confirmed and hangs only in the topic. Then a copy that has compared before
// initializes the id. The commit stays.
func TestRealCommitThatHangsStaysWhoeverTakesItsID(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t, kafkatest.Property("transaction.partition.verification.enable", "false"))
	topic := ordersIn(t)
	cfg := atReal(b.Addr())
	cfg.Checkpoints = kafkatest.Name(t)
	cfg.Timeout = 20 * time.Second
	s := connect(t, cfg).Sink(topic)
	resumeAndCommit(t, s, 0, 3)
	h := hanging{t, b.Addr(), "feedbridge." + topic.Name + "/orders"}
	place := kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(topic.Name)}, kafka.CheckpointPartitions)
	entity := sinktest.Entities(3, 1)[0]
	h.write(topic.Name, 0, nil, entity.Body, message.Header("orders", entity))
	h.write(cfg.Checkpoints, int32(place), []byte(topic.Name+"/orders"), checkpoint.Encode(sinktest.At(4)), nil)
	h.mark(cfg.Checkpoints, int32(place))
	if _, _, err := kafkaClient(t, b.Addr(), kgo.TransactionalID(h.id)).ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := connect(t, cfg).Sink(topic)
	wantCount(t, other, 4)
	wantFeed(t, other, 4)
	commitAndCheck(t, other, 4, 9)
}

// A person moves the position while the entities of a commit hang. That ends the transaction
// first, because its outcome would be unknown later.
func TestRealPlaceIsMovedWhileATransactionHangs(t *testing.T) {
	t.Parallel()
	_, cfg, topic, s := hangingEntity(t)
	must.Succeed(t, connect(t, cfg).Sink(topic).Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(4))))
	wantCount(t, s, 4)
	wantFeed(t, s, 4)
	commitAndCheck(t, s, 4, 6)
}

// The cluster gives a transactional id another producer id when the epochs of the present one are used
// up. No transaction has one of the last epochs, with which it could not be ended if it hung.
func TestRealProducerIDIsReplacedBeforeItsLastEpoch(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	topic := ordersIn(t)
	cfg := atReal(b.Addr())
	cfg.Checkpoints = kafkatest.Name(t)
	first, s := connect(t, cfg).Sink(topic), connect(t, cfg).Sink(topic)
	resumeAndCommit(t, first, 0, 1)
	first.AwaitEnd(t)
	id := "feedbridge." + topic.Name + "/orders"
	cl := kafkaClient(t, b.Addr())
	began := time.Now()
	for epoch := int16(0); epoch < math.MaxInt16-20; {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
		resp, err := req.RequestWith(t.Context(), cl)
		must.Succeed(t, err)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil && !kerr.IsRetriable(err) && !errors.Is(err, kerr.ConcurrentTransactions) {
			t.Fatal(err)
		}
		epoch = max(epoch, resp.ProducerEpoch)
	}
	t.Log("used up in", time.Since(began))
	before := describe(t, b.Addr(), id)
	resume(t, s)
	for n := 1; n < 30; n++ {
		commit(t, s, n, n+1)
		now := describe(t, b.Addr(), id)
		if now.ProducerID == before.ProducerID && now.ProducerEpoch > math.MaxInt16-15 { // the end of a transaction has raised it
			t.Errorf("a transaction has epoch %d", now.ProducerEpoch)
		}
	}
	if now := describe(t, b.Addr(), id); now.ProducerID == before.ProducerID {
		t.Errorf("the producer id is still %d, with epoch %d", now.ProducerID, now.ProducerEpoch)
	}
	wantFeed(t, s, 30)
}

// hangingEntity starts a broker with a topic that a sink has committed three entities
// to; a fourth one of the same transaction hangs.
func hangingEntity(t *testing.T) (*kafkatest.Broker, kafka.Config, kafka.Topic, *kafka.Sink) {
	t.Helper()
	b := kafkatest.Start(t, kafkatest.Property("transaction.partition.verification.enable", "false"))
	topic := ordersIn(t)
	cfg := atReal(b.Addr())
	cfg.Timeout = 20 * time.Second
	s := connect(t, cfg).Sink(topic)
	resumeAndCommit(t, s, 0, 3)
	h := hanging{t, b.Addr(), "feedbridge." + topic.Name + "/orders"}
	entity := sinktest.Entities(3, 1)[0]
	h.write(topic.Name, 0, nil, entity.Body, message.Header("orders", entity))
	return b, cfg, topic, s
}

// hanging writes records of a transaction that has ended already.
type hanging struct {
	t    *testing.T
	addr string
	id   string // of its producer
}

func (h hanging) write(topic string, partition int32, key, value []byte, header feed.Header) {
	h.t.Helper()
	var now kadm.DescribedTransaction
	until(h.t, func() bool {
		now = describe(h.t, h.addr, h.id)
		return now.State == "CompleteCommit"
	})
	must.Succeed(h.t, produceRaw(h.t, h.addr, h.id, topic, partition, batch(now.ProducerID, now.ProducerEpoch, key, value, header)))
}

// produceRaw sends a batch of records of a transaction that was not announced to the broker,
// and returns the answer.
func produceRaw(t *testing.T, addr, id, topic string, partition int32, records []byte) error {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &id, -1, 30_000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	top := kmsg.NewProduceRequestTopic()
	top.Topic, top.Partitions = topic, []kmsg.ProduceRequestTopicPartition{p}
	req.Topics = []kmsg.ProduceRequestTopic{top}

	// Of a later version it would begin a transaction.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Produce), 7)
	resp, err := req.RequestWith(t.Context(), kafkaClient(t, addr, kgo.MaxVersions(versions)).Broker(1))
	must.Succeed(t, err)
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// mark writes the marker of a commit in one partition.
func (h hanging) mark(topic string, partition int32) {
	h.t.Helper()
	described, err := kadm.NewClient(kafkaClient(h.t, h.addr)).DescribeTransactions(h.t.Context(), h.id)
	must.Succeed(h.t, err)
	now := described[h.id]
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch = now.ProducerID, now.ProducerEpoch, true, 1000
	of := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	of.Topic, of.Partitions = topic, []int32{partition}
	m.Topics = append(m.Topics, of)
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = append(req.Markers, m)
	resp, err := req.RequestWith(h.t.Context(), kafkaClient(h.t, h.addr).Broker(1))
	must.Succeed(h.t, err)
	must.Succeed(h.t, kerr.ErrorForCode(resp.Markers[0].Topics[0].Partitions[0].ErrorCode))
}

// batch is a record of a transaction as it goes over the wire.
func batch(producer int64, epoch int16, key, value []byte, header feed.Header) []byte {
	r := kmsg.Record{Key: key, Value: value}
	for _, f := range header {
		r.Headers = append(r.Headers, kmsg.Header{Key: f.Name, Value: []byte(f.Value)})
	}
	r.Length = int32(len(r.AppendTo(nil)) - 1) // that of the length itself, which is 0 so far
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		Magic: 2, Attributes: 0x10, PartitionLeaderEpoch: -1,
		FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: producer, ProducerEpoch: epoch,
		NumRecords: 1, Records: r.AppendTo(nil),
	}
	raw := b.AppendTo(nil)
	const length = 8 // where it begins
	binary.BigEndian.PutUint32(raw[length:], uint32(len(raw)-length-4))
	follow(raw, 0)
	return raw
}

// follow makes a batch that of a producer that has sent so many records before.
func follow(batch []byte, sequence uint32) {
	const crc, attributes, baseSequence = 17, 21, 53 // where they begin
	binary.BigEndian.PutUint32(batch[baseSequence:], sequence)
	binary.BigEndian.PutUint32(batch[crc:], crc32.Checksum(batch[attributes:], crc32.MakeTable(crc32.Castagnoli)))
}
