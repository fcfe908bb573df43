package kafka_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// begin leaves a transaction open that has a record on a partition.
func begin(t testing.TB, c *kfake.Cluster, id string, records ...*kgo.Record) *kgo.Client {
	t.Helper()
	cl, _ := admin(t, c, kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	must.Succeed(t, cl.BeginTransaction())
	must.Succeed(t, cl.ProduceSync(t.Context(), records...).FirstErr())
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
		t.Run(name, bubbled(func(t *testing.T) {
			c := startCluster(t)
			cfg := configFor(c)
			s := connect(t, cfg).Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			begin(t, c, transactionalID, records(beside(t, c))...)
			wantCount(t, s, 2)
			commitAndCheck(t, s, 2, 3)
		}))
	}
}

func TestTransactionOfAnotherProgramHoldsTheCheckpointsBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		cfg := configWithin(c, 5*time.Second)
		living, idle := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
		resumeAndCommit(t, living, 0, 2)
		resume(t, idle)
		theirs := begin(t, c, "someone's", beside(t, c))
		// Nobody can see this commit until theirs has ended.
		commit(t, living, 2, 4)
		wantError(t, idle.Commit(t.Context(), sinktest.Entities(900, 2), sinktest.At(4)), false, nil,
			"of feedbridge.checkpoints is held back by a transaction of \"someone's\"")
		_, err := idle.Resume(t.Context())
		wantError(t, err, false, nil, "is held back by a transaction of \"someone's\"", "at its transaction timeout")
		must.Succeed(t, theirs.EndTransaction(t.Context(), kgo.TryAbort))
		wantCount(t, idle, 4)
		commitAndCheck(t, idle, 4, 5)
	})
}

// Another copy commits while Resume reads the IDs. Resume returns the checkpoint that they belong to: with
// the one before, the entities between would count as repeated by the feed.
func TestCommitTakesPlaceWhileIDsAreRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		busy, c, more := open(t, orders())
		commit(t, busy, 0, 2)
		late := more()
		held, release := hold(c, kmsg.ListOffsets, func(r kmsg.Request) bool {
			return slices.ContainsFunc(r.(*kmsg.ListOffsetsRequest).Topics, func(t kmsg.ListOffsetsRequestTopic) bool { return t.Topic == "shop.orders" })
		})
		go func() {
			defer release()
			<-held
			if err := busy.Commit(t.Context(), sinktest.Entities(2, 2), sinktest.At(4)); err != nil {
				t.Error(err)
			}
		}()
		if cp, n := resume(t, late), late.IDs().Len(); cp.Count != 4 || n != 4 {
			t.Errorf("the checkpoint counts %d entities, and %d IDs are known, want 4 of both", cp.Count, n)
		}
	})
}

func TestResumeLeavesALivingCopyAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		cfg := configFor(c)
		living, idle := connect(t, cfg).Sink(orders()), connect(t, cfg).Sink(orders())
		resume(t, living)
		ids := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Observe: true, Count: -1})
		for n := range 10 {
			commit(t, living, n, n+1)
			wantCount(t, idle, uint64(n+1))
			wantIDs(t, idle, n+1)
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
	})
}

func TestBrokerRestartsWithATransactionPending(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		port := freePort(t)
		c := startCluster(t, kfake.DataDir(dir), kfake.Ports(port))
		cfg := configWithin(c, 15*time.Second)
		s := connect(t, cfg).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
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
	})
}

// While a transaction is open in the topic or among the dead letters, no copy commits with an id that
// it has just taken, and none resumes: it may be the feed's own, which hangs.
func TestOpenTransactionHoldsEveryTopicBack(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"shop.orders", deadTopic} {
		t.Run(topic, bubbled(func(t *testing.T) {
			c := startCluster(t)
			cfg := configWithin(c, 2*time.Second)
			s := connect(t, cfg).Sink(ordersWithDead())
			resume(t, s)
			theirs := begin(t, c, "someone's", &kgo.Record{Topic: topic, Value: []byte("torn")})
			held := "partition 0 of " + topic + " is held back by a transaction of \"someone's\""
			wantError(t, s.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2)), false, nil, held)
			_, err := s.Resume(t.Context())
			wantError(t, err, false, nil, held)
			must.Succeed(t, theirs.EndTransaction(t.Context(), kgo.TryAbort))
			continueTo(t, s, 0, 2)
		}))
	}
}

// The coordinator gives a transactional id another producer id when the epochs are used up. A
// transaction of the old one could no longer be ended if it hung then. So the sink has it replaced
// some epochs before that, while no transaction is open.
func TestNoTransactionHasTheLastEpochsOfAProducerID(t *testing.T) {
	t.Parallel()
	const spare, left = 16, 40
	for name, takeover := range map[string]int{"a copy goes on": 0, "a copy takes over": left - spare} {
		t.Run(name, bubbled(func(t *testing.T) {
			c := startCluster(t)
			first, s, other := connect(t, configFor(c)).Sink(orders()), connect(t, configFor(c)).Sink(orders()), connect(t, configFor(c)).Sink(orders())
			resumeAndCommit(t, first, 0, 1)
			first.AwaitEnd(t)
			cl, _ := admin(t, c)
			for epoch := int16(0); epoch < math.MaxInt16-left; {
				req := kmsg.NewPtrInitProducerIDRequest()
				id := transactionalID
				req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
				resp, err := req.RequestWith(t.Context(), cl)
				if err != nil || resp.ErrorCode != 0 {
					t.Fatal(err, kerr.ErrorForCode(resp.ErrorCode))
				}
				epoch = resp.ProducerEpoch
			}
			ended := map[int64]int{}
			c.ControlKey(kmsg.EndTxn.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				req := r.(*kmsg.EndTxnRequest)
				ended[req.ProducerID]++
				if req.ProducerEpoch > math.MaxInt16-spare {
					t.Errorf("a transaction has epoch %d", req.ProducerEpoch)
				}
				return nil, nil, false
			})
			resume(t, s)
			for n := 1; n < left; n++ {
				commit(t, s, n, n+1)
				if n == takeover {
					resume(t, other)
					s, other = other, s
				}
			}
			if len(ended) != 2 {
				t.Errorf("transactions by producer id: %v, want two ids", ended)
			}
			wantFeed(t, s, left)
		}))
	}
}
