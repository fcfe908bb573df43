package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/sink/kafka"
)

// copyToKafka copies a feed to a topic of Kafka. Like feedbridge it
// makes its transactions with one transactional id, one after the other.
func copyToKafka(broker, feedURL, topic string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(broker), kgo.TransactionalID("floor-"+topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.SnappyCompression()), kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.ProducerLinger(time.Second), // until Flush
		kgo.ConcurrentTransactionsBackoff(5*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	// The largest transaction of feedbridge is three quarters of what it reads ahead.
	next := joinPages(readPages(feedURL, pagesAhead), kafka.MaxEntities, kafka.MaxBytes*3/4)
	sent := 0
	for {
		c, err := next()
		if err != nil || len(c.entities) == 0 {
			return err
		}
		sent += len(c.entities)
		if err := commitTransaction(client, topic, c, sent); err != nil {
			return err
		}
	}
}

// commitTransaction makes one transaction.
func commitTransaction(client *kgo.Client, topic string, c commit, sent int) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	failed := kgo.AbortingFirstErrPromise(client)
	records := make([]kgo.Record, len(c.entities)+1)
	for i, e := range c.entities {
		r := &records[i]
		r.Topic, r.Value = topic, e.body
		r.Headers = make([]kgo.RecordHeader, 0, strings.Count(e.header, "\n")+2)
		c.fields(i, func(name, value string) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		})
		client.Produce(ctx, r, failed.Promise())
	}
	last := &records[len(c.entities)]
	last.Topic, last.Key, last.Value = "feedbridge.checkpoints", []byte(topic+"/floor"), encodeCheckpoint(sent)
	client.Produce(ctx, last, failed.Promise())
	if err := client.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Err(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}
