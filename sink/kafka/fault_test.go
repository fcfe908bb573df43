package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// transactionalID is the transactional ID of the topic orders.
const transactionalID = "feedbridge.shop.orders/orders"

func TestAnswerToACommitIsLostOnce(t *testing.T) {
	t.Parallel()
	c, w := startWired(t)
	s := connect(t, configFor(c)).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 2)
	var lost atomic.Int32
	w.losing(func(key kmsg.Key) bool { return key == kmsg.EndTxn && lost.Add(1) == 1 })
	commit(t, s, 2, 4)
	if lost.Load() == 0 {
		t.Error("no answer was lost")
	}
	commit(t, s, 4, 5)
	wantFeed(t, s, 5)
}

func TestAnswerToACommitIsLostForGood(t *testing.T) {
	t.Parallel()
	c, w := startWired(t)
	s := connect(t, configFor(c)).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 2)
	w.losing(func(key kmsg.Key) bool { return key == kmsg.EndTxn })
	wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4), nil), false, nil, "commit")
	wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4), nil), false, nil, "has not resumed since its last error")
	w.losing(nil)
	// The commit has taken place, and only the checkpoint shows it.
	if cp := resume(t, s); cp.Count != 4 {
		t.Errorf("checkpoint %+v, want that of the commit whose answer was lost", cp)
	}
	commit(t, s, 4, 5)
	wantFeed(t, s, 5)
}

// The caller gives up while the cluster ends the transaction. The commit takes place, and the
// sink waits for the answer.
func TestCallerCancelsWhileTheTransactionEnds(t *testing.T) {
	t.Parallel()
	s, c, _ := open(t, orders())
	commit(t, s, 0, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.ControlKey(kmsg.EndTxn.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		time.Sleep(200 * time.Millisecond) // for a client that stops waiting
		return nil, nil, false
	})
	if err := s.Commit(ctx, sinktest.Entities(2, 2), sinktest.At(4), nil); err != nil || ctx.Err() == nil {
		t.Fatalf("the commit returned %v, and the caller has cancelled: %v", err, ctx.Err())
	}
	commit(t, s, 4, 5)
	wantFeed(t, s, 5)
}

// If the outcome of a commit is unknown, the sink does not initialize the transactional id:
// that would make the cluster forget the outcome of a hung transaction.
func TestAnswerToACommitIsLostAndNobodyTells(t *testing.T) {
	t.Parallel()
	c, w := startWired(t)
	cfg := configFor(c)
	cfg.Timeout = 5 * time.Second
	s := connect(t, cfg).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 2)
	var taken atomic.Int32
	w.losing(func(key kmsg.Key) bool {
		if key == kmsg.InitProducerID {
			taken.Add(1)
		}
		return key == kmsg.EndTxn || key == kmsg.DescribeTransactions
	})
	wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4), nil), false, nil, "commit")
	if n := taken.Load(); n > 0 {
		t.Errorf("the id was taken %d times", n)
	}
	w.losing(nil)
	if cp := resume(t, s); cp.Count != 4 {
		t.Errorf("checkpoint %+v, want that of the commit whose answer was lost", cp)
	}
	commit(t, s, 4, 5)
	wantFeed(t, s, 5)
}

// A commit that the cluster has confirmed can be gone all the same, if it hung and
// was aborted. Its entities are read again, and are no duplicates then.
func TestConfirmedCommitIsGone(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	cfg := configFor(c)
	cfg.Timeout = 20 * time.Second
	s := connect(t, cfg).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 2)
	c.ControlKey(kmsg.EndTxn.Int16(), confirm)
	commit(t, s, 2, 4)
	if cp := resume(t, s); cp.Count != 2 {
		t.Errorf("checkpoint %+v, want that of the commit before", cp)
	}
	for _, e := range sinktest.Entities(2, 2) {
		if !s.IDs().Add(e.ID) {
			t.Errorf("%s counts as one that the topic holds", e.ID)
		}
	}
	commit(t, s, 2, 5)
	wantFeed(t, s, 5)
}

