package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// transactionalID is the transactional ID of the topic orders.
const transactionalID = "feedbridge.shop.orders/orders"

func TestAnswerToACommitIsLostOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, w := startWired(t)
		s := connect(t, configFor(c)).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		var lost atomic.Int32
		w.losing(func(key kmsg.Key) bool { return key == kmsg.EndTxn && lost.Add(1) == 1 })
		commit(t, s, 2, 4)
		if lost.Load() == 0 {
			t.Error("no answer was lost")
		}
		commitAndCheck(t, s, 4, 5)
	})
}

func TestAnswerToACommitIsLostForGood(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, w := startWired(t)
		s := connect(t, configFor(c)).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		w.losing(func(key kmsg.Key) bool { return key == kmsg.EndTxn })
		wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4)), false, nil, "commit")
		wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4)), false, nil, "has not resumed since its last error")
		w.losing(nil)
		// The commit has taken place, and only the checkpoint shows it.
		wantCount(t, s, 4)
		commitAndCheck(t, s, 4, 5)
	})
}

// The caller gives up while the cluster ends the transaction. The commit takes place, and the
// sink waits for the answer.
func TestCallerCancelsWhileTheTransactionEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		commit(t, s, 0, 2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.ControlKey(kmsg.EndTxn.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			cancel()
			time.Sleep(200 * time.Millisecond) // for a client that stops waiting
			return nil, nil, false
		})
		if err := s.Commit(ctx, sinktest.Entities(2, 2), sinktest.At(4)); err != nil || ctx.Err() == nil {
			t.Fatalf("the commit returned %v, and the caller has cancelled: %v", err, ctx.Err())
		}
		commitAndCheck(t, s, 4, 5)
	})
}

// If the outcome of a commit is unknown, the sink does not initialize the transactional id:
// that would make the cluster forget the outcome of a hung transaction.
func TestAnswerToACommitIsLostAndNobodyTells(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, w := startWired(t)
		cfg := configWithin(c, 5*time.Second)
		s := connect(t, cfg).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		var taken atomic.Int32
		w.losing(func(key kmsg.Key) bool {
			if key == kmsg.InitProducerID {
				taken.Add(1)
			}
			return key == kmsg.EndTxn || key == kmsg.DescribeTransactions
		})
		wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4)), false, nil, "commit")
		if n := taken.Load(); n > 0 {
			t.Errorf("the id was taken %d times", n)
		}
		w.losing(nil)
		wantCount(t, s, 4)
		commitAndCheck(t, s, 4, 5)
	})
}

// confirm confirms the end of a transaction that goes on.
func confirm(r kmsg.Request) (kmsg.Response, error, bool) {
	req := r.(*kmsg.EndTxnRequest)
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch
	return resp, nil, true
}

func TestNewClusterHasNoCoordinatorYet(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		var asked atomic.Int32
		c.ControlKey(kmsg.FindCoordinator.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if asked.Add(1) > 2 {
				return nil, nil, false
			}
			req := r.(*kmsg.FindCoordinatorRequest)
			resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
			resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
			for _, key := range req.CoordinatorKeys {
				resp.Coordinators = append(resp.Coordinators, kmsg.FindCoordinatorResponseCoordinator{Key: key, ErrorCode: kerr.CoordinatorNotAvailable.Code})
			}
			return resp, nil, true
		})
		if err := s.Check(t.Context()); err != nil || asked.Load() < 3 {
			t.Errorf("after %d requests: %v", asked.Load(), err)
		}
	})
}

