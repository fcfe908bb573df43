//go:build integration

package main

import (
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// bareProducer sends the records that feedbridge makes of the feed, and nothing
// else.
type bareProducer struct {
	bench   *kafkaBench
	client  *kgo.Client
	records []*kgo.Record
}

func newBareProducer(b *testing.B, bench *kafkaBench) *bareProducer {
	p := &bareProducer{bench: bench, records: make([]*kgo.Record, kafkaBenchLength)}
	p.client = newKafkaClient(b, bench.broker,
		kgo.TransactionalID("bare"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.SnappyCompression()), kgo.ProducerBatchMaxBytes(1_000_000),
	)
	for i := range p.records {
		e := benchEntity(i)
		p.records[i] = &kgo.Record{Value: e.Body}
		contentType, _ := e.Header.Get("Content-Type")
		for _, h := range [][2]string{
			{"Content-ID", e.ID},
			{"Content-Length", strconv.Itoa(len(e.Body))},
			{"Content-Type", contentType},
			{"Last-Modified", e.Modified.Format("Mon, 02 Jan 2006 15:04:05 GMT")},
			{"Operation-Type", "http-equiv=" + string(e.Op)},
			{"Feedbridge-Feed", "bench"},
			{"Feedbridge-Page", bench.feedURL},
		} {
			p.records[i].Headers = append(p.records[i].Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
		}
	}
	return p
}

// rate sends the records in transactions of these sizes, with a checkpoint each,
// one after the other, and returns the rate of the topic.
func (p *bareProducer) rate(transactions []int) float64 {
	b := p.bench.b
	topic := p.bench.newTopic()
	sent := 0
	for _, size := range transactions {
		if err := p.client.BeginTransaction(); err != nil {
			b.Fatal(err)
		}
		failed := kgo.AbortingFirstErrPromise(p.client)
		for _, r := range p.records[sent : sent+size] {
			r.Topic, r.Partition = topic, 0
			p.client.Produce(b.Context(), r, failed.Promise())
		}
		sent += size
		cp := checkpoint.Checkpoint{Feed: "bench", Source: "bare", Cursor: make(feed.Cursor, 200), Count: uint64(sent)}
		p.client.Produce(b.Context(), &kgo.Record{
			Topic: "feedbridge.checkpoints", Key: []byte(topic + "/bare"), Value: checkpoint.Encode(cp),
		}, failed.Promise())
		if err := p.client.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := failed.Err(); err != nil {
			b.Fatal(err)
		}
		if err := p.client.EndTransaction(b.Context(), kgo.TryCommit); err != nil {
			b.Fatal(err)
		}
	}
	return p.bench.rate(topic)
}
