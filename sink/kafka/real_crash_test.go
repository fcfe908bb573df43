//go:build integration

package kafka_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// A broker is killed in the middle of commits, and comes back. The sink that was
// at work goes on where it was, and so does a new one.
func TestRealBrokerIsKilled(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	topic := ordersIn(t)
	cfg := atReal(b.Addr())
	cfg.Timeout = 2 * time.Second
	s := connect(t, cfg).Sink(topic)

	var committed atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for ctx.Err() == nil {
			err := copyUntil(ctx, s, &committed)
			if errors.Is(err, feed.ErrPermanent) {
				t.Errorf("an error that would stop the feed: %v", err)
				return
			}
		}
	})
	for range 4 {
		before := committed.Load()
		until(t, func() bool { return committed.Load() > before+200 })
		b.Kill()
		must.Succeed(t, b.Restart(t.Context()))
	}
	before := committed.Load()
	until(t, func() bool { return committed.Load() > before+200 })
	stop()
	writer.Wait()

	s = connect(t, atReal(b.Addr())).Sink(topic)
	n := int(resume(t, s).Count)
	commitAndCheck(t, s, n, n+5)
	if got := len(kafkatest.ReadJava(t, b, topic.Name)); got != n+5 {
		t.Errorf("the Java client reads %d messages, want %d", got, n+5)
	}
}

// copyUntil commits the feed, a few entities at a time, until ctx ends or something
// fails. committed is how many entities are.
func copyUntil(ctx context.Context, s *kafka.Sink, committed *atomic.Int64) error {
	cp, err := s.Resume(ctx)
	for n := int(cp.Count); err == nil; n += 10 {
		committed.Store(int64(n))
		err = s.Commit(ctx, sinktest.Entities(n, 10), sinktest.At(n+10))
	}
	return err
}

// A copy that died within a commit has left its transaction open. Its successor
// ends it, and does not wait for its timeout, which is longer than the test.
func TestRealTransactionOfADeadCopyIsEnded(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	topic := ordersIn(t)
	cfg := atReal(b.Addr())
	cfg.Checkpoints = kafkatest.Name(t)
	s := connect(t, cfg).Sink(topic)
	resumeAndCommit(t, s, 0, 3)

	// The state after a crash at the worst moment: all records are written, and the transaction
	// is not ended.
	dead := kafkaClient(t, b.Addr(),
		kgo.TransactionalID("feedbridge."+topic.Name+"/orders"), kgo.TransactionTimeout(15*time.Minute))
	must.Succeed(t, dead.BeginTransaction())
	place := kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(topic.Name)}, kafka.CheckpointPartitions)
	for _, r := range []*kgo.Record{
		{Topic: topic.Name, Value: []byte("never committed")},
		{Topic: cfg.Checkpoints, Partition: int32(place), Key: []byte(topic.Name + "/orders"), Value: []byte("never committed")},
	} {
		must.Succeed(t, dead.ProduceSync(t.Context(), r).FirstErr())
	}
	dead.Close()

	successor := connect(t, cfg).Sink(topic)
	wantCount(t, successor, 3)
	commitAndCheck(t, successor, 3, 7)
	if got := len(kafkatest.ReadJava(t, b, topic.Name)); got != 7 {
		t.Errorf("the Java client reads %d messages, want 7", got)
	}
}

// Nobody ends the transaction of another program. Resume says whose it is.
func TestRealTransactionOfAnotherProgramIsNamed(t *testing.T) {
	t.Parallel()
	b := kafkatest.Shared(t)
	topic := ordersIn(t)
	cfg := atReal(b.Addr())
	cfg.Timeout = 10 * time.Second
	s := connect(t, cfg).Sink(topic)
	resumeAndCommit(t, s, 0, 3)
	other := kafkaClient(t, b.Addr(), kgo.TransactionalID(topic.Name+"-other"))
	must.Succeed(t, other.BeginTransaction())
	must.Succeed(t, other.ProduceSync(t.Context(), &kgo.Record{Topic: topic.Name, Value: []byte("under way")}).FirstErr())
	_, err := s.Resume(t.Context())
	wantError(t, err, false, nil, "is held back by a transaction of \""+topic.Name+"-other\"", "at its transaction timeout")
	must.Succeed(t, other.EndTransaction(t.Context(), kgo.TryAbort))
	continueTo(t, s, 3, 4)
}
