//go:build integration

package kafka_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// Records of a commit that was aborted arrive late, at a broker that asks no
// coordinator about them, as before Kafka 3.6. It refuses them; else the next commit
// with their id would publish them.
func TestRealRecordsArriveAfterTheAbort(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t, kafkatest.Property("transaction.partition.verification.enable", "false"))
	downgrade(t, b.Addr())
	topic := ordersIn(t)
	cfg := atReal(b.Addr())
	s, other := connect(t, cfg).Sink(topic), connect(t, cfg).Sink(topic)
	resumeAndCommit(t, s, 0, 2)
	commit(t, s, 2, 3)
	resume(t, other)
	id := "feedbridge." + topic.Name + "/orders"
	before := describe(t, b.Addr(), id)

	// The broker refuses it when it has begun, which aborts it.
	large := sinktest.Entities(3, 1)
	large[0].Body = make([]byte, 15_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(large[0].Body) // which never fails
	alter(t, b, topic.Name, "max.message.bytes", "10000", large[0].Body)
	wantError(t, s.Commit(t.Context(), large, sinktest.At(4)), true, sink.ErrTooLarge)

	entity := sinktest.Entities(3, 1)[0]
	late := batch(before.ProducerID, before.ProducerEpoch, nil, entity.Body, message.Header("orders", entity))
	follow(late, 2)
	if err := produceRaw(t, b.Addr(), id, topic.Name, 0, late); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("records of what was aborted: %v, want INVALID_PRODUCER_EPOCH", err)
	}
	commit(t, other, 3, 5)
	commitAndCheck(t, other, 5, 7)
}

// describe returns the state of a transactional id.
func describe(t *testing.T, addr, id string) kadm.DescribedTransaction {
	t.Helper()
	admin := kadm.NewClient(kafkaClient(t, addr))
	var state kadm.DescribedTransaction
	// A client that has just learned of the coordinator may not know its address yet.
	until(t, func() bool {
		described, err := admin.DescribeTransactions(t.Context(), id)
		state = described[id]
		return err == nil
	})
	return state
}
