package main

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readKafka returns all committed messages of a topic, partition by partition,
// without what feedbridge has added to their headers. It uses nothing of
// feedbridge.
func readKafka(broker, topic string) ([]entityLine, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	var lines []entityLine
	for _, end := range ends.Offsets().Sorted() {
		if end.At == 0 {
			continue
		}
		records, err := readPartition(ctx, broker, topic, end.Partition, end.At)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			l := entityLine{Body: string(r.Value)}
			for _, h := range r.Headers {
				if !strings.HasPrefix(h.Key, "Feedbridge-") {
					l.Headers = append(l.Headers, [2]string{h.Key, string(h.Value)})
				}
			}
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// readPartition returns the committed records before an offset, which counts the
// markers of transactions too.
func readPartition(ctx context.Context, broker, topic string, partition int32, end int64) ([]*kgo.Record, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(broker), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(0)}}),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for next := int64(0); next < end; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, r := range fetches.Records() {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
		}
	}
	return records, nil
}
