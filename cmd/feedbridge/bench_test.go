package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication/sample"
)

// BenchmarkFeedToNATS copies a feed of 1 KiB entities, 500 a page, from an
// upstream to a NATS server, each a process of its own on this machine, and
// beside it publishes the same messages in the same batches without any feed.
//
//	go test -run '^$' -bench FeedToNATS -benchtime 1x -count 5 ./cmd/feedbridge
func BenchmarkFeedToNATS(b *testing.B) {
	const (
		pageSize = 500
		length   = 100_000
		body     = 1 << 10
	)
	natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
	feedURL, _ := startServer(b, "upstream", "127.0.0.1:0", strconv.Itoa(pageSize), strconv.Itoa(length), strconv.Itoa(body))
	topics := 0
	rate := func(b *testing.B, copyAll func(topic string)) {
		for b.Loop() {
			topics++
			copyAll(fmt.Sprintf("bench-%d", topics))
		}
		b.ReportMetric(float64(b.N)*length/b.Elapsed().Seconds(), "entities/s")
		b.SetBytes(length * body)
	}
	b.Run("bare", func(b *testing.B) {
		msgs := messages(feedURL, body, length)
		rate(b, func(topic string) { publishBare(b, natsURL, topic, msgs, pageSize) })
	})
	b.Run("feedbridge", func(b *testing.B) {
		rate(b, func(topic string) { bridgeAll(b, feedURL, natsURL, topic, length) })
	})
}

// bridgeAll copies the feed as the daemon does, and returns when all of it is
// published.
func bridgeAll(b *testing.B, feedURL, natsURL, topic string, length uint64) {
	cfg, err := config.Load(config.Options{Environ: []string{
		"FEEDBRIDGE_BUSES_MAIN_NATS_URL=" + natsURL,
		"FEEDBRIDGE_FEEDS_BENCH_URL=" + feedURL,
		"FEEDBRIDGE_FEEDS_BENCH_TO_TOPIC=" + topic,
		"FEEDBRIDGE_FEEDS_BENCH_LIMITS_RATE=100000",
		"FEEDBRIDGE_ADMIN_LISTEN=",
	}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	d := &daemon{cfg: cfg, log: slog.New(slog.DiscardHandler), watch: until(length, cancel)}
	if err := d.run(ctx); err != nil {
		b.Fatal(err)
	}
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
func publishBare(b *testing.B, natsURL, topic string, msgs []*nats.Msg, size int) {
	nc, err := nats.Connect(natsURL)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
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

// until is an observer that calls done once so many entities are published.
func until(length uint64, done func()) bridge.Observer { return &untilCount{left: length, done: done} }

type untilCount struct {
	left uint64
	done func()
}

func (u *untilCount) Polled(feed.Batch, error, time.Duration) {}
func (u *untilCount) Entered(bridge.Status)                   {}
func (u *untilCount) Settled(batch feed.Batch, _ time.Duration) {
	if u.left -= uint64(len(batch.Entities)); u.left == 0 {
		u.done()
	}
}
