package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The comparison is fair only if both programs write the same records, compressed alike.
func TestFloorWritesTheSameRecordsToKafka(t *testing.T) {
	t.Parallel()
	const length = 1200
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "bridged", "floor"))
	must.Succeed(t, err)
	t.Cleanup(cluster.Close)
	broker := cluster.ListenAddrs()[0]
	feedURL, _ := startServer(t, "upstream", "127.0.0.1:0", "500", fmt.Sprint(length), "300")
	// feedbridge comes first, because it creates the topic for checkpoints.
	_, status := startProgram(t, map[string]string{
		"BUSES_LAKE_KAFKA_BROKERS": broker, "FEEDS_BENCH_URL": feedURL, "FEEDS_BENCH_TO_TOPIC": "bridged",
	})
	waitUntil(t, func() bool { return published(t, status) >= length })
	floor, _ := startFloor(t, "kafka", broker, feedURL, "floor")
	if err := floor.Wait(); err != nil {
		t.Fatalf("the floor program: %v", err)
	}
	want, wantCompression := writtenRecords(t, broker, "floor", length)
	got, compression := writtenRecords(t, broker, "bridged", length)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-floor +feedbridge):\n%s", diff)
	}
	if compression != wantCompression || compression == 0 {
		t.Errorf("most records have compression %d, and those of the floor program %d", compression, wantCompression)
	}
}

// writtenRecord is the part of a record that its producer chooses.
type writtenRecord struct {
	Key, Value []byte
	Headers    []kgo.RecordHeader
}

// writtenRecords returns the first n records of a topic, and the compression that most of them have. A
// batch that compression does not make smaller, such as one of a single record, is written without.
func writtenRecords(t *testing.T, broker, topic string, n int) (written []writtenRecord, compression uint8) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must.Succeed(t, err)
	defer client.Close()
	compressed := map[uint8]int{}
	for len(written) < n {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d of %d records of %s: %v", len(written), n, topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			written = append(written, writtenRecord{r.Key, r.Value, r.Headers})
			compressed[r.Attrs.CompressionType()]++
		})
	}
	for c, records := range compressed {
		if records > n/2 {
			compression = c
		}
	}
	return written, compression
}
