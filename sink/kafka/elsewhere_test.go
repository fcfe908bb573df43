package kafka_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// Somebody adds partitions to the checkpoint topic, and the feed's messages are too far back
// in a shared topic to be found. Its checkpoint is found in the partition where it was.
func TestCheckpointLiesInAnotherPartition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		rare := orders()
		rare.Shared, rare.Window = true, 1
		s, c, more := open(t, rare)
		commit(t, s, 0, 5)
		busy := rare
		busy.Feed = "busy"
		b := connect(t, configFor(c)).Sink(busy)
		resume(t, b)
		for i := range 5 {
			must.Succeed(t, b.Commit(t.Context(), sinktest.Entities(i*10, 10), sinktest.At(i*10+10)))
		}
		_, adm := admin(t, c)
		if r, err := adm.UpdatePartitions(t.Context(), 97, "feedbridge.checkpoints"); err != nil || r.Error() != nil {
			t.Fatal(err, r)
		}
		// It is found, by a new copy and by the one that lives, and stays where it is.
		late := more()
		for n, s := range []*kafka.Sink{s, late, s, late} {
			wantCount(t, s, uint64(5+n))
			commit(t, s, 5+n, 6+n)
		}
		wantError(t, s.Commit(t.Context(), sinktest.Entities(900, 1), sinktest.At(10)), false, checkpoint.ErrConflict)
		must.Succeed(t, more().Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(3))))
		wantCount(t, s, 3)
	})
}

// The topic's only checkpoint is another feed's, in another partition.
func TestCheckpointOfAnotherFeedLiesInAnotherPartition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		commit(t, s, 0, 1)
		_, adm := admin(t, c)
		if r, err := adm.UpdatePartitions(t.Context(), 97, "feedbridge.checkpoints"); err != nil || r.Error() != nil {
			t.Fatal(err, r)
		}
		topic := orders()
		topic.Feed = "parcels"
		_, err := connect(t, configFor(c)).Sink(topic).Resume(t.Context())
		wantError(t, err, true, checkpoint.ErrForeign, `checkpoint of feed "orders"`)
	})
}

// A coordinator that is loading does not report the state of a transaction. The transaction
// that holds the partition back is another program's, and the copy that is alive is not
// disturbed.
func TestALookThatIsToldNothingFencesNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		cfg := configWithin(c, 5*time.Second)
		s := connect(t, cfg).Sink(orders())
		resumeAndCommit(t, s, 0, 10)
		tell(c, func(string) *kadm.DescribedTransaction {
			return &kadm.DescribedTransaction{Err: kerr.CoordinatorLoadInProgress}
		})
		begin(t, c, "other", beside(t, c))
		_, err := connect(t, cfg).Sink(orders()).Resume(t.Context())
		wantError(t, err, false, nil, "is held back by")
		if err := s.Commit(t.Context(), sinktest.Entities(10, 10), sinktest.At(20)); err != nil {
			t.Errorf("the living copy was fenced by a look: %v", err)
		}
	})
}

// A wait aborts the open transaction of an id once, and never again: a copy that is alive may
// have continued with the id.
func TestALookEndsATransactionOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		cfg := configWithin(c, 5*time.Second)
		s := connect(t, cfg).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		begin(t, c, "other", beside(t, c))
		tell(c, func(id string) *kadm.DescribedTransaction {
			return &kadm.DescribedTransaction{TxnID: id, State: "Ongoing", StartTimestamp: 1}
		})
		taken := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Observe: true, Count: -1})
		_, err := connect(t, cfg).Sink(orders()).Resume(t.Context())
		wantError(t, err, false, nil, "is held back by")
		if n := taken.Hits(); n != 1 {
			t.Errorf("the id was taken %d times, want once", n)
		}
	})
}

// A commit begins after the look that has found none under way. It does not hang.
func TestCommitBeginsDuringALook(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		cfg := configWithin(c, 10*time.Second)
		living, idle := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
		resumeAndCommit(t, living, 0, 2)
		held, release := hold(c, kmsg.EndTxn, func(kmsg.Request) bool { return true })
		committed, resumed := make(chan error, 1), make(chan error, 1)
		go func() { committed <- living.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4)) }()
		<-held

		_, adm := admin(t, c)
		described, err := adm.DescribeTransactions(t.Context(), transactionalID)
		must.Succeed(t, err)
		before := described[transactionalID]
		before.State = "CompleteCommit"
		looks, again := 0, make(chan struct{})
		tell(c, func(id string) *kadm.DescribedTransaction {
			if id != transactionalID {
				return nil
			}
			switch looks++; looks {
			case 1:
				return &before
			case 3: // after the second of the same look
				close(again)
			}
			return nil
		})
		go func() { _, err := idle.Resume(t.Context()); resumed <- err }()
		select {
		case <-again:
		case err := <-resumed:
			resumed <- err
		}
		release()
		if err := <-committed; err != nil {
			t.Errorf("the commit was taken for one that hangs: %v", err)
		}
		if err := <-resumed; err != nil {
			t.Error(err)
		}
		wantFeed(t, idle, 4)
	})
}

// tell makes the cluster answer with the state of a transactional ID that f returns, unless
// f returns nil.
func tell(c *kfake.Cluster, f func(id string) *kadm.DescribedTransaction) {
	c.ControlKey(int16(kmsg.DescribeTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		for _, id := range r.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
			d := f(id)
			if d == nil {
				return nil, nil, false
			}
			state := kmsg.NewDescribeTransactionsResponseTransactionState()
			state.TransactionalID, state.State, state.StartTimestamp, state.ProducerID, state.ProducerEpoch = id, d.State, d.StartTimestamp, d.ProducerID, d.ProducerEpoch
			if err, ok := errors.AsType[*kerr.Error](d.Err); ok {
				state.ErrorCode = err.Code
			}
			resp.TransactionStates = append(resp.TransactionStates, state)
		}
		return resp, nil, true
	})
}

func TestCheckSeesThatTheTopicIsAnotherFeeds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		commit(t, s, 0, 2)
		stranger := orders()
		stranger.Feed = "letters"
		wantError(t, connect(t, configFor(c)).Sink(stranger).Check(t.Context()), true, checkpoint.ErrForeign)
	})
}

// Feeds that start for the first time look for a checkpoint in all partitions. They read each of
// them once, and not once per feed.
func TestNewFeedsReadAllPartitionsOnce(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	conn := connect(t, configFor(c))
	const feeds = 40
	name := func(n int) kafka.Topic {
		topic := orders()
		topic.Name = "shop.orders." + strconv.Itoa(n)
		return topic
	}
	for n := range feeds {
		s := conn.Sink(name(n))
		resumeAndCommit(t, s, 0, 1)
	}
	fetches := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	fresh := connect(t, configFor(c))
	for n := range feeds {
		resume(t, fresh.Sink(name(1000+n)))
	}
	// Each reads its own partition, and again for the newest checkpoint.
	if n := fetches.Hits(); n > 4*feeds {
		t.Errorf("%d new feeds have made %d fetches, want few of each", feeds, n)
	}
}
