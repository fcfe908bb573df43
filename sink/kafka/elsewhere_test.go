package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/sink/sinktest"
)

// Somebody adds partitions to the topic for checkpoints, and the feed's messages
// lie too far back in a shared topic to be found. It is not taken for a fresh one.
func TestCheckpointLiesInAnotherPartition(t *testing.T) {
	t.Parallel()
	rare := orders()
	rare.Shared, rare.Window = true, 1
	s, c, more := open(t, rare)
	commit(t, s, 0, 5)
	busy := rare
	busy.Feed = "busy"
	b := connect(t, at(c)).Sink(busy)
	resume(t, b)
	for i := range 5 {
		if err := b.Commit(t.Context(), sinktest.Entities(i*10, 10), sinktest.At(i*10+10)); err != nil {
			t.Fatal(err)
		}
	}
	_, adm := admin(t, c)
	if r, err := adm.UpdatePartitions(t.Context(), 17, "feedbridge.checkpoints"); err != nil || r.Error() != nil {
		t.Fatal(err, r)
	}
	_, err := more().Resume(t.Context())
	wantError(t, err, true, checkpoint.ErrMissing, "changed the number of its partitions")
	_, err = s.Resume(t.Context())
	wantError(t, err, true, checkpoint.ErrMissing)
}

// A coordinator that loads does not say how a transaction stands. What holds the
// partition back is another program's, and the copy that lives is left alone.
func TestALookThatIsToldNothingFencesNobody(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	cfg := at(c)
	cfg.Timeout = 5 * time.Second
	s := connect(t, cfg).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 10)
	c.ControlKey(int16(kmsg.DescribeTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		for _, id := range r.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
			state := kmsg.NewDescribeTransactionsResponseTransactionState()
			state.TransactionalID, state.ErrorCode = id, 14 // COORDINATOR_LOAD_IN_PROGRESS
			resp.TransactionStates = append(resp.TransactionStates, state)
		}
		return resp, nil, true
	})
	begin(t, c, "other", beside(t, c))
	_, err := connect(t, cfg).Sink(orders()).Resume(t.Context())
	wantError(t, err, false, nil, "is held back by")
	if err := s.Commit(t.Context(), sinktest.Entities(10, 10), sinktest.At(20)); err != nil {
		t.Errorf("the living copy was fenced by a look: %v", err)
	}
}

func TestCheckSeesThatTheTopicIsAnotherFeeds(t *testing.T) {
	t.Parallel()
	s, c, _ := open(t, orders())
	commit(t, s, 0, 2)
	stranger := orders()
	stranger.Feed = "letters"
	wantError(t, connect(t, at(c)).Sink(stranger).Check(t.Context()), true, checkpoint.ErrForeign)
}
