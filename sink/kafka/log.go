package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

// Log reads a partition of a topic back, including messages of other programs. The position of
// a message is its offset, so there are gaps where transaction markers and aborted records are.
// It is safe for concurrent use.
//
// A cluster that elects an unclean leader gives the offsets of lost messages to new ones. A Log
// cannot detect that.
type Log struct {
	client    *client
	topic     string
	partition int32

	// stored is the approximate size of a record in the cluster, in bytes, and unpacked its
	// size in memory.
	stored, unpacked atomic.Int64

	mu      sync.Mutex // guards the fields below
	checked time.Time  // when the topic was last found to be fit
	fit     kadm.TopicID
	found   kadm.TopicDetail // the newest description of the topic
	foundAt time.Time

	kept sink.Kept[leftover] // of the last Read
}

func newLog(c *client, topic string, partition int32) *Log {
	l := &Log{client: c, topic: topic, partition: partition}
	l.stored.Store(1 << 10)
	l.unpacked.Store(1 << 10)
	return l
}

// Span returns the range of the partition's offsets: from the oldest message up to the last
// stable offset. The epoch is made from the topic's id; before Kafka 2.8 topics have none, and
// it is always the same. If the topic or partition does not exist, the error matches
// [feed.ErrNoTopic]. A compacted topic is refused: compaction deletes messages from its middle.
func (l *Log) Span(ctx context.Context) (feed.Span, error) {
	span, err := l.readSpan(ctx)
	if err != nil {
		return feed.Span{}, fmt.Errorf("find the oldest and the newest message: %w", l.explainError(ctx, err))
	}
	return span, nil
}

func (l *Log) readSpan(ctx context.Context) (feed.Span, error) {
	d, err := l.checkTopic(ctx)
	if err != nil {
		return feed.Span{}, err
	}
	var at [2]int64
	var asked errgroup.Group
	for i, of := range []offsetSpec{firstOffset, stableOffset} {
		asked.Go(func() error {
			offsets, err := l.client.listOffsets(ctx, l.topic, []int32{l.partition}, of)
			if err == nil {
				at[i] = offsets[0]
			}
			return err
		})
	}
	if err := asked.Wait(); err != nil {
		return feed.Span{}, err
	}
	return feed.Span{
		First: uint64(min(at[0], at[1])), End: uint64(at[1]),
		// Half of an id is random enough.
		Epoch: strconv.FormatUint(binary.BigEndian.Uint64(d.ID[8:]), 36),
	}, nil
}

// cachedTopic returns the newest description of the topic, and reads it again if it is older
// than topicCacheTime.
func (l *Log) cachedTopic(ctx context.Context) (d kadm.TopicDetail, recalled bool, err error) {
	l.mu.Lock()
	d, recalled = l.found, l.isFit() && time.Since(l.foundAt) < topicCacheTime
	l.mu.Unlock()
	if !recalled {
		d, err = l.checkTopic(ctx)
	}
	return d, recalled, err
}

// topicCacheTime is how long a description of the topic is used. The cluster answers to the
// topic's id, so another topic is never read. If it does not, the reader does not use it.
const topicCacheTime = time.Second

// checkTopic returns the topic as the cluster describes it, or an error if it cannot be
// read back.
func (l *Log) checkTopic(ctx context.Context) (kadm.TopicDetail, error) {
	d, err := l.client.describeTopic(ctx, l.topic)
	switch {
	case isMissingTopic(err):
		return d, fmt.Errorf("%w (%w)", feed.ErrNoTopic, err)
	case err != nil:
		return d, err
	case l.partition < 0 || int(l.partition) >= len(d.Partitions):
		return d, &noPartition{l.partition, len(d.Partitions)}
	}
	l.mu.Lock()
	l.found, l.foundAt = d, time.Now()
	known := l.isFit()
	l.mu.Unlock()
	if known {
		return d, nil
	}
	config, err := l.client.topicConfig(ctx, l.topic)
	if err != nil {
		return d, err
	}
	if policy := config["cleanup.policy"]; strings.Contains(policy, "compact") {
		// No hint to change cleanup.policy: other programs may need the newest message of each key, and
		// retention would delete it.
		return d, feed.Permanent(fmt.Errorf("it is compacted (cleanup.policy=%s), so messages are deleted from its middle; name a topic that is not compacted", policy))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fit, l.checked = d.ID, time.Now()
	return d, nil
}

// isFit reports whether the topic that was found last is known to be fit. The caller has locked
// mu.
func (l *Log) isFit() bool { return l.fit == l.found.ID && time.Since(l.checked) < recheck }

func (l *Log) explainError(ctx context.Context, err error) error {
	if !errors.Is(err, feed.ErrNoTopic) {
		err = l.client.explainError(ctx, err)
	}
	return fmt.Errorf("topic %q: %w", l.topic, err)
}

// noPartition reports that a topic does not have the partition that is to be read. It matches
// [feed.ErrNoTopic]: there are no messages.
type noPartition struct {
	wanted int32
	has    int
}

func (e *noPartition) Error() string {
	return fmt.Sprintf("it has no partition %d, only 0 to %d; name one of these with serve.feeds.NAME.from.partition or --partition", e.wanted, e.has-1)
}

func (e *noPartition) Is(target error) bool { return target == feed.ErrNoTopic }
