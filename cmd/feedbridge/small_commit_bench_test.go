package main

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// answerTimes are the times at which a feed answered with a length for the first time.
type answerTimes struct {
	*samplefeed.Feed
	mu sync.Mutex
	at map[int]time.Time
}

func (a *answerTimes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	length := a.Len()
	a.Feed.ServeHTTP(w, r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.at[length]; !ok && r.Method == http.MethodGet {
		a.at[length] = time.Now() // the new entity is in the buffer of the server
	}
}

// BenchmarkLatency publishes an entity of 1 KiB after the other on a page of 100. It reports the time from the
// answer that has the entity to its time in the stream, by the clock of this machine. The NATS server and
// the program are processes of their own.
//
//	go test -run '^$' -bench Latency -benchtime 300x ./cmd/feedbridge
func BenchmarkLatency(b *testing.B) {
	natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
	_, js := openJetStream(b, natsURL)
	feed := &answerTimes{Feed: samplefeed.New(samplefeed.Options{PageSize: 100, Entity: samplefeed.Sized(1 << 10)}), at: map[int]time.Time{}}
	feed.SetLen(10)
	upstream := httptest.NewServer(feed)
	defer upstream.Close()
	_, status := startProgram(b, map[string]string{
		"BUSES_MAIN_NATS_URL": natsURL, "FEEDS_LATE_URL": upstream.URL + "/feed/latest", "FEEDS_LATE_TO_TOPIC": "late", "FEEDS_LATE_EVERY": "100ms",
	})
	waitUntil(b, func() bool { return published(b, status) == 10 })
	consumer, err := js.OrderedConsumer(b.Context(), "late", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"late"}})
	must.Succeed(b, err)
	messages, err := consumer.Messages()
	must.Succeed(b, err)
	defer messages.Stop()
	stored := func() time.Time {
		m, err := messages.Next()
		must.Succeed(b, err)
		meta, err := m.Metadata()
		must.Succeed(b, err)
		return meta.Timestamp
	}
	for range feed.Len() {
		stored()
	}
	var took []float64
	for b.Loop() {
		length := feed.Len() + 1
		feed.SetLen(length)
		at := stored()
		feed.mu.Lock()
		took = append(took, at.Sub(feed.at[length]).Seconds()*1000)
		feed.mu.Unlock()
	}
	b.ReportMetric(median(took), "median-ms")
	b.ReportMetric(took[len(took)*9/10], "p90-ms") // sorted by median
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSmallCommits publishes one new entity of 1 KiB in each of 10,000 feeds, or BENCH_FEEDS, whose topics are in
// one stream. It reports the processor time that this costs the NATS server, and the program, without
// that of as long a time without new entities.
//
//	go test -run '^$' -bench SmallCommits -benchtime 1x -timeout 20m ./cmd/feedbridge
func BenchmarkSmallCommits(b *testing.B) {
	feeds, err := strconv.Atoi(cmp.Or(os.Getenv("BENCH_FEEDS"), "10000"))
	must.Succeed(b, err)
	feed := samplefeed.New(samplefeed.Options{PageSize: 100, Entity: samplefeed.Sized(1 << 10)})
	feed.SetLen(10)
	upstream := httptest.NewServer(feed)
	defer upstream.Close()
	natsURL, bus := startServer(b, "nats", b.TempDir(), "-1")
	_, js := openJetStream(b, natsURL)
	if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: "small", Subjects: []string{"small.>", "_feedbridge.small.>"},
		AllowAtomicPublish: true, AllowBatchPublish: true, AllowRollup: true, AllowMsgTTL: true,
	}); err != nil {
		b.Fatal(err)
	}
	var file bytes.Buffer
	fmt.Fprintf(&file, "buses: {main: {nats: {url: %q}}}\nfeeds:\n", natsURL)
	for n := range feeds {
		fmt.Fprintf(&file, "  feed-%d: {url: %q, every: 60s, to: {topic: small.%d, stream: {name: small, create: false}}}\n", n, upstream.URL+"/feed/latest", n)
	}
	path := filepath.Join(b.TempDir(), "feedbridge.yaml")
	must.Succeed(b, os.WriteFile(path, file.Bytes(), 0o600))
	program, _ := startProgram(b, map[string]string{"CONFIG": path})
	waitForEntities := func() { // and for the checkpoint of each topic
		waitUntil(b, func() bool {
			waitFor(b, 2*time.Second) // each look costs the server some processor time
			return streamLength(b, js, "small") == feeds*(feed.Len()+1)
		})
	}
	waitForEntities()
	waitFor(b, time.Minute) // all feeds poll in their own time
	cost := func(work func()) (server, own float64) {
		atServer, atOwn := cpuTime(b, bus.Process.Pid), cpuTime(b, program.Process.Pid)
		work()
		return (cpuTime(b, bus.Process.Pid) - atServer).Seconds(), (cpuTime(b, program.Process.Pid) - atOwn).Seconds()
	}
	idleServer, idleOwn := cost(func() { waitFor(b, time.Minute) })
	for b.Loop() {
		begin := time.Now()
		server, own := cost(func() {
			feed.SetLen(feed.Len() + 1)
			waitForEntities()
		})
		minutes := time.Since(begin).Minutes()
		b.ReportMetric(server-minutes*idleServer, "server-cpu-s")
		b.ReportMetric(own-minutes*idleOwn, "feedbridge-cpu-s")
		b.ReportMetric(idleServer, "idle-server-cpu-s/min")
		b.ReportMetric(idleOwn, "idle-feedbridge-cpu-s/min")
	}
	b.ReportMetric(0, "ns/op")
}
