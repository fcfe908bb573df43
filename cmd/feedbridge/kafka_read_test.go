//go:build integration

package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// kafkaPatience is the time limit for operations of a real broker on a busy machine.
const kafkaPatience = 3 * time.Minute

func newKafkaClient(tb testing.TB, broker string, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(broker)}, opts...)...)
	must.Succeed(tb, err)
	tb.Cleanup(client.Close)
	return client
}

// readAll returns all committed records of a topic as franz-go reads them,
// sorted by partition and offset.
func readAll(tb testing.TB, broker, topic string) []kafkatest.Record {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), kafkaPatience)
	defer cancel()
	admin := kadm.NewClient(newKafkaClient(tb, broker))
	starts, err := admin.ListStartOffsets(ctx, topic)
	must.Succeed(tb, err)
	ends, err := admin.ListCommittedOffsets(ctx, topic)
	must.Succeed(tb, err)
	var all []kafkatest.Record
	for _, end := range ends.Offsets().Sorted() {
		if start, ok := starts.Lookup(topic, end.Partition); ok && start.Offset == end.At {
			continue
		}
		records, err := readPartition(ctx, broker, topic, end.Partition, end.At)
		must.Succeed(tb, err)
		for _, r := range records {
			all = append(all, recordOf(r))
		}
	}
	return all
}

// checkpointCounts returns the numbers of entities that the checkpoints of a feed name, one
// for each commit, as far as they are not compacted away.
func checkpointCounts(tb testing.TB, broker, topic, feedName string) []int {
	tb.Helper()
	var counts []int
	for _, r := range readAll(tb, broker, "feedbridge.checkpoints") {
		if string(r.Key) != topic+"/"+feedName {
			continue
		}
		cp, err := checkpoint.Decode(r.Value)
		must.Succeed(tb, err)
		counts = append(counts, int(cp.Count))
	}
	return counts
}

// recordOf is a record of franz-go as those of the Java client are.
func recordOf(r *kgo.Record) kafkatest.Record {
	record := kafkatest.Record{Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, kafkatest.Header{Key: h.Key, Value: h.Value})
	}
	return record
}

// headerOf returns the first header of that name.
func headerOf(r kafkatest.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// follower is a consumer that reads a topic all the while, also before there is
// one.
type follower struct {
	tb testing.TB

	mu      sync.Mutex
	records []kafkatest.Record
}

// follow starts one at an offset of each partition.
func follow(tb testing.TB, broker, topic string, from map[int32]int64) *follower {
	tb.Helper()
	offsets := map[int32]kgo.Offset{}
	for partition, offset := range from {
		offsets[partition] = kgo.NewOffset().At(offset)
	}
	client := newKafkaClient(tb, broker,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.MetadataMinAge(250*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
	)
	f := &follower{tb: tb}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			// Errors are those of a broker that is down, and of a topic that is
			// not there yet.
			records := client.PollFetches(ctx).Records()
			f.mu.Lock()
			for _, r := range records {
				f.records = append(f.records, recordOf(r))
			}
			f.mu.Unlock()
		}
	}()
	tb.Cleanup(func() { cancel(); <-done })
	return f
}

func (f *follower) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.records)
}

// waitFor waits until it has read n records at least.
func (f *follower) waitFor(n int) {
	f.tb.Helper()
	awaitKafka(f.tb, func() bool { return f.len() >= n })
}

// awaitKafka waits until something has come about.
func awaitKafka(tb testing.TB, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(kafkaPatience); !done(); {
		if time.Now().After(deadline) {
			tb.Fatalf("nothing came of it in %v", kafkaPatience)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-tb.Context().Done():
			return
		}
	}
}