// So it is if another copy has gone on meanwhile, with fewer entities or with more.
func TestConfirmedCommitIsGoneAndAnotherCopyHasGoneOn(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]int{"not as far": 4, "further": 8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t)
			cfg := configFor(c)
			cfg.Timeout = 20 * time.Second
			s, other := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
			resume(t, s)
			commit(t, s, 0, 2)
			c.ControlKey(kmsg.EndTxn.Int16(), confirm)
			commit(t, s, 2, 6)
			resume(t, other)
			// Other entities than those that are gone, as the feed has them by now.
			if err := other.Commit(t.Context(), sinktest.Entities(100, to-2), sinktest.At(to), nil); err != nil {
				t.Fatal(err)
			}
			wantError(t, s.Commit(t.Context(), sinktest.Entities(6, 1), sinktest.At(7), nil), false, checkpoint.ErrConflict)
			if cp := resume(t, s); cp.Count != uint64(to) {
				t.Errorf("checkpoint %+v, want that of the other copy", cp)
			}
			for _, e := range sinktest.Entities(2, 4) {
				if !s.IDs().Add(e.ID) {
					t.Errorf("%s counts as one that the topic holds", e.ID)
				}
			}
			if s.IDs().Add("nothing") && s.IDs().Add(sinktest.Entities(100, 1)[0].ID) {
				t.Error("the other copy's entities are not held")
			}
		})
	}
}

// The cluster loses the last commits of another copy, and records that were aborted since have
// their offsets.
func TestCommitsOfAnotherCopyAreGone(t *testing.T) {
	t.Parallel()
	dir, saved := t.TempDir(), t.TempDir()
	port := freePort(t)
	c := startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
	cfg := configFor(c)
	s, other := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 2)
	c.Close()
	if err := os.CopyFS(saved, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	c = startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
	resume(t, other)
	commit(t, other, 2, 3)
	commit(t, other, 3, 4)
	resume(t, s)
	c.Close()
	c = startCluster(t, kfake.DataDir(saved), kfake.Ports(port))
	var records []*kgo.Record
	for range 9 {
		records = append(records, &kgo.Record{Topic: "shop.orders", Value: []byte("aborted")})
	}
	if err := begin(t, c, "someone's", records...).EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	if cp := resume(t, s); cp.Count != 2 {
		t.Errorf("checkpoint %+v, want the one that is left", cp)
	}
	for _, e := range sinktest.Entities(2, 2) {
		if !s.IDs().Add(e.ID) {
			t.Errorf("%s counts as one that the topic holds", e.ID)
		}
	}
	commit(t, s, 2, 5)
	wantFeed(t, s, 5)
}

// confirm confirms the end of a transaction that goes on.
func confirm(r kmsg.Request) (kmsg.Response, error, bool) {
	req := r.(*kmsg.EndTxnRequest)
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch
	return resp, nil, true
}

func TestNewClusterHasNoCoordinatorYet(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	s := connect(t, configFor(c)).Sink(orders())
	resume(t, s)
	asked := 0
	c.ControlKey(kmsg.FindCoordinator.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked++; asked > 2 {
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
	if err := s.Check(t.Context()); err != nil || asked < 3 {
		t.Errorf("after %d requests: %v", asked, err)
	}
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
		for cluster, start := range map[string]func() *kfake.Cluster{
			"Kafka 4":                    func() *kfake.Cluster { return startCluster(t) },
			"transactions of version 1":  func() *kfake.Cluster { return downgraded(t) },
			"how they stand is not told": func() *kfake.Cluster { return downgraded(t, kfake.MaxVersions(kversion.V2_8_0())) },
		} {
			t.Run(name+", "+cluster, func(t *testing.T) {
				t.Parallel()
				c := start()
				cfg := configFor(c)
				cfg.Timeout = 4 * time.Second
				s, other := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
				resume(t, s)
				commit(t, s, 0, 2)
				h := c.Fault(fault)
				wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4), nil), false, nil, "commit")
				if h.Hits() == 0 {
					t.Error("the fault was not met")
				}
				// Nothing is left open that would hold readers back.
				if p := c.PartitionInfo("shop.orders", 0); p.LastStableOffset != p.HighWatermark {
					t.Errorf("the last stable offset is %d of %d", p.LastStableOffset, p.HighWatermark)
				}
				h.Remove()
				if cp := resume(t, other); cp.Count != 2 {
					t.Errorf("checkpoint %+v, want that of the commit before", cp)
				}
				resume(t, s)
				commit(t, s, 2, 4)
				wantFeed(t, s, 4)
			})
		}
	}
}

