package serve

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// coldMessages is the number of messages of the topics that are served without a cache: of
// 1 KiB, 500 a page.
const coldMessages = 50_000

// benchmarkCold has a reader without anything read the messages, and in turn with
// that serves the pages that they make, which were not requested before, to a reader over
// HTTP. It reports the medians, and that of what part of the bare rate the pages had right
// behind it: machines change their speed while a benchmark runs. Between them it sends what
// the bare reader gets over HTTP, and does nothing else with it: no server can be faster
// than that.
func benchmarkCold(b *testing.B, log Log, bare func(visit func(body []byte))) {
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
	var bares, served, parts, ofPlain []float64
	for b.Loop() {
		one := rate(func() { bare(func([]byte) {}) })
		plain := rate(func() { sendPlain(b, bare) })
		ours := rate(func() { readCold(b, log) })
		bares, served = append(bares, one), append(served, ours)
		parts, ofPlain = append(parts, 100*ours/one), append(ofPlain, 100*ours/plain)
	}
	b.Logf("parts of the bare rate, in percent: %.0f", parts)
	b.ReportMetric(median(bares), "bare/s")
	b.ReportMetric(median(served), "feedbridge/s")
	b.ReportMetric(median(parts), "%-of-bare")
	b.ReportMetric(median(ofPlain), "%-of-plain")
}

// sendPlain sends the bodies that a bare reader gets to a reader over HTTP.
func sendPlain(b *testing.B, bare func(visit func(body []byte))) {
	pages := make(chan []byte, lead)
	go func() {
		defer close(pages)
		var page []byte
		n := 0
		bare(func(body []byte) {
			page = append(page, body...)
			if n++; n%DefaultPageSize == 0 {
				pages <- page
				page = make([]byte, 0, len(page))
			}
		})
	}()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(<-pages))
	}))
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	buffer := make([]byte, 64<<10)
	for range coldMessages / DefaultPageSize {
		fetchPage(b, client, server.URL, buffer)
	}
}

// fetchPage reads a page, and throws it away.
func fetchPage(b *testing.B, client *http.Client, url string, buffer []byte) {
	resp, err := client.Get(url)
	must.Succeed(b, err)
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, buffer)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || n == 0 {
		b.Fatalf("%s: %d bytes, %d, %v", url, n, resp.StatusCode, err)
	}
}

// readCold serves a topic by a server that has just begun, and reads it from its
// first page to its last.
func readCold(b *testing.B, log Log) {
	f, err := New(Config{Name: "orders"}, log)
	must.Succeed(b, err)
	url, stop := listen(b, NewServer(ServerOptions{}, f).Serve)
	defer stop()
	span, err := f.builder.spans.Span(b.Context())
	must.Succeed(b, err)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	buffer := make([]byte, 64<<10)
	for k := range (span.End-1)/DefaultPageSize + 1 {
		fetchPage(b, client, fmt.Sprintf("%s/feeds/orders/pages/%s-%d-%d", url, span.Epoch, DefaultPageSize, k), buffer)
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
	benchmarkCold(b, conn.Log("bench", "bench"), func(visit func([]byte)) {
		c, err := js.OrderedConsumer(b.Context(), "bench", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"bench"}})
		must.Succeed(b, err)
		in, err := c.Messages()
		must.Succeed(b, err)
		defer in.Stop()
		for range coldMessages {
			m, err := in.Next()
			must.Succeed(b, err)
			visit(m.Data())
		}
	})
}

// BenchmarkColdFromKafka compares with a consumer of franz-go:
//
//	go test -run '^$' -bench ColdFromKafka -benchtime 21x ./serve
func BenchmarkColdFromKafka(b *testing.B) {
	cluster, conn := startKafka(b, kfake.SeedTopics(1, "bench"))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("bench"))
	must.Succeed(b, err)
	b.Cleanup(client.Close)
	for _, r := range sampleTopic(coldMessages).records {
		client.Produce(b.Context(), kafkaRecord(r), func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	must.Succeed(b, client.Flush(b.Context()))
	start := map[string]map[int32]kgo.Offset{"bench": {0: kgo.NewOffset().AtStart()}}
	benchmarkCold(b, conn.Log("bench", 0), func(visit func([]byte)) {
		client.AddConsumePartitions(start)
		defer client.RemoveConsumePartitions(map[string][]int32{"bench": {0}})
		for n := 0; n < coldMessages; {
			fetches := client.PollFetches(b.Context())
			must.Succeed(b, fetches.Err())
			fetches.EachRecord(func(r *kgo.Record) { visit(r.Value) })
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
