package kafka_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// A commit begins when the one before is ended. While something holds the topic back, it
// asks exactly.
func TestCommitAsksWhetherTheLastOneIsEnded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t)
		cfg := configWithin(c, 5*time.Second)
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
		wantError(t, s.Commit(t.Context(), sinktest.Entities(900, 1), sinktest.At(11)), false, nil, "NOT_LEADER")
		silence.Remove()
		must.Succeed(t, theirs.EndTransaction(t.Context(), kgo.TryAbort))
		continueTo(t, s, 10, 11)
	})
}

// The cluster is still writing the markers of the last commit. The next one waits.
func TestCommitWaitsForTheMarkersOfTheLastOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, c, _ := open(t, orders())
		commit(t, s, 0, 2)
		c.ControlKey(kmsg.EndTxn.Int16(), confirm)
		commit(t, s, 2, 4)
		var asked atomic.Int32
		tell(c, func(string) *kadm.DescribedTransaction {
			if asked.Add(1) > 3 {
				return nil
			}
			return &kadm.DescribedTransaction{State: "PrepareCommit"}
		})
		// It never ends here.
		wantError(t, s.Commit(t.Context(), sinktest.Entities(4, 1), sinktest.At(5)), false, nil, "is not ended in all partitions")
		if n := asked.Load(); n < 4 {
			t.Errorf("it asked %d times, want more than 3", n)
		}
	})
}

// A busy broker takes seconds for the markers. If every feed asked twenty times a second, it would take
// longer.
func TestCommitSeldomAsksForSlowMarkers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		s := kafka.ConnectVia(t, configFor(v.Cluster), silent, v.newLink().dial).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		v.ControlKey(kmsg.EndTxn.Int16(), confirm)
		commit(t, s, 2, 4)
		began := time.Now()
		var asked atomic.Int32
		tell(v.Cluster, func(string) *kadm.DescribedTransaction {
			if asked.Add(1); time.Since(began) > 5*time.Second {
				return nil
			}
			return &kadm.DescribedTransaction{State: "PrepareCommit"}
		})
		wantError(t, s.Commit(t.Context(), sinktest.Entities(4, 1), sinktest.At(5)), false, nil, "is not ended in all partitions")
		if n := asked.Load(); n < 5 || n > 25 {
			t.Errorf("it asked %d times in 5s, want 5 to 25", n)
		}
	})
}

// The connection on which it asks is dead. It asks on another one.
func TestCommitAsksOnAnotherConnection(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]kmsg.Key{"transactions": kmsg.DescribeTransactions, "producers": kmsg.DescribeProducers} {
		t.Run(name, bubbled(func(t *testing.T) {
			c, w := startWired(t)
			cfg := configWithin(c, 3*time.Second)
			s := connect(t, cfg).Sink(orders())
			resumeAndCommit(t, s, 0, 2)
			s.AwaitEnd(t)
			s.Doubt()
			var muted atomic.Int32
			w.muting(func(k kmsg.Key) bool { return k == key && muted.Add(1) == 1 })
			commit(t, s, 2, 4)
			if muted.Load() < 2 {
				t.Errorf("it asked %d times", muted.Load())
			}
			wantFeed(t, s, 4)
		}))
	}
}