// A copy whose commit fails aborts it. By then another may have taken the id, and
// be at work.
func TestAbortLeavesAnotherCopyAlone(t *testing.T) {
	t.Parallel()
	for version := range 2 {
		t.Run(fmt.Sprintf("transactions of version %d", version+1), func(t *testing.T) {
			t.Parallel()
			c, w := startWired(t)
			if version == 0 {
				downgrade(t, c.ListenAddrs()[0])
			}
			cfg := configFor(c)
			cfg.Timeout = 3 * time.Second
			s := connect(t, cfg).Sink(orders())
			resume(t, s)
			commit(t, s, 0, 2)
			theirs := begin(t, c, transactionalID, &kgo.Record{Topic: "shop.orders", Value: []byte("under way")})
			w.losing(func(key kmsg.Key) bool { return key == kmsg.AddPartitionsToTxn || key == kmsg.Produce })
			wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4), nil), false, nil, "commit")
			w.losing(nil)
			if err := theirs.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
				t.Errorf("the other copy has lost its transaction: %v", err)
			}
		})
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t)
			cfg := configFor(c)
			cfg.Timeout = 20 * time.Second // a busy machine takes its time
			s := connect(t, cfg).Sink(orders())
			resume(t, s)
			commit(t, s, 0, 2)
			h := c.Fault(fault)
			commit(t, s, 2, 4)
			if h.Hits() == 0 {
				t.Error("the fault was not met")
			}
			commit(t, s, 4, 5)
			wantFeed(t, s, 5)
		})
	}
}

func TestLeadersAndCoordinatorsMove(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.NumBrokers(3))
	s := connect(t, configFor(c)).Sink(orders())
	resume(t, s)
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
}

// All concurrent requests for offsets are answered with NOT_LEADER. No caller gets that error.
func TestLeaderMovesWhileManyAskForOffsets(t *testing.T) {
	t.Parallel()
	const n = 8
	c := startCluster(t)
	conn := connect(t, configFor(c))
	s := conn.Sink(orders())
	resume(t, s)
	commit(t, s, 0, 2)
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
	short := configFor(c)
	short.Timeout = time.Second
	_, err := connect(t, short).Sink(orders()).Resume(t.Context())
	wantError(t, err, false, nil, "resume")
}

// The feeds of a cluster go on while a broker is frozen that leads no partition of theirs. kadm
// lists the offsets of all partitions of a topic, so it would wait for each broker that leads
// one of the checkpoint topic.
func TestFeedDependsOnTheLeadersOfItsPartitionsOnly(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.NumBrokers(2))
	s := connect(t, configFor(c)).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 1)
	own := beside(t, c)
	for p := range int32(12) {
		leader := int32(1)
		if p == own.Partition {
			leader = 0
		}
		if err := c.MoveTopicPartition(own.Topic, p, leader); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.MoveTopicPartition("shop.orders", 0, 0); err != nil {
		t.Fatal(err)
	}
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
	resume(t, s)
	commit(t, s, 2, 3)
	s.AwaitEnd(t)
	commit(t, s, 3, 4)
	s.AwaitEnd(t)
	if n := asked.Load(); n != 0 {
		t.Errorf("the other broker was asked for offsets %d times", n)
	}
	wantFeed(t, s, 4)
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t)
			slow, quick := configFor(c), configFor(c)
			slow.Timeout = patience
			s, other := connect(t, slow).Sink(orders()), connect(t, quick).Sink(orders())
			resume(t, s)
			commit(t, s, 0, 2)
			held, release := hold(c, kmsg.EndTxn, func(r kmsg.Request) bool { return r.(*kmsg.EndTxnRequest).Commit })
			failed := make(chan error, 1)
			go func() { failed <- s.Commit(t.Context(), sinktest.Entities(900, 3), sinktest.At(5), nil) }()
			<-held
			is := checkpoint.ErrConflict
			if patience < quick.Timeout {
				is = nil
				wantError(t, <-failed, false, nil, "no answer from Kafka at 127.0.0.1:")
			}
			// The other copy aborts the open transaction, because its copy may be dead.
			if cp := resume(t, other); cp.Count != 2 {
				t.Errorf("checkpoint %+v, want that of the commit before", cp)
			}
			commit(t, other, 2, 4)
			release()
			if is != nil {
				wantError(t, <-failed, false, is)
			}
			wantFeed(t, other, 4)
			resume(t, s)
			commit(t, s, 4, 5)
			wantFeed(t, s, 5)
		})
	}
}

