package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/retry"
)

// fetchBytes is about the size of one fetch. A larger batch is returned whole.
const fetchBytes = 1 << 20

// A reader reads the committed records of a partition.
type reader struct {
	client    *client
	topic     string
	partition int32
	// known is the newest description of the topic, nil if it may be outdated. recalled reports
	// that it comes from the cache of a [Log].
	known    *kadm.TopicDetail
	recalled bool
	// id is the topic's id, once known. A topic that was deleted and created again has another
	// one.
	id *kadm.TopicID
	// size is the stored size of the last fetch, in bytes.
	size int64
	// stable is the end of the committed records of the partition at that time.
	stable int64
	// byID reports that the last fetch named the topic by its id, so the answer cannot be about
	// another topic of the same name.
	byID bool
}

// fetchRecords returns committed records from offset from up to offset to, and possibly some
// more, with the next offset to read. There may be no records: an offset range can have only
// transaction markers and aborted records. It waits while a partition has no leader or changes
// it, and while a broker withholds its answer because of a quota.
func (r *reader) fetchRecords(ctx context.Context, from, to int64, atMost int32) ([]*kgo.Record, int64, error) {
	caller := ctx
	ctx, cancel := r.client.withRequestTimeout(caller)
	defer func() { cancel() }()
	backoff := retry.Backoff{Min: 10 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		known := r.known != nil
		records, next, err := r.fetchOnce(ctx, from, to, atMost)
		var throttled *throttledError
		switch {
		case err == nil && r.recalled && !r.byID: // of a topic that may have been created again
			r.known, r.recalled = nil, false
			continue
		case err == nil && next > from:
			r.recalled = false
			return records, next, nil
		case err == nil:
			// The broker may no longer be the leader, and may not have newer records.
			r.known = nil
		case errors.As(err, &throttled):
			// The broker answers, so the time starts over. kgo sends it nothing for
			// that long. diagnosis logs it.
			cancel()
			ctx, cancel = r.client.withTimeout(caller, r.client.cfg.Timeout+throttled.wait)
			continue
		default:
			r.known = nil
			if known && !errors.Is(err, kerr.OffsetOutOfRange) {
				continue // its leader may be another by now
			}
			// If the topic existed when the read began, retry: a broker that has just started
			// may not know it yet.
			if !isTransient(err) || r.recalled && isMissingTopic(err) {
				return nil, 0, causeOf(ctx, err)
			}
		}
		if cause := backoff.Wait(ctx); cause != nil {
			if err != nil {
				return nil, 0, fmt.Errorf("read partition %d of %s: %w", r.partition, r.topic, err)
			}
			return nil, 0, cause
		}
	}
}

// throttledError reports that a broker has answered a fetch without any partition, as it does
// for a client that is over its quota. The client may fetch again after wait.
type throttledError struct{ wait time.Duration }

func (e *throttledError) Error() string {
	return fmt.Sprintf("the broker withholds records for %v, as this client is over its quota", e.wait)
}

// errRecreated reports that a topic is not the one that was read before.
var errRecreated = errors.New("was deleted and created again while it was read")

// findLeader returns the broker that leads the partition.
func (r *reader) findLeader(ctx context.Context) (*kgo.Broker, error) {
	if r.known == nil {
		d, err := r.client.describeTopic(ctx, r.topic)
		if err != nil {
			return nil, err
		}
		r.known = &d
	}
	if r.id == nil {
		r.id = &r.known.ID
	}
	switch {
	case *r.id != r.known.ID:
		return nil, fmt.Errorf("topic %s %w", r.topic, errRecreated)
	case int(r.partition) >= len(r.known.Partitions):
		return nil, fmt.Errorf("topic %s has no partition %d any more", r.topic, r.partition)
	case r.known.Partitions[r.partition].Leader < 0:
		return nil, errNoLeader
	}
	return r.client.kgo.Broker(int(r.known.Partitions[r.partition].Leader)), nil
}

func (r *reader) fetchOnce(ctx context.Context, from, to int64, atMost int32) ([]*kgo.Record, int64, error) {
	got, err := r.requestFetch(ctx, from, atMost, 100*time.Millisecond)
	if err != nil {
		return nil, 0, err
	}
	var behind int64
	got.RecordBatches, behind = cutBatches(got.RecordBatches, to)
	r.size, r.stable = int64(len(got.RecordBatches)), got.LastStableOffset
	read, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: from, IsolationLevel: kgo.ReadCommitted(), Topic: r.topic, Partition: r.partition,
	}, got, r.client.decompressor, nil)
	return read.Records, max(next, behind), read.Err
}

// requestFetch sends a fetch from an offset on to the partition's leader. If there are no
// records, the leader waits for some for the time wait.
func (r *reader) requestFetch(ctx context.Context, from int64, atMost int32, wait time.Duration) (*kmsg.FetchResponseTopicPartition, error) {
	leader, err := r.findLeader(ctx)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(wait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = math.MaxInt32 // the partition's limit is the one that counts
	req.IsolationLevel = stableOffset.isolation
	req.SessionEpoch = -1 // a request without a session
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic, r.known.ID
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.partition, from, atMost
	p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.LogStartOffset = -1, -1, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	answer, err := leader.RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	resp, ok := answer.(*kmsg.FetchResponse)
	switch {
	case !ok:
		return nil, errors.New("the cluster answered a fetch with something else")
	case resp.ErrorCode != 0:
		return nil, kerr.ErrorForCode(resp.ErrorCode)
	case len(resp.Topics) == 0 && resp.ThrottleMillis > 0:
		return nil, &throttledError{time.Duration(resp.ThrottleMillis) * time.Millisecond}
	case len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		return nil, errors.New("the cluster answered a fetch with another partition")
	}
	got := &resp.Topics[0].Partitions[0]
	r.byID = resp.Version >= 13 && r.known.ID != (kadm.TopicID{}) // from Kafka 3.1 on
	return got, kerr.ErrorForCode(got.ErrorCode)
}

// cutBatches removes the batches that start at offset to or behind it, so that they need not be
// decompressed, which is most of the work. If there are any, next is the offset at which the
// first of them starts: there are no records between it and the remaining batches.
func cutBatches(batches []byte, to int64) (left []byte, next int64) {
	// The offset and the length behind it are followed by the leader's epoch and
	// the format. Before format 2 the offset is that of a batch's end.
	const header, format = 12, 16
	for n := 0; n+format < len(batches) && batches[n+format] == 2; {
		start := int64(binary.BigEndian.Uint64(batches[n:]))
		if start >= to {
			return batches[:n], start
		}
		n += header + int(binary.BigEndian.Uint32(batches[n+8:]))
	}
	return batches, 0
}

// readRecords returns the committed records of a partition from offset from up to offset to. An error is
// the last element.
func (c *client) readRecords(ctx context.Context, topic string, partition int32, from, to int64) iter.Seq2[*kgo.Record, error] {
	return func(yield func(*kgo.Record, error) bool) {
		r := reader{client: c, topic: topic, partition: partition}
		for from < to {
			records, next, err := r.fetchRecords(ctx, from, to, fetchBytes)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, r := range records {
				if r.Offset >= to || !yield(r, nil) {
					return
				}
			}
			from = next
		}
	}
}