func TestCommitFails(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]kfake.Fault{
		"the coordinator does not answer":  {Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.CoordinatorNotAvailable, Count: -1},
		"the coordinator breaks":           {Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.UnknownServerError},
		"a replica is missing":             {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1},
		"the leader is elsewhere for long": {Keys: []kmsg.Key{kmsg.Produce}, Topic: "shop.orders", Err: kerr.NotLeaderForPartition, Count: -1},
		"the checkpoint cannot be written": {Keys: []kmsg.Key{kmsg.Produce}, Topic: "feedbridge.checkpoints", Err: kerr.KafkaStorageError, Count: -1},
		"the log is full":                  {Keys: []kmsg.Key{kmsg.Produce}, Topic: "shop.orders", Err: kerr.UnknownServerError},
	} {
		for cluster, start := range map[string]func(testing.TB) *kfake.Cluster{
			"Kafka 4":                    func(t testing.TB) *kfake.Cluster { return startCluster(t) },
			"transactions of version 1":  func(t testing.TB) *kfake.Cluster { return downgraded(t) },
			"how they stand is not told": func(t testing.TB) *kfake.Cluster { return downgraded(t, kfake.MaxVersions(kversion.V2_8_0())) },
		} {
			t.Run(name+", "+cluster, bubbled(func(t *testing.T) {
				c := start(t)
				cfg := configWithin(c, 4*time.Second)
				s, other := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
				resumeAndCommit(t, s, 0, 2)
				h := c.Fault(fault)
				wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4)), false, nil, "commit")
				if h.Hits() == 0 {
					t.Error("the fault was not met")
				}
				// Nothing is left open that would hold readers back.
				if p := c.PartitionInfo("shop.orders", 0); p.LastStableOffset != p.HighWatermark {
					t.Errorf("the last stable offset is %d of %d", p.LastStableOffset, p.HighWatermark)
				}
				h.Remove()
				wantCount(t, other, 2)
				continueTo(t, s, 2, 4)
			}))
		}
	}
}

// A copy whose commit fails aborts it. By then another may have taken the id, and
// be at work.
func TestAbortLeavesAnotherCopyAlone(t *testing.T) {
	t.Parallel()
	for version := range 2 {
		t.Run(fmt.Sprintf("transactions of version %d", version+1), bubbled(func(t *testing.T) {
			c, w := startWired(t)
			if version == 0 {
				downgrade(t, c.ListenAddrs()[0])
			}
			cfg := configWithin(c, 3*time.Second)
			s := connect(t, cfg).Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			theirs := begin(t, c, transactionalID, &kgo.Record{Topic: "shop.orders", Value: []byte("under way")})
			w.losing(func(key kmsg.Key) bool { return key == kmsg.AddPartitionsToTxn || key == kmsg.Produce })
			wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4)), false, nil, "commit")
			w.losing(nil)
			if err := theirs.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
				t.Errorf("the other copy has lost its transaction: %v", err)
			}
		}))
	}
}

func TestTroubleThatPassesWithinACommit(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]kfake.Fault{
		"the leader has moved":                {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition},
		"an append is answered too late":      {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut},
		"replicas fall behind after it":       {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend},
		"the coordinator has moved":           {Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.NotCoordinator},
		"the coordinator loads":               {Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.CoordinatorLoadInProgress},
		"the transaction before is not ended": {Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.ConcurrentTransactions, Count: 3},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			c := startCluster(t)
			cfg := configWithin(c, 20*time.Second) // a busy machine takes its time
			s := connect(t, cfg).Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			h := c.Fault(fault)
			commit(t, s, 2, 4)
			if h.Hits() == 0 {
				t.Error("the fault was not met")
			}
			commitAndCheck(t, s, 4, 5)
		}))
	}
}

func TestLeadersAndCoordinatorsMove(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders(), kfake.NumBrokers(3))
		for n := range 12 {
			commit(t, s, n, n+1)
			c.ShufflePartitionLeaders()
			if n%3 == 0 {
				c.RehashCoordinators()
			}
			if n%4 == 0 {
				resume(t, s)
			}
		}
		wantFeed(t, s, 12)
	})
}

// All concurrent requests for offsets are answered with NOT_LEADER. No caller gets that error.
func TestLeaderMovesWhileManyAskForOffsets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const n = 8
		c := startCluster(t)
		conn := connect(t, configFor(c))
		s := conn.Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.NotLeaderForPartition, Count: 4 * n})
		var group sync.WaitGroup
		for range n {
			group.Go(func() {
				if span, err := s.Log(0).Span(t.Context()); err != nil || span.End != 3 {
					t.Errorf("positions %+v, %v", span, err)
				}
			})
		}
		group.Wait()
		if h.Hits() < n {
			t.Errorf("the fault was met %d times", h.Hits())
		}
		h.Remove()
		// It ends if it stays so.
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.NotLeaderForPartition, Count: -1})
		short := configWithin(c, time.Second)
		_, err := connect(t, short).Sink(orders()).Resume(t.Context())
		wantError(t, err, false, nil, "resume")
	})
}