func TestCommitTakesPlaceBetweenTheLookAndTheFence(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	s, other := connect(t, configFor(c)).Sink(orders()), connect(t, configFor(c)).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 2)
	resume(t, other)
	held, release := hold(c, kmsg.InitProducerID, takes(transactionalID))
	failed := make(chan error, 1)
	go func() { failed <- other.Commit(t.Context(), sinktest.Entities(900, 3), sinktest.At(5), nil) }()
	<-held
	commit(t, s, 2, 4)
	release()
	wantError(t, <-failed, false, checkpoint.ErrConflict)
	// It has aborted its open transaction, so that it does not hold other copies back.
	if p := c.PartitionInfo("shop.orders", 0); p.LastStableOffset != p.HighWatermark {
		t.Errorf("the last stable offset is %d of %d", p.LastStableOffset, p.HighWatermark)
	}
	wantFeed(t, s, 4)
	resume(t, other)
	commit(t, other, 4, 5)
	wantFeed(t, other, 5)
}

// takes reports whether a request initializes a transactional ID.
func takes(id string) func(kmsg.Request) bool {
	return func(r kmsg.Request) bool { return *r.(*kmsg.InitProducerIDRequest).TransactionalID == id }
}

// A commit begins when the one before is ended. While something holds the topic back, it
// asks exactly.
func TestCommitAsksWhetherTheLastOneIsEnded(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	cfg := configFor(c)
	cfg.Timeout = 5 * time.Second
	s := connect(t, cfg).Sink(orders())
	resume(t, s)
	asked := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeProducers}, Observe: true, Count: -1})
	for n := range 6 {
		commit(t, s, n, n+1)
	}
	if n := asked.Hits(); n > 0 {
		t.Errorf("asked %d times, though all was over", n)
	}
	theirs := begin(t, c, "someone's", &kgo.Record{Topic: "shop.orders", Value: []byte("torn")})
	for n := 6; n < 10; n++ {
		commit(t, s, n, n+1)
	}
	// The first of them was not held back yet.
	if n := asked.Hits(); n != 3 {
		t.Errorf("asked %d times while the topic was held back, want 3", n)
	}
	// If the outcome is unknown, it does not begin.
	silence := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeProducers}, Err: kerr.NotLeaderForPartition, Count: -1})
	wantError(t, s.Commit(t.Context(), sinktest.Entities(900, 1), sinktest.At(11), nil), false, nil, "NOT_LEADER")
	silence.Remove()
	if err := theirs.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	resume(t, s)
	commit(t, s, 10, 11)
	wantFeed(t, s, 11)
}

// The cluster is still writing the markers of the last commit. The next one waits.
func TestCommitWaitsForTheMarkersOfTheLastOne(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	s := connect(t, configFor(c)).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 2)
	c.ControlKey(kmsg.EndTxn.Int16(), confirm)
	commit(t, s, 2, 4)
	asked := 0
	c.ControlKey(kmsg.DescribeTransactions.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked++; asked > 3 {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		state := kmsg.NewDescribeTransactionsResponseTransactionState()
		state.TransactionalID, state.State = transactionalID, "PrepareCommit"
		resp.TransactionStates = append(resp.TransactionStates, state)
		return resp, nil, true
	})
	// It never ends here.
	wantError(t, s.Commit(t.Context(), sinktest.Entities(4, 1), sinktest.At(5), nil), false, nil, "is not ended in all partitions")
	if asked < 4 {
		t.Errorf("it asked %d times, want more than 3", asked)
	}
}

