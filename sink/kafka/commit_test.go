package kafka

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The first record of a topic is written and answered before the client has noted the
// topic's partitions: a second one holds it up.
func TestCommitBeforeTheClientHasNotedWhatItWrote(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "shop.orders"))
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	goOn := make(chan struct{})
	p, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("orders"),
		kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
			return func(r *kgo.Record, _ int) int {
				if r.Value != nil {
					return 0
				}
				<-goOn
				return -1 // it is not written
			}
		})))
	must.Succeed(t, err)
	t.Cleanup(p.Close)
	must.Succeed(t, p.BeginTransaction())
	written := make(chan error, 1)
	r := kgo.Record{Topic: "shop.orders", Value: []byte("first")}
	p.Produce(t.Context(), &r, func(_ *kgo.Record, err error) { written <- err })
	p.Produce(t.Context(), &kgo.Record{Topic: "shop.orders"}, nil)
	must.Succeed(t, <-written)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- (&transactions{idleProducer: idleProducer{producer: p}}).commit(ctx, kadm.OffsetsFromRecords(r))
	}()
	select {
	case err := <-ended:
		close(goOn)
		t.Fatalf("the transaction is ended before: %v", err)
	case <-time.After(100 * time.Millisecond): // a commit would have been done
	}
	close(goOn)
	must.Succeed(t, <-ended)
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("shop.orders"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must.Succeed(t, err)
	t.Cleanup(reader.Close)
	got := reader.PollFetches(ctx)
	if err := got.Err(); err != nil || got.NumRecords() != 1 {
		t.Errorf("the topic has %d records, want 1: %v", got.NumRecords(), err)
	}
}

// A record is lost from the topic if another one gets its offset.
func TestRecordsAtOffsetsThatTheTopicHadReached(t *testing.T) {
	t.Parallel()
	conn, err := Connect(t.Context(), Config{Brokers: []string{"127.0.0.1:1"}}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that no broker is asked whether it is the same topic
	reached := topicEnds{ends: []int64{5, 7}}
	for _, test := range []struct {
		partition int32
		offset    int64
		lost      bool
	}{{0, 4, true}, {0, 5, false}, {1, 6, true}, {1, 7, false}, {2, 0, false}} {
		l := &conn.Sink(Topic{Feed: "orders", Name: "shop.orders"}).dedupe
		written := []kgo.Record{{Topic: "shop.orders", Offset: 9}, {Topic: "shop.orders", Partition: test.partition, Offset: test.offset}}
		if err := l.checkOffsets(ctx, written, reached); errors.Is(err, checkpoint.ErrLost) != test.lost || (l.seen.lost != nil) != test.lost {
			t.Errorf("offset %d of partition %d: %v, want a loss: %v", test.offset, test.partition, err, test.lost)
		}
	}
}

func TestCommitOfWhatIsNeverNoted(t *testing.T) {
	t.Parallel()
	p, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.TransactionalID("orders"))
	must.Succeed(t, err)
	t.Cleanup(p.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := (&transactions{idleProducer: idleProducer{producer: p}}).commit(ctx, kadm.OffsetsFromRecords(kgo.Record{Topic: "shop.orders"})); !errors.Is(err, errNotConfirmed) {
		t.Errorf("got %v, want %v", err, errNotConfirmed)
	}
}
