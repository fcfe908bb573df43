package serve

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
)

// coldMessages is how many messages the topics have that are served cold: of 1 KiB,
// 500 a page.
const coldMessages = 20_000

// benchmarkCold has a reader without anything read the messages, and in turn with
// that serves the pages that they make, which nobody has asked for yet, to a reader
// over HTTP. It reports the medians, and that of what part of the bare rate the pages
// had right behind it: machines change their speed while a benchmark runs.
func benchmarkCold(b *testing.B, log Log, bare func()) {
	rate := func(read func()) float64 {
		runtime.GC() // what others have left is not for this one to clear away
		begun := time.Now()
		read()
		return coldMessages / time.Since(begun).Seconds()
	}
	median := func(of []float64) float64 {
		of = slices.Sorted(slices.Values(of))
		return of[len(of)/2]
	}
	var bares, served, parts []float64
	for b.Loop() {
		bares = append(bares, rate(bare))
		served = append(served, rate(func() { readCold(b, log) }))
		parts = append(parts, 100*served[len(served)-1]/bares[len(bares)-1])
	}
	b.Logf("parts of the bare rate, in percent: %.0f", parts)
	b.ReportMetric(median(bares), "bare/s")
	b.ReportMetric(median(served), "feedbridge/s")
	b.ReportMetric(median(parts), "%-of-bare")
}

// readCold serves a topic by a server that has just begun, and reads it from its
// first page to its last.
func readCold(b *testing.B, log Log) {
	f, err := New(Config{Name: "orders"}, log)
	if err != nil {
		b.Fatal(err)
	}
	url, stop := listen(b, NewServer(ServerOptions{}, f).Serve)
	defer stop()
	span, err := f.topic.Span(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	buffer := make([]byte, 64<<10)
	for k := range (span.End-1)/DefaultPageSize + 1 {
		resp, err := client.Get(fmt.Sprintf("%s/feeds/orders/pages/%s-%d-%d", url, span.Epoch, DefaultPageSize, k))
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, buffer)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || n == 0 {
			b.Fatalf("page %d: %d bytes, %d, %v", k, n, resp.StatusCode, err)
		}
	}
}

// BenchmarkColdFromNATS compares with an ordered consumer:
//
//	go test -run '^$' -bench ColdFromNATS -benchtime 21x ./serve
func BenchmarkColdFromNATS(b *testing.B) {
	url, conn := startNATS(b)
	js := jetStream(b, url)
	if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "bench", Subjects: []string{"bench"}, AllowDirect: true}); err != nil {
		b.Fatal(err)
	}
	for _, r := range sampleTopic(coldMessages).records {
		m := natsgo.NewMsg("bench")
		m.Data = r.Body
		for _, f := range r.Header {
			m.Header[f.Name] = append(m.Header[f.Name], f.Value)
		}
		if _, err := js.PublishMsgAsync(m); err != nil {
			b.Fatal(err)
		}
		if js.PublishAsyncPending() > 1000 {
			<-js.PublishAsyncComplete()
		}
	}
	<-js.PublishAsyncComplete()
	benchmarkCold(b, conn.Log("bench", "bench"), func() {
		c, err := js.OrderedConsumer(b.Context(), "bench", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"bench"}})
		if err != nil {
			b.Fatal(err)
		}
		in, err := c.Messages()
		if err != nil {
			b.Fatal(err)
		}
		defer in.Stop()
		for range coldMessages {
			if _, err := in.Next(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkColdFromKafka compares with a consumer of franz-go:
//
//	go test -run '^$' -bench ColdFromKafka -benchtime 21x ./serve
func BenchmarkColdFromKafka(b *testing.B) {
	cluster, conn := startKafka(b, kfake.SeedTopics(1, "bench"))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("bench"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	for _, r := range sampleTopic(coldMessages).records {
		client.Produce(b.Context(), kafkaRecord(r), func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := client.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	start := map[string]map[int32]kgo.Offset{"bench": {0: kgo.NewOffset().AtStart()}}
	benchmarkCold(b, conn.Log("bench", 0), func() {
		client.AddConsumePartitions(start)
		defer client.RemoveConsumePartitions(map[string][]int32{"bench": {0}})
		for n := 0; n < coldMessages; {
			fetches := client.PollFetches(b.Context())
			if err := fetches.Err(); err != nil {
				b.Fatal(err)
			}
			n += fetches.NumRecords()
		}
	})
}

func kafkaRecord(r feed.Record) *kgo.Record {
	k := &kgo.Record{Value: r.Body}
	for _, f := range r.Header {
		k.Headers = append(k.Headers, kgo.RecordHeader{Key: f.Name, Value: []byte(f.Value)})
	}
	return k
}