// The connection on which it asks is dead. It asks on another one.
func TestCommitAsksOnAnotherConnection(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]kmsg.Key{"transactions": kmsg.DescribeTransactions, "producers": kmsg.DescribeProducers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, w := startWired(t)
			cfg := configFor(c)
			cfg.Timeout = 3 * time.Second
			s := connect(t, cfg).Sink(orders())
			resume(t, s)
			commit(t, s, 0, 2)
			s.AwaitEnd(t)
			s.Doubt()
			var muted atomic.Int32
			w.muting(func(k kmsg.Key) bool { return k == key && muted.Add(1) == 1 })
			commit(t, s, 2, 4)
			if muted.Load() < 2 {
				t.Errorf("it asked %d times", muted.Load())
			}
			wantFeed(t, s, 4)
		})
	}
}

// A sink has one client that commits, or none.
func TestClientsThatCommitAreClosed(t *testing.T) {
	t.Parallel()
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
	resume(t, other)
	commit(t, other, 2, 3)
	resume(t, s)
	want(0, "after another copy's commit")
	commit(t, s, 3, 4)
	large := sinktest.Entities(4, 1)
	large[0].Body = make([]byte, 2<<20)
	wantError(t, s.Commit(t.Context(), large, sinktest.At(5), nil), true, sink.ErrTooLarge)
	want(0, "after a commit that failed")
	if err := s.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(4))); err != nil {
		t.Fatal(err)
	}
	want(0, "after the place was moved")
}

// begin leaves a transaction open that has a record on a partition.
func begin(t testing.TB, c *kfake.Cluster, id string, records ...*kgo.Record) *kgo.Client {
	t.Helper()
	cl, _ := admin(t, c, kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return cl
}

// beside is a record beside the checkpoint of orders.
func beside(t testing.TB, c *kfake.Cluster) *kgo.Record {
	t.Helper()
	for _, p := range c.PartitionInfos("feedbridge.checkpoints") {
		if p.HighWatermark > 0 {
			return &kgo.Record{Topic: "feedbridge.checkpoints", Partition: p.Partition, Key: []byte("shop.others/others"), Value: checkpoint.Encode(sinktest.At(1))}
		}
	}
	t.Fatal("there is no checkpoint")
	return nil
}

func TestCopyDiedWithinATransaction(t *testing.T) {
	t.Parallel()
	for name, records := range map[string]func(*kgo.Record) []*kgo.Record{
		"with entities alone": func(*kgo.Record) []*kgo.Record {
			return []*kgo.Record{{Topic: "shop.orders", Value: []byte("torn")}}
		},
		"with its checkpoint": func(cp *kgo.Record) []*kgo.Record {
			cp.Key = []byte("shop.orders/orders")
			return []*kgo.Record{{Topic: "shop.orders", Value: []byte("torn")}, cp}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t)
			cfg := configFor(c)
			s := connect(t, cfg).Sink(orders())
			resume(t, s)
			commit(t, s, 0, 2)
			begin(t, c, transactionalID, records(beside(t, c))...)
			if cp := resume(t, s); cp.Count != 2 {
				t.Errorf("checkpoint %+v, want that of the commit", cp)
			}
			commit(t, s, 2, 3)
			wantFeed(t, s, 3)
		})
	}
}

func TestTransactionOfAnotherProgramHoldsTheCheckpointsBack(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	cfg := configFor(c)
	cfg.Timeout = 5 * time.Second
	living, idle := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
	resume(t, living)
	commit(t, living, 0, 2)
	resume(t, idle)
	theirs := begin(t, c, "someone's", beside(t, c))
	// Nobody can see this commit until theirs has ended.
	commit(t, living, 2, 4)
	wantError(t, idle.Commit(t.Context(), sinktest.Entities(900, 2), sinktest.At(4), nil), false, nil,
		"of feedbridge.checkpoints is held back by a transaction of \"someone's\"")
	_, err := idle.Resume(t.Context())
	wantError(t, err, false, nil, "is held back by a transaction of \"someone's\"", "at its transaction timeout")
	if err := theirs.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	if cp := resume(t, idle); cp.Count != 4 {
		t.Errorf("checkpoint %+v, want the newest", cp)
	}
	commit(t, idle, 4, 5)
	wantFeed(t, idle, 5)
}

