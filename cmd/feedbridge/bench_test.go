package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication/sample"
)

// BenchmarkFeedToNATS copies a feed of 1 KiB entities, 500 a page, from an upstream to a NATS server
// with the real program. In turn with it this process publishes the same messages in the same
// batches, without a feed. The others are processes of their own. See [streamRate] for the rate. It
// reports the medians of the rates, and that of the ratios of two runs that follow each other:
// machines change their speed while a benchmark runs.
//
//	go test -run '^$' -bench FeedToNATS -benchtime 11x ./cmd/feedbridge
func BenchmarkFeedToNATS(b *testing.B) {
	const (
		pageSize = 500
		length   = 100_000
		body     = 1 << 10
	)
	natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
	feedURL, _ := startServer(b, "upstream", "127.0.0.1:0", strconv.Itoa(pageSize), strconv.Itoa(length), strconv.Itoa(body))
	nc, js := openJetStream(b, natsURL)
	msgs := messages(feedURL, body, length)
	topics := 0
	rate := func(copyAll func(topic string)) float64 {
		topics++
		topic := fmt.Sprintf("bench-%d", topics)
		copyAll(topic)
		return streamRate(b, js, topic, length)
	}
	var bare, bridged, parts []float64
	for b.Loop() {
		bare = append(bare, rate(func(topic string) { publishBare(b, nc, js, topic, msgs, pageSize) }))
		bridged = append(bridged, rate(func(topic string) { bridgeAll(b, feedURL, natsURL, topic, length) }))
		parts = append(parts, 100*bridged[len(bridged)-1]/bare[len(bare)-1])
	}
	b.Logf("parts of the bare rate, in percent: %.0f", parts)
	b.ReportMetric(median(bare), "bare/s")
	b.ReportMetric(median(bridged), "feedbridge/s")
	b.ReportMetric(median(parts), "%-of-bare")
}

// openJetStream connects to a NATS server until the benchmark ends.
func openJetStream(b *testing.B, url string) (*nats.Conn, jetstream.JetStream) {
	nc, err := nats.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	return nc, js
}

// streamRate returns the entities per second of a topic that has n and a checkpoint, from its first
// message to its last, by the server's clock. It deletes the stream.
func streamRate(b *testing.B, js jetstream.JetStream, topic string, n int) float64 {
	stream, err := js.Stream(b.Context(), topic)
	if err != nil {
		b.Fatal(err)
	}
	state := stream.CachedInfo().State
	if want := uint64(n + 1); state.Msgs != want {
		b.Fatalf("the stream has %d messages, want %d", state.Msgs, want)
	}
	if err := js.DeleteStream(b.Context(), topic); err != nil {
		b.Fatal(err)
	}
	return float64(n) / state.LastTime.Sub(state.FirstTime).Seconds()
}

// streamLength returns the number of messages in a stream; 0 if there is no such stream.
func streamLength(b *testing.B, js jetstream.JetStream, stream string) int {
	s, err := js.Stream(b.Context(), stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0
	}
	if err != nil {
		b.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// bridgeAll copies the feed with the real program, and returns when all of it
// is published.
func bridgeAll(b *testing.B, feedURL, natsURL, topic string, length int) {
	cmd, status := startProgram(b, map[string]string{
		"BUSES_MAIN_NATS_URL":     natsURL,
		"FEEDS_BENCH_URL":         feedURL,
		"FEEDS_BENCH_TO_TOPIC":    topic,
		"FEEDS_BENCH_LIMITS_RATE": "100000",
	})
	waitUntil(b, func() bool { return published(b, status) >= length })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// messages returns the feed's entities as the messages that feedbridge makes of
// them.
func messages(feedURL string, body, length int) []*nats.Msg {
	entity := sample.Sized(body)
	msgs := make([]*nats.Msg, length)
	for i := range msgs {
		e := entity(i)
		modified := e.Modified.Format("Mon, 02 Jan 2006 15:04:05 GMT")
		msgs[i] = &nats.Msg{Data: e.Body, Header: nats.Header{
			"Content-ID": {e.ID}, "Content-Length": {strconv.Itoa(body)}, "Content-Type": {"application/octet-stream"},
			"Last-Modified": {modified}, "Operation-Type": {"http-equiv=" + string(e.Op)},
			"Feedbridge-Feed": {"bench"}, "Feedbridge-Page": {feedURL},
		}}
	}
	return msgs
}

// publishBare publishes the messages in atomic batches with a checkpoint each,
// one at a time, and nothing else.
func publishBare(b *testing.B, nc *nats.Conn, js jetstream.JetStream, topic string, msgs []*nats.Msg, size int) {
	if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: topic, Subjects: []string{topic, "_feedbridge." + topic},
		AllowAtomicPublish: true, AllowRollup: true, AllowMsgTTL: true,
	}); err != nil {
		b.Fatal(err)
	}
	var ack struct{ Seq, Count int }
	for page := range slices.Chunk(msgs, size) {
		id := []string{nuid.Next()}
		for i, msg := range page {
			msg.Subject = topic
			msg.Header["Nats-Batch-Id"] = id
			msg.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
			if err := nc.PublishMsg(msg); err != nil {
				b.Fatal(err)
			}
		}
		cp := checkpoint.Checkpoint{Feed: "bench", Source: "bare", Cursor: make(feed.Cursor, 200), Count: uint64(len(page))}
		reply, err := nc.RequestMsg(&nats.Msg{Subject: "_feedbridge." + topic, Data: checkpoint.Encode(cp), Header: nats.Header{
			"Nats-Batch-Id": id, "Nats-Batch-Sequence": {strconv.Itoa(len(page) + 1)}, "Nats-Batch-Commit": {"1"},
			"Nats-Rollup": {"sub"}, "Nats-TTL": {"never"}, "Nats-Expected-Last-Subject-Sequence": {strconv.Itoa(ack.Seq)},
		}}, time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		if err := json.Unmarshal(reply.Data, &ack); err != nil || ack.Count != len(page)+1 {
			b.Fatalf("%s: %v", reply.Data, err)
		}
	}
}
