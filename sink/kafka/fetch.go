package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// description is what the cluster says about a topic.
type description struct {
	name    string
	id      kadm.TopicID // zero before Kafka 2.8
	leaders []int32      // by partition; below zero for one that has none
	inSync  []int        // by partition: how many replicas are in sync
	// allowed is what this user may do; nil before Kafka 2.3, which does not tell.
	allowed []kadm.ACLOperation
}

// may reports whether this user may do op to the topic, as far as is known.
func (d description) may(op kadm.ACLOperation) bool {
	return d.allowed == nil || slices.Contains(d.allowed, op)
}

// partitions are the topic's.
func (d description) partitions() []int32 {
	all := make([]int32, len(d.leaders))
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// describe returns what the cluster says about a topic. A topic that does not
// exist is [kerr.UnknownTopicOrPartition].
func (c *Conn) describe(ctx context.Context, topic string) (description, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	topics, err := c.admin.ListTopicsWithInternal(kadm.WithAuthorizedOps(ctx), topic)
	if err != nil {
		return description{}, causeOf(ctx, err)
	}
	t, ok := topics[topic]
	if !ok {
		return description{}, errors.New("the cluster describes another topic than it was asked about")
	}
	if t.Err != nil {
		return description{}, t.Err
	}
	n := len(t.Partitions)
	d := description{name: topic, id: t.ID, leaders: make([]int32, n), inSync: make([]int, n), allowed: t.AuthorizedOperations}
	for i, p := range t.Partitions {
		if int(i) >= n {
			return description{}, fmt.Errorf("the cluster names partition %d of %d", i, n)
		}
		d.leaders[i], d.inSync[i] = p.Leader, len(p.ISR)
	}
	return d, nil
}

// Which offset of a partition is asked for.
type boundary struct {
	timestamp int64
	isolation int8
}

var (
	first  = boundary{-2, 0} // of the oldest record that is left
	end    = boundary{-1, 0} // behind the newest record, be it committed or not
	stable = boundary{-1, 1} // before the oldest transaction that is not ended
)

// offsets returns a boundary of partitions of a topic, in their order. It waits for a
// partition that has another leader.
func (c *Conn) offsets(ctx context.Context, topic string, partitions []int32, of boundary) ([]int64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for _, n := range partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = n, -1, of.timestamp
		t.Partitions = append(t.Partitions, p)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel, req.Topics = -1, of.isolation, []kmsg.ListOffsetsRequestTopic{t}
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		offsets, err := c.offsetsOnce(ctx, req)
		// kgo retries NOT_LEADER for only one of several concurrent requests, so retry here. A
		// leader that was just elected does not know its offsets at first.
		if !errors.Is(err, kerr.NotLeaderForPartition) && !errors.Is(err, kerr.OffsetNotAvailable) || sleep(ctx, wait) != nil {
			return offsets, err
		}
	}
}

func (c *Conn) offsetsOnce(ctx context.Context, req *kmsg.ListOffsetsRequest) ([]int64, error) {
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	found := map[int32]int64{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("partition %d of %s: %w", p.Partition, t.Topic, err)
			}
			found[p.Partition] = p.Offset
		}
	}
	asked := req.Topics[0]
	offsets := make([]int64, len(asked.Partitions))
	for i, p := range asked.Partitions {
		offset, ok := found[p.Partition]
		if !ok {
			return nil, fmt.Errorf("the cluster says nothing about partition %d of %s", p.Partition, asked.Topic)
		}
		offsets[i] = offset
	}
	return offsets, nil
}

// fetchBytes is about how much one fetch gets. A batch that is larger comes
// whole.
const fetchBytes = 1 << 20

// A reader reads the committed records of a partition.
type reader struct {
	conn      *Conn
	topic     string
	partition int32
	// known is the topic as it was described last, nil if that may be wrong by now.
	// recalled says that it was some time before the reading began.
	known    *description
	recalled bool
	// id is the topic's, once known: one that is made anew has other records.
	id *kadm.TopicID
	// size is how many bytes that which was fetched last takes in the cluster.
	size int64
	// byID says that the topic was asked for by its id, so that the answer is about no
	// other of its name.
	byID bool
}