// A topic that was just created is unknown to some broker for a moment, and to a client that asked
// for it before.
func TestNewTopicIsUnknownForAMoment(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		unknown := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.UnknownTopicOrPartition, Count: 3})
		s := connect(t, configFor(c)).Sink(orders())
		continueTo(t, s, 0, 2)
		if unknown.Hits() != 3 {
			t.Errorf("the fault was met %d times", unknown.Hits())
		}
		// It ends if it stays so.
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.UnknownTopicOrPartition, Count: -1})
		_, err := s.Resume(t.Context())
		wantError(t, err, false, kerr.UnknownTopicOrPartition, "resume")
	})
}

// The feeds of a cluster go on while a broker is frozen that leads no partition of theirs. kadm
// lists the offsets of all partitions of a topic, so it would wait for each broker that leads
// one of the checkpoint topic.
func TestFeedDependsOnTheLeadersOfItsPartitionsOnly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders(), kfake.NumBrokers(2))
		commit(t, s, 0, 1)
		own := beside(t, c)
		for p := range int32(kafka.CheckpointPartitions) {
			leader := int32(1)
			if p == own.Partition {
				leader = 0
			}
			must.Succeed(t, c.MoveTopicPartition(own.Topic, p, leader))
		}
		must.Succeed(t, c.MoveTopicPartition("shop.orders", 0, 0))
		commit(t, s, 1, 2) // learns the leaders
		s.AwaitEnd(t)
		var asked atomic.Int64
		c.ControlKey(kmsg.ListOffsets.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if c.CurrentNode() == 1 {
				asked.Add(1)
			}
			return nil, nil, false
		})
		resumeAndCommit(t, s, 2, 3)
		s.AwaitEnd(t)
		commit(t, s, 3, 4)
		s.AwaitEnd(t)
		if n := asked.Load(); n != 0 {
			t.Errorf("the other broker was asked for offsets %d times", n)
		}
		wantFeed(t, s, 4)
	})
}

// hold stops the first such request at the broker until it is let go.
func hold(c *kfake.Cluster, key kmsg.Key, which func(kmsg.Request) bool) (held <-chan struct{}, release func()) {
	arrived, gate := make(chan struct{}), make(chan struct{})
	var met atomic.Bool
	c.ControlKey(key.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if !which(r) || met.Swap(true) {
			return nil, nil, false
		}
		c.SleepControl(func() {
			close(arrived)
			<-gate
		})
		return nil, nil, false
	})
	return arrived, func() { close(gate) }
}

func TestCommitThatArrivesAfterItsSuccessorIsRefused(t *testing.T) {
	t.Parallel()
	for name, patience := range map[string]time.Duration{"its writer waits": 20 * time.Second, "its writer has given up": 3 * time.Second} {
		t.Run(name, bubbled(func(t *testing.T) {
			c := startCluster(t)
			slow, quick := configFor(c), configFor(c)
			slow.Timeout = patience
			s, other := connect(t, slow).Sink(orders()), connect(t, quick).Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			held, release := hold(c, kmsg.EndTxn, func(r kmsg.Request) bool { return r.(*kmsg.EndTxnRequest).Commit })
			failed := make(chan error, 1)
			go func() { failed <- s.Commit(t.Context(), sinktest.Entities(900, 3), sinktest.At(5)) }()
			<-held
			is := checkpoint.ErrConflict
			if patience < quick.Timeout {
				is = nil
				wantError(t, <-failed, false, nil, "no answer from Kafka at 127.0.0.1:")
			}
			// The other copy aborts the open transaction, because its copy may be dead.
			wantCount(t, other, 2)
			commit(t, other, 2, 4)
			release()
			if is != nil {
				wantError(t, <-failed, false, is)
			}
			wantFeed(t, other, 4)
			continueTo(t, s, 4, 5)
		}))
	}
}

