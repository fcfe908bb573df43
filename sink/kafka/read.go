package kafka

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

// Message is an entity as the topic holds it.
type Message struct {
	Partition int32
	Offset    int64
	Time      time.Time
	Key       []byte // nil if it has none
	Tombstone bool   // it has no value
	Entity    feed.Entity
}

// AllPartitions is for [Sink.Messages].
const AllPartitions = -1

// Messages returns what a partition of the topic holds from an offset on, in
// order, up to what is committed at the time of the call; or what all partitions
// hold, one after the other. In a shared topic that is other feeds' messages,
// too. It is safe for concurrent use.
func (s *Sink) Messages(ctx context.Context, partition int32, from int64) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		stopped := false
		err := s.ask(ctx, func(ctx context.Context) error {
			d, err := s.conn.describe(ctx, s.topic.Name)
			if err != nil {
				return err
			}
			partitions := d.partitions()
			if partition != AllPartitions {
				partitions = []int32{partition}
			}
			ends, err := s.conn.settle(ctx, d.name, partitions, s.conn.cfg.Timeout, nil)
			if err != nil {
				return err
			}
			starts, err := s.conn.offsets(ctx, d.name, partitions, first)
			if err != nil {
				return err
			}
			for i, p := range partitions {
				err := s.conn.scan(ctx, d.name, p, max(from, starts[i]), ends[i], func(r *kgo.Record) (bool, error) {
					e, err := sink.Entity(fields(r.Headers), r.Value)
					if err != nil {
						return false, fmt.Errorf("partition %d, offset %d: %w", r.Partition, r.Offset, err)
					}
					stopped = !yield(Message{r.Partition, r.Offset, r.Timestamp, r.Key, r.Value == nil, e}, nil)
					return !stopped, nil
				})
				if err != nil || stopped {
					return err
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(Message{}, fmt.Errorf("read: %w", err))
		}
	}
}

// fields is a record's headers as a list.
func fields(headers []kgo.RecordHeader) feed.Header {
	list := make(feed.Header, len(headers))
	for i, h := range headers {
		list[i] = feed.Field{Name: h.Key, Value: string(h.Value)}
	}
	return list
}