// fetch returns committed records from an offset on and before another, with
// perhaps some more, and the offset behind what it has read, which may be
// transaction markers and aborted records alone. It waits for a partition that has
// no leader, or another one, and for a broker that withholds its answer because of a quota.
func (r *reader) fetch(ctx context.Context, from, to int64, atMost int32) ([]*kgo.Record, int64, error) {
	caller := ctx
	ctx, cancel := r.conn.bounded(caller)
	defer func() { cancel() }()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		known := r.known != nil
		records, next, err := r.fetchOnce(ctx, from, to, atMost)
		var throttled *throttledError
		switch {
		case err == nil && next > from:
			r.recalled = false
			return records, next, nil
		case err == nil:
			// The broker may have been deposed as the leader, and have no more.
			r.known = nil
		case errors.As(err, &throttled):
			// The broker answers, so the time starts over. franz-go sends it nothing for
			// that long.
			cancel()
			ctx, cancel = r.conn.within(caller, r.conn.cfg.Timeout+throttled.wait)
			continue
		default:
			r.known = nil
			if known && !errors.Is(err, kerr.OffsetOutOfRange) {
				continue // its leader may be another by now
			}
			// A topic that was there when the reading began is waited for: a broker that
			// has just begun may not have heard of it.
			if !passes(err) || r.recalled && missing(err) {
				return nil, 0, causeOf(ctx, err)
			}
		}
		if cause := sleep(ctx, wait); cause != nil {
			if err != nil {
				return nil, 0, fmt.Errorf("read partition %d of %s: %w", r.partition, r.topic, err)
			}
			return nil, 0, cause
		}
	}
}

// throttledError reports that a broker has answered a fetch without any partition, as it does for
// a client that is over its quota. It takes the next fetch after some time.
type throttledError struct{ wait time.Duration }

func (e *throttledError) Error() string {
	return fmt.Sprintf("the broker withholds records for %v, as this client is over its quota", e.wait)
}

// passes says whether an error is of the kind that goes by.
func passes(err error) bool { return kerr.IsRetriable(err) || errors.Is(err, errNoLeader) }

var (
	errNoLeader = errors.New("the partition has no leader")
	// errAnew says that a topic is not the one that was read.
	errAnew = errors.New("was deleted and created anew while it was read")
)

// find returns the broker that leads the partition.
func (r *reader) find(ctx context.Context) (*kgo.Broker, error) {
	if r.known == nil {
		d, err := r.conn.describe(ctx, r.topic)
		if err != nil {
			return nil, err
		}
		r.known = &d
	}
	if r.id == nil {
		r.id = &r.known.id
	}
	switch {
	case *r.id != r.known.id:
		return nil, fmt.Errorf("topic %s %w", r.topic, errAnew)
	case int(r.partition) >= len(r.known.leaders):
		return nil, fmt.Errorf("topic %s has no partition %d any more", r.topic, r.partition)
	case r.known.leaders[r.partition] < 0:
		return nil, errNoLeader
	}
	return r.conn.client.Broker(int(r.known.leaders[r.partition])), nil
}

func (r *reader) fetchOnce(ctx context.Context, from, to int64, atMost int32) ([]*kgo.Record, int64, error) {
	got, err := r.ask(ctx, from, atMost, 100*time.Millisecond)
	if err != nil {
		return nil, 0, err
	}
	var behind int64
	got.RecordBatches, behind = before(got.RecordBatches, to)
	r.size = int64(len(got.RecordBatches))
	read, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: from, IsolationLevel: kgo.ReadCommitted(), Topic: r.topic, Partition: r.partition,
	}, got, r.conn.decompressor, nil)
	return read.Records, max(next, behind), read.Err
}

// ask asks the partition's leader for what there is from an offset on, and has it wait
// for something if there is nothing.
func (r *reader) ask(ctx context.Context, from int64, atMost int32, wait time.Duration) (*kmsg.FetchResponseTopicPartition, error) {
	leader, err := r.find(ctx)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(wait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = math.MaxInt32 // the partition's limit is the one that counts
	req.IsolationLevel = stable.isolation
	req.SessionEpoch = -1 // a request without a session
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic, r.known.id
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
	r.byID = resp.Version >= 13 && r.known.id != (kadm.TopicID{})
	return got, kerr.ErrorForCode(got.ErrorCode)
}

// before cuts off the batches that start at an offset or behind it, so that they
// are not unpacked, which is most of the work. If there are any it returns where the
// first of them starts, too: there is nothing between it and what is left.
func before(batches []byte, to int64) (left []byte, behind int64) {
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

// scan calls visit for the committed records of a partition from an offset on and
// before another, until it says to stop.
func (c *Conn) scan(ctx context.Context, topic string, partition int32, from, to int64, visit func(*kgo.Record) (bool, error)) error {
	r := reader{conn: c, topic: topic, partition: partition}
	for from < to {
		records, next, err := r.fetch(ctx, from, to, fetchBytes)
		if err != nil {
			return err
		}
		for _, r := range records {
			if r.Offset >= to {
				return nil
			}
			if more, err := visit(r); err != nil || !more {
				return err
			}
		}
		from = next
	}
	return nil
}

// sleep returns nil after d, and before that the cause for which ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