func TestCommitTakesPlaceBetweenTheLookAndTheFence(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		s, other := connect(t, configFor(c)).Sink(orders()), connect(t, configFor(c)).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		resume(t, other)
		held, release := hold(c, kmsg.InitProducerID, takes(transactionalID))
		failed := make(chan error, 1)
		go func() { failed <- other.Commit(t.Context(), sinktest.Entities(900, 3), sinktest.At(5)) }()
		<-held
		commit(t, s, 2, 4)
		release()
		wantError(t, <-failed, false, checkpoint.ErrConflict)
		// It has aborted its open transaction, so that it does not hold other copies back.
		if p := c.PartitionInfo("shop.orders", 0); p.LastStableOffset != p.HighWatermark {
			t.Errorf("the last stable offset is %d of %d", p.LastStableOffset, p.HighWatermark)
		}
		wantFeed(t, s, 4)
		continueTo(t, other, 4, 5)
	})
}

// takes reports whether a request initializes a transactional ID.
func takes(id string) func(kmsg.Request) bool {
	return func(r kmsg.Request) bool { return *r.(*kmsg.InitProducerIDRequest).TransactionalID == id }
}

// A sink has one client that commits, or none.
func TestClientsThatCommitAreClosed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		conn := connect(t, configFor(c))
		s, other := conn.Sink(orders()), connect(t, configFor(c)).Sink(orders())
		want := func(n int, when string) {
			t.Helper()
			if got := conn.Producers(); got != n {
				t.Errorf("%d clients %s, want %d", got, when, n)
			}
		}
		resume(t, s)
		want(0, "before the first commit")
		commit(t, s, 0, 1)
		commit(t, s, 1, 2)
		resume(t, s)
		want(1, "at work")
		resumeAndCommit(t, other, 2, 3)
		resume(t, s)
		want(0, "after another copy's commit")
		commit(t, s, 3, 4)
		large := sinktest.Entities(4, 1)
		large[0].Body = make([]byte, 2<<20)
		wantError(t, s.Commit(t.Context(), large, sinktest.At(5)), true, sink.ErrTooLarge)
		want(0, "after a commit that failed")
		must.Succeed(t, s.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(4))))
		want(0, "after the place was moved")
		resumeAndCommit(t, s, 4, 5)
		want(1, "at work again")
		s.Close()
		want(0, "after it was closed")
	})
}

// The checkpoint is too large, and not an entity, which would be skipped for it.
func TestCheckpointIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit string
		size  int
	}{
		"for its topic": {"2000", 3000},
		"for any topic": {"5000000", 1 << 20},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			c := startCluster(t)
			must.Succeed(t, c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact", "max.message.bytes": test.limit}))
			s := connect(t, configFor(c)).Sink(orders())
			resume(t, s)
			large := sinktest.At(2)
			large.Cursor = make([]byte, test.size)
			_, _ = rand.NewChaCha8([32]byte{}).Read(large.Cursor) // which never fails, and cannot be compressed
			err := s.Commit(t.Context(), sinktest.Entities(0, 2), large)
			wantError(t, err, true, nil, "the checkpoint is too large", "--topic feedbridge.checkpoints --add-config max.message.bytes=1048588'", "'feedbridge checkpoint set orders'")
			if errors.Is(err, sink.ErrTooLarge) {
				t.Errorf("%v is about an entity", err)
			}
			continueTo(t, s, 0, 2)
		}))
	}
}

// A partition with too few replicas in sync takes no markers of transactions either.
func TestTooFewReplicasInSync(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		must.Succeed(t, c.CreateTopic("shop.orders", 1, map[string]string{"min.insync.replicas": "2"}))
		cfg := configWithin(c, time.Second)
		begin(t, c, "someone's", &kgo.Record{Topic: "shop.orders", Value: []byte("open")})
		_, err := connect(t, cfg).Sink(orders()).Resume(t.Context())
		wantError(t, err, false, nil, "partition 0 of shop.orders has 1 replicas in sync, and min.insync.replicas is 2; are brokers down?")
	})
}
