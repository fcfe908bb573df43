//go:build integration

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/source/datareplication/sample"
)

const (
	kafkaBenchPage   = 500
	kafkaBenchLength = 100_000
	kafkaBenchBody   = 1 << 10
)

// BenchmarkFeedToKafka copies a feed of 1 KiB entities, 500 a page, to a real
// Kafka with the real program, and in turn with a bare franz-go producer that
// sends the same records in the same transactions, with a checkpoint each, without
// any feed. A rate is that of the topic: from its first record to its last, by
// the broker's clock. It reports the medians, and what part of the bare rate the
// copy has.
//
// The variable BENCH_READ_AHEAD sets read_ahead.feed, in bytes.
//
//	go test -tags integration -run '^$' -bench FeedToKafka -benchtime 11x ./cmd/feedbridge
func BenchmarkFeedToKafka(b *testing.B) {
	bench := newKafkaBench(b)
	bare := newBareProducer(b, bench)
	// The broker's JIT compiler needs some load to optimize the hot code.
	bare.rate(bench.bridged("snappy").transactions)

	var rates, bareRates, sizes, peaks []float64
	for b.Loop() {
		r := bench.bridged("snappy")
		peaks = append(peaks, r.peak)
		rates = append(rates, r.rate)
		sizes = append(sizes, float64(kafkaBenchLength)/float64(len(r.transactions)))
		bareRates = append(bareRates, bare.rate(r.transactions))
	}
	b.ReportMetric(median(bareRates), "bare/s")
	b.ReportMetric(median(rates), "feedbridge/s")
	b.ReportMetric(100*median(rates)/median(bareRates), "%-of-bare")
	b.ReportMetric(median(sizes), "entities/transaction")
	b.ReportMetric(median(peaks), "MiB-peak")
}

// BenchmarkCopyToKafka is BenchmarkCopyToNATS with a real Kafka. The broker's processor time is not
// counted.
//
//	BENCH_CHARTS=$PWD/docs go test -tags integration -run '^$' -bench CopyToKafka -benchtime 9x ./cmd/feedbridge
func BenchmarkCopyToKafka(b *testing.B) {
	rates := chart{title: "Feed to Kafka", series: []string{"floor", "feedbridge"}}
	for _, size := range copySizes {
		b.Run(size.name, func(b *testing.B) {
			bench := newKafkaBench(b)
			feedURL, _ := startServer(b, "upstream", "127.0.0.1:0", "500", strconv.Itoa(size.length), strconv.Itoa(size.body))
			c := copyComparison{
				feedURL: feedURL, length: size.length, kind: "kafka", bus: bench.broker,
				env: map[string]string{"BUSES_LAKE_KAFKA_BROKERS": bench.broker}, newTopic: bench.newTopic,
				arrived: bench.countOffsets,
				rate: func(topic string) float64 {
					defer bench.deleteTopic(topic)
					return bench.rateOf(topic, size.length)
				},
			}
			// The broker's JIT compiler needs some load to optimize the hot code, and feedbridge
			// creates the topic of the checkpoints.
			c.runFeedbridge(b, bench.newTopic())
			rates.groups = append(rates.groups, chartGroup{size.name, compareCopies(b, c)})
		})
	}
	writeChart(b, "copy-to-kafka.svg", rates)
}

// countOffsets returns the number of offsets of a topic that are committed.
func (k *kafkaBench) countOffsets(topic string) (n int) {
	ends, err := k.admin.ListCommittedOffsets(k.b.Context(), topic)
	if err != nil {
		k.b.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += int(o.Offset) })
	return n
}

// deleteTopic frees the disk for the next copy.
func (k *kafkaBench) deleteTopic(topic string) {
	if _, err := k.admin.DeleteTopic(k.b.Context(), topic); err != nil {
		k.b.Fatal(err)
	}
}

// BenchmarkKafkaCompression copies the same feed with each compression, and reports the rate
// and the size of the topic on the broker's disk.
//
//	go test -tags integration -run '^$' -bench KafkaCompression -benchtime 5x ./cmd/feedbridge
func BenchmarkKafkaCompression(b *testing.B) {
	bench := newKafkaBench(b)
	codecs := []string{"none", "snappy", "lz4", "zstd"}
	for _, codec := range codecs {
		bench.bridged(codec)
	}
	for _, codec := range codecs {
		b.Run(codec, func(b *testing.B) {
			var rates, bytes []float64
			for b.Loop() {
				r := bench.bridged(codec)
				rates = append(rates, r.rate)
				bytes = append(bytes, float64(r.bytes))
			}
			b.ReportMetric(median(rates), "entities/s")
			b.ReportMetric(median(bytes)/kafkaBenchLength, "topic-bytes/entity")
		})
	}
}