func TestResumeLeavesALivingCopyAlone(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	cfg := configFor(c)
	living, idle := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
	resume(t, living)
	ids := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Observe: true, Count: -1})
	for n := range 10 {
		commit(t, living, n, n+1)
		if cp := resume(t, idle); cp.Count != uint64(n+1) {
			t.Errorf("checkpoint %+v, want the newest", cp)
		}
		if idle.IDs().Len() != n+1 {
			t.Errorf("%d IDs, want %d", idle.IDs().Len(), n+1)
		}
		resume(t, living)
	}
	// Another feed's transaction that hangs is no reason either.
	theirs := begin(t, c, "someone's", beside(t, c))
	before := ids.Hits()
	short := cfg
	short.Timeout = 3 * time.Second
	_, err := connect(t, short).Sink(orders()).Resume(t.Context())
	wantError(t, err, false, nil, "is held back")
	if got := ids.Hits(); got != before {
		t.Errorf("%d producers came while another's transaction hung", got-before)
	}
	_ = theirs.EndTransaction(t.Context(), kgo.TryAbort)
	commit(t, living, 10, 11)
	// One for all commits, and one for the transaction that hung.
	if got := ids.Hits(); got != 2 {
		t.Errorf("%d producers came, want 2", got)
	}
	wantFeed(t, idle, 11)
}

func TestBrokerRestartsWithATransactionPending(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	c := startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
	cfg := configFor(c)
	cfg.Timeout = 15 * time.Second
	s := connect(t, cfg).Sink(orders())
	resume(t, s)
	commit(t, s, 0, 2)
	begin(t, c, transactionalID, &kgo.Record{Topic: "shop.orders", Value: []byte("torn")}, beside(t, c))
	c.Close()
	_, err := s.Resume(t.Context())
	wantError(t, err, false, nil, "no Kafka broker answers at 127.0.0.1:", "connection refused; is it running?")
	startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
	for _, s := range []*kafka.Sink{s, connect(t, cfg).Sink(orders())} {
		cp := resume(t, s)
		commit(t, s, int(cp.Count), int(cp.Count)+1)
	}
	wantFeed(t, s, 4)
}

// The checkpoint is too large, and not an entity, which would be skipped for it.
func TestCheckpointIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit string
		size  int
		want  []string
	}{
		"for its topic": {"2000", 3000, []string{"which topic feedbridge.checkpoints does not take; run 'kafka-configs.sh", "--topic feedbridge.checkpoints --add-config max.message.bytes=1048588'"}},
		"for any topic": {"5000000", 1 << 20, []string{"and may have 1000000", "'feedbridge checkpoint set orders'"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t)
			if err := c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact", "max.message.bytes": test.limit}); err != nil {
				t.Fatal(err)
			}
			s := connect(t, configFor(c)).Sink(orders())
			resume(t, s)
			large := sinktest.At(2)
			large.Cursor = make([]byte, test.size)
			_, _ = rand.NewChaCha8([32]byte{}).Read(large.Cursor) // which never fails, and cannot be compressed
			err := s.Commit(t.Context(), sinktest.Entities(0, 2), large, nil)
			wantError(t, err, true, nil, append(test.want, "the checkpoint is too large: it has ")...)
			if errors.Is(err, sink.ErrTooLarge) {
				t.Errorf("%v is about an entity", err)
			}
			resume(t, s)
			commit(t, s, 0, 2)
			wantFeed(t, s, 2)
		})
	}
}

// A partition with too few replicas in sync takes no markers of transactions either.
func TestTooFewReplicasInSync(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	if err := c.CreateTopic("shop.orders", 1, map[string]string{"min.insync.replicas": "2"}); err != nil {
		t.Fatal(err)
	}
	cfg := configFor(c)
	cfg.Timeout = time.Second
	begin(t, c, "someone's", &kgo.Record{Topic: "shop.orders", Value: []byte("open")})
	_, err := connect(t, cfg).Sink(orders()).Resume(t.Context())
	wantError(t, err, false, nil, "partition 0 of shop.orders has 1 replicas in sync, and min.insync.replicas is 2; are brokers down?")
}
