//go:build integration

package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

const (
	kafkaBenchPage   = 500
	kafkaBenchLength = 100_000
	kafkaBenchBody   = 1 << 10
)

// BenchmarkCopyToKafka is BenchmarkCopyToNATS with a real Kafka. The broker's processor time is not
// counted. It also reports the entities in a transaction.
func BenchmarkCopyToKafka(b *testing.B) {
	results := copyResults{bus: "Kafka", versions: "Kafka " + kafkatest.Version()}
	for _, size := range copySizes {
		b.Run(size.name, func(b *testing.B) {
			bench := newKafkaBench(b)
			results.add(size.name, compareCopies(b, copyComparison{
				body: size.body, length: size.length, kind: "kafka", bus: bench.broker,
				env: map[string]string{"BUSES_LAKE_KAFKA_BROKERS": bench.broker}, newTopic: bench.newTopic,
				arrived: bench.countOffsets, commits: bench.transactions,
				rate: func(topic string) float64 {
					defer bench.deleteTopic(topic)
					return bench.rate(topic, size.length)
				},
			}))
		})
	}
	results.write(b)
}

// countOffsets returns the number of offsets of a topic that are committed.
func (k *kafkaBench) countOffsets(topic string) (n int) {
	ends, err := k.admin.ListCommittedOffsets(k.b.Context(), topic)
	must.Succeed(k.b, err)
	ends.Each(func(o kadm.ListedOffset) { n += int(o.Offset) })
	return n
}

// deleteTopic frees the disk for the next copy.
func (k *kafkaBench) deleteTopic(topic string) {
	if _, err := k.admin.DeleteTopic(k.b.Context(), topic); err != nil {
		k.b.Fatal(err)
	}
}

// BenchmarkKafkaMemory copies 1 GB of feed to a real Kafka with the real program, and reports
// its resident memory: the peak, after the first tenth, and at the end. BENCH_MEMORY is as
// for FeedToKafka.
//
//	go test -tags integration -run '^$' -bench KafkaMemory -benchtime 1x ./cmd/feedbridge
func BenchmarkKafkaMemory(b *testing.B) {
	const length = 1_000_000
	for b.Loop() {
		broker := kafkatest.Start(b, kafkatest.Java("-XX:TieredStopAtLevel=4"))
		feedURL, _ := startServer(b, "upstream", "127.0.0.1:0", "500", strconv.Itoa(length), "1024")
		cmd, status := startProgram(b, readingAhead(map[string]string{
			"BUSES_LAKE_KAFKA_BROKERS": broker.Addr(),
			"FEEDS_BIG_URL":            feedURL,
			"FEEDS_BIG_LIMITS_RATE":    "100000",
			"FEEDS_BIG_DEDUPE_WINDOW":  "100000",
		}))
		reportMemory(b, cmd, status, length)
	}
}

// kafkaBench is a feed, and a broker that may use both of its JVM's compilers.
type kafkaBench struct {
	b       *testing.B
	feedURL string
	broker  string
	admin   *kadm.Client
	topics  int
}

func newKafkaBench(b *testing.B) *kafkaBench {
	broker := kafkatest.Start(b, kafkatest.Java("-XX:TieredStopAtLevel=4"))
	feed := samplefeed.New(samplefeed.Options{PageSize: kafkaBenchPage, Entity: samplefeed.Sized(kafkaBenchBody)})
	feed.SetLen(kafkaBenchLength)
	upstream := httptest.NewServer(feed)
	b.Cleanup(upstream.Close)
	return &kafkaBench{
		b: b, feedURL: upstream.URL + "/feed/latest", broker: broker.Addr(),
		admin: kadm.NewClient(newKafkaClient(b, broker.Addr())),
	}
}

// newTopic creates a topic whose times are the broker's.
func (k *kafkaBench) newTopic() string {
	k.topics++
	topic := fmt.Sprintf("bench-%d", k.topics)
	forever, append := "-1", "LogAppendTime"
	config := map[string]*string{"retention.ms": &forever, "message.timestamp.type": &append}
	if _, err := k.admin.CreateTopic(k.b.Context(), 1, 1, config, topic); err != nil {
		k.b.Fatal(err)
	}
	return topic
}

// rate returns the entities per second that the topic has received, which has so many.
func (k *kafkaBench) rate(topic string, length int) float64 {
	k.b.Helper()
	ends, err := k.admin.ListCommittedOffsets(k.b.Context(), topic)
	must.Succeed(k.b, err)
	end, _ := ends.Lookup(topic, 0)
	// at returns when the last of the first few records from an offset on was taken.
	at := func(offset int64, few int) time.Time {
		ctx, cancel := context.WithTimeout(k.b.Context(), kafkaPatience)
		defer cancel()
		client := newKafkaClient(k.b, k.broker, kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(offset)}}))
		defer client.Close()
		records := client.PollRecords(ctx, few).Records()
		if len(records) == 0 {
			k.b.Fatalf("there is no record at %d of %s", offset, topic)
		}
		return records[len(records)-1].Timestamp
	}
	// The last two may be markers of transactions.
	return float64(length) / at(end.Offset-3, 3).Sub(at(0, 1)).Seconds()
}

// transactions returns the number of transactions in which a feed has filled the topic.
func (k *kafkaBench) transactions(topic, feed string) (n int) {
	k.b.Helper()
	before := 0
	for _, count := range checkpointCounts(k.b, k.broker, topic, feed) {
		if count > before {
			n++
		}
		before = count
	}
	return n
}