// BenchmarkKafkaMemory copies 1 GB of feed to a real Kafka with the real program, and reports
// its resident memory: the peak, after the first tenth, and at the end. BENCH_READ_AHEAD is as
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
	feed := sample.New(sample.Options{PageSize: kafkaBenchPage, Entity: benchEntity})
	feed.SetLen(kafkaBenchLength)
	upstream := httptest.NewServer(feed)
	b.Cleanup(upstream.Close)
	return &kafkaBench{
		b: b, feedURL: upstream.URL + "/feed/latest", broker: broker.Addr(),
		admin: kadm.NewClient(newKafkaClient(b, broker.Addr())),
	}
}

// benchHeaders returns all of entity i but its body.
var benchHeaders = sample.Sized(0)

// benchEntity returns entity i. Its body is ready, so that the upstream takes no
// longer than one that sends files.
func benchEntity(i int) feed.Entity {
	bodies := benchBodies()
	e := benchHeaders(i)
	e.Body = bodies[i%len(bodies)]
	return e
}

var benchBodies = sync.OnceValue(func() [][]byte {
	bodies := make([][]byte, 20_000)
	for i := range bodies {
		bodies[i] = benchBody(i)
	}
	return bodies
})

// benchBody returns a body, half of which is much like that of others, and half
// random letters: batches are compressed as a whole.
func benchBody(i int) []byte {
	var noise [kafkaBenchBody * 3 / 8]byte
	dice := rand.New(rand.NewPCG(uint64(i), 0))
	for at := 0; at < len(noise); at += 8 {
		v := dice.Uint64()
		for k := range 8 {
			noise[at+k] = byte(v >> (8 * k))
		}
	}
	body := bytes.NewBuffer(make([]byte, 0, kafkaBenchBody))
	fmt.Fprintf(body, `{"id":%d,"token":"`, i)
	body.WriteString(base64.StdEncoding.EncodeToString(noise[:]))
	for line := 0; body.Len() < kafkaBenchBody; line++ {
		fmt.Fprintf(body, `","line %d":"article %d, in its usual package`, line, i%97)
	}
	return body.Bytes()[:kafkaBenchBody:kafkaBenchBody]
}

// copied is the result of a copy.
type copied struct {
	rate         float64
	bytes        int64
	peak         float64 // resident memory of the program, in MiB
	transactions []int   // how many entities each has
}

// bridged copies the feed with the real program into a topic of its own.
func (k *kafkaBench) bridged(compression string) copied {
	k.b.Helper()
	topic := k.newTopic()
	cmd, status := startProgram(k.b, readingAhead(map[string]string{
		"BUSES_LAKE_KAFKA_BROKERS":     k.broker,
		"BUSES_LAKE_KAFKA_COMPRESSION": compression,
		"FEEDS_BENCH_URL":              k.feedURL,
		"FEEDS_BENCH_TO_TOPIC":         topic,
		"FEEDS_BENCH_LIMITS_RATE":      "100000",
	}))
	waitUntil(k.b, func() bool { return published(k.b, status) >= kafkaBenchLength })
	peak := memory(k.b, cmd.Process.Pid, "VmHWM")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return copied{peak: peak, rate: k.rate(topic), bytes: k.size(topic), transactions: k.transactions(topic)}
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

// rate returns the entities per second that the topic has received.
func (k *kafkaBench) rate(topic string) float64 { return k.rateOf(topic, kafkaBenchLength) }

// rateOf is rate for a topic of so many entities.
func (k *kafkaBench) rateOf(topic string, length int) float64 {
	k.b.Helper()
	ends, err := k.admin.ListCommittedOffsets(k.b.Context(), topic)
	if err != nil {
		k.b.Fatal(err)
	}
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

// size returns the size of the topic on the disk, in bytes.
func (k *kafkaBench) size(topic string) int64 {
	dirs, err := k.admin.DescribeAllLogDirs(k.b.Context(), nil)
	if err != nil {
		k.b.Fatal(err)
	}
	var sum int64
	dirs.Each(func(d kadm.DescribedLogDir) {
		for _, p := range d.Topics[topic] {
			sum += p.Size
		}
	})
	return sum
}

// transactions reads from the checkpoints how many entities each transaction had.
func (k *kafkaBench) transactions(topic string) []int {
	k.b.Helper()
	var sizes []int
	before := 0
	for _, n := range checkpointCounts(k.b, k.broker, topic, "bench") {
		if n > before {
			sizes = append(sizes, n-before)
		}
		before = n
	}
	if before != kafkaBenchLength {
		k.b.Fatalf("the checkpoints of %s count %d entities", topic, before)
	}
	return sizes
}
