package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// long is a time after which a producer that was not used is closed.
const long = 3 * time.Minute

// requestLog has the keys of the requests that a cluster gets for a sink to commit.
type requestLog struct {
	mu   sync.Mutex
	keys []kmsg.Key
}

// logRequests begins to log the requests that initialize a transactional id or describe a
// transaction.
func (v *virtualCluster) logRequests() *requestLog {
	l := &requestLog{}
	for _, key := range []kmsg.Key{kmsg.InitProducerID, kmsg.DescribeTransactions} {
		v.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			v.KeepControl()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.keys = append(l.keys, key)
			return nil, nil, false
		})
	}
	return l
}

// wantRequests compares the requests since the last call.
func (l *requestLog) wantRequests(t *testing.T, when string, want ...kmsg.Key) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.keys, want) {
		t.Errorf("the requests %s are %v, want %v", when, l.keys, want)
	}
	l.keys = nil
}

// newConn returns a connection to the cluster.
func (v *virtualCluster) newConn(t *testing.T) *kafka.Conn {
	t.Helper()
	return kafka.ConnectVia(t, configFor(v.Cluster), slog.New(slog.DiscardHandler), v.newLink().dial)
}

// countedConn counts itself while it is open.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// Feeds that do not commit have no client and no connection of their own. Their next commit opens
// them again.
func TestIdleFeedsHaveNoProducer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		const feeds = 30
		var connections atomic.Int64
		dial := v.newLink().dial
		conn := kafka.ConnectVia(t, configFor(v.Cluster), slog.New(slog.DiscardHandler), func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			connections.Add(1)
			return &countedConn{Conn: c, open: &connections}, nil
		})
		var sinks []*kafka.Sink
		for n := range feeds {
			to := orders()
			to.Name = fmt.Sprintf("shop.feed-%d", n)
			s := conn.Sink(to)
			resumeAndCommit(t, s, 0, 2)
			sinks = append(sinks, s)
		}
		if n, open := conn.Producers(), connections.Load(); n != feeds || open < feeds {
			t.Fatalf("%d producers and %d connections, want one for each of %d feeds", n, open, feeds)
		}
		time.Sleep(long)
		if n := conn.Producers(); n != 0 {
			t.Errorf("%d producers of idle feeds are open", n)
		}
		if open := connections.Load(); open > 3 { // of the client that all feeds share
			t.Errorf("%d connections are open", open)
		}
		for _, s := range sinks {
			commit(t, s, 2, 4)
		}
		if n := conn.Producers(); n != feeds {
			t.Errorf("%d producers after the next commits, want %d", n, feeds)
		}
		for _, s := range sinks {
			wantFeed(t, s, 4)
		}
	})
}

// Only a commit initializes the transactional id: neither time nor a Resume of an idle copy
// fences anybody.
func TestIdleCopyInitializesItsIDInACommitOnly(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		s := v.newConn(t).Sink(orders())
		requests := v.logRequests()
		resumeAndCommit(t, s, 0, 1)
		commit(t, s, 1, 2)
		requests.wantRequests(t, "of two commits", kmsg.InitProducerID)
		time.Sleep(long)
		resume(t, s)
		time.Sleep(long)
		resume(t, s)
		requests.wantRequests(t, "while the feed is idle")
		commit(t, s, 2, 3)
		commit(t, s, 3, 4)
		requests.wantRequests(t, "of two commits after that", kmsg.InitProducerID)
		wantFeed(t, s, 4)
	})
}

// A copy whose producer was closed because it was idle has no right that it did not have with it.
func TestIdleCopyIsFencedByTheCopyThatTookOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		s, other := v.newConn(t).Sink(orders()), v.newConn(t).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		resume(t, other)
		time.Sleep(long)
		commit(t, other, 2, 4)
		requests := v.logRequests()
		// The stale copy finds out before it initializes the id, so it does not disturb the other.
		wantError(t, s.Commit(t.Context(), sinktest.Entities(2, 3), sinktest.At(5)), false, checkpoint.ErrConflict)
		commit(t, other, 4, 5)
		requests.wantRequests(t, "after the takeover")
		wantFeed(t, other, 5)
		// The other way round: this copy comes back, and the other one was never idle for long.
		wantCount(t, s, 5)
		commit(t, s, 5, 6)
		wantError(t, other.Commit(t.Context(), sinktest.Entities(5, 3), sinktest.At(8)), false, checkpoint.ErrConflict)
		wantFeed(t, s, 6)
	})
}

// Two copies are idle, and both find the same entities. Whichever initializes the id last wins, or
// the one that commits before it does.
func TestIdleCopiesRaceForANewEntity(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		copies := []*kafka.Sink{v.newConn(t).Sink(orders()), v.newConn(t).Sink(orders())}
		for n := range 10 {
			for _, s := range copies {
				wantCount(t, s, uint64(n))
			}
			time.Sleep(long)
			var won atomic.Int64
			var all sync.WaitGroup
			for _, s := range copies {
				all.Go(func() {
					if s.Commit(t.Context(), sinktest.Entities(n, 1), sinktest.At(n+1)) == nil {
						won.Add(1)
					}
				})
			}
			all.Wait()
			switch won.Load() {
			case 0: // each has fenced the other
				resumeAndCommit(t, copies[0], n, n+1)
			case 2:
				t.Fatalf("both copies have committed entity %d", n)
			}
		}
		wantFeed(t, copies[0], 10)
	})
}

// Whether the last commit hangs is found out before the id is initialized again: from then on the
// cluster does not know how it has ended. See hung_transaction.go.
func TestIdleCopyLooksAtItsLastCommitFirst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, v *virtualCluster) {
		s := v.newConn(t).Sink(orders())
		resumeAndCommit(t, s, 0, 2)
		s.Doubt()
		time.Sleep(long)
		requests := v.logRequests()
		commit(t, s, 2, 4)
		requests.wantRequests(t, "of the commit", kmsg.DescribeTransactions, kmsg.InitProducerID)
		// A Resume looks for itself.
		s.Doubt()
		time.Sleep(long)
		resumeAndCommit(t, s, 4, 5)
		requests.wantRequests(t, "of a commit after a Resume", kmsg.InitProducerID)
		wantFeed(t, s, 5)
	})
}
