package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/limit"
)

// checkpointPartitions is the number of partitions of a checkpoint topic that is created. They spread the
// checkpoints of many feeds over the brokers, and nothing else depends on their number. Each partition costs
// a broker a few open files, and Kafka has 50 of __consumer_offsets itself.
const checkpointPartitions = 60

// missingCheckpointTopic returns the checkpoint topic as it is created. Kafka compacts it except for its newest
// segment, and a process reads it from the start: so segments are small, and the
// markers of transactions, one for every commit, are deleted soon.
func missingCheckpointTopic(c *client, replication int) newTopic {
	return newTopic{c, c.cfg.Checkpoints, checkpointPartitions, replication, []string{
		"cleanup.policy=compact",
		"segment.bytes=4194304",
		"min.cleanable.dirty.ratio=0.1",
		"delete.retention.ms=600000",
	}, true}
}

// checkpointTopic reads the checkpoint topic, for all sinks of a connection: they would
// each read the same partitions.
type checkpointTopic struct {
	client *client

	mu         sync.Mutex
	checked    time.Time // when the topic and the cluster were last found fit
	fit        kadm.TopicID
	partitions map[int32]*partitionCache
	// count is the number of partitions, and counted when it was first seen.
	count   int
	counted time.Time
}

// partitionCache holds the newest checkpoints of one partition of the checkpoint topic, as far
// as it has been read.
type partitionCache struct {
	lock *limit.Limit // of one that reads
	// turn is held by the commit that will wait for the last stable offset, for the time of grace at
	// most: a feed whose topic takes no messages does not hold up the others.
	turn   *limit.Limit
	id     kadm.TopicID
	newest map[string]storedCheckpoint // by key; nil if nothing has been read
	// read is when it was last read as far as asked for.
	read time.Time
	// last is the newest record that was read. If it is not at its offset any more, the
	// cluster has lost the end of the partition and has filled it again.
	last recordIdentity
}

// recordIdentity distinguishes a record from another one with the same offset.
type recordIdentity struct {
	offset, timestamp, producer int64
	producerEpoch               int16
	leaderEpoch                 int32
}

func identityOf(r *kgo.Record) recordIdentity {
	return recordIdentity{r.Offset, r.Timestamp.UnixMilli(), r.ProducerID, r.ProducerEpoch, r.LeaderEpoch}
}

// storedCheckpoint is a checkpoint as the topic stores it.
type storedCheckpoint struct {
	offset int64     // -1 if there is none
	time   time.Time // of the record
	data   []byte
	// topic and dead are the feed's topic and its dead-letter topic as of the commit.
	topic, dead topicEnds
	// sequence is the highest of the messages so far; see sequenceHeader.
	sequence int64
	// by is the transaction that committed it, and byBefore that of the checkpoint before.
	by, byBefore committer
}

// noCheckpoint represents the checkpoint before the first commit.
var noCheckpoint = storedCheckpoint{offset: -1}

// equals reports whether s and other are the same checkpoint.
func (s storedCheckpoint) equals(other storedCheckpoint) bool {
	return s.offset == other.offset && bytes.Equal(s.data, other.data)
}

// committer is a transaction of version 2, as a partition knows it: each has an epoch of
// its own.
type committer struct {
	producer int64
	epoch    int16
}

// committedBy reports whether the transaction c, and no other, committed the checkpoint.
// If the checkpoint before it has the same epoch, they are of version 1, and which of them
// hangs is unknown.
func (s storedCheckpoint) committedBy(c committer) bool { return s.by == c && s.byBefore != c }

// checkpoints are the newest checkpoints of a topic, by feed.
type checkpoints map[string]storedCheckpoint

// forFeed returns the checkpoint of a feed, with offset -1 if there is none.
func (c checkpoints) forFeed(feedName string) storedCheckpoint {
	if s, ok := c[feedName]; ok {
		return s
	}
	return noCheckpoint
}

// topicPartition is the partition of the checkpoint topic with the checkpoints of a feed's
// topic. They are all in one, so that the transactions of its feeds are ordered.
type topicPartition struct {
	id        kadm.TopicID
	partition int32
}

func newCheckpointTopic(c *client) *checkpointTopic {
	return &checkpointTopic{client: c, partitions: map[int32]*partitionCache{}}
}

// recheck is how long the checkpoint topic and the cluster are trusted to stay as
// they were found.
const recheck = time.Minute

// describeTopic returns the description of the checkpoint topic. If the topic is missing, it
// creates it if create is set, and otherwise returns [kerr.UnknownTopicOrPartition].
func (t *checkpointTopic) describeTopic(ctx context.Context, replication int, create bool) (kadm.TopicDetail, error) {
	c := t.client
	d, err := c.describeTopic(ctx, c.cfg.Checkpoints)
	if isMissingTopic(err) && create {
		d, err = missingCheckpointTopic(c, replication).createTopic(ctx)
	}
	if err != nil {
		return d, fmt.Errorf("topic %q for checkpoints: %w", c.cfg.Checkpoints, err)
	}
	t.mu.Lock()
	if t.count != len(d.Partitions) {
		t.count, t.counted = len(d.Partitions), time.Now()
	}
	t.mu.Unlock()
	return d, t.checkTopic(ctx, d)
}

// checkTopic returns an error if the topic or the cluster is unfit.
func (t *checkpointTopic) checkTopic(ctx context.Context, d kadm.TopicDetail) error {
	t.mu.Lock()
	known := t.fit == d.ID && time.Since(t.checked) < recheck
	t.mu.Unlock()
	if known {
		return nil
	}
	c := t.client
	bounded, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	if err := c.checkVersions(bounded); err != nil {
		return causeOf(bounded, err)
	}
	config, err := c.permittedConfig(ctx, d)
	if err != nil {
		return err
	}
	if policy, ok := config["cleanup.policy"]; ok && policy != "compact" {
		return feed.Permanent(fmt.Errorf("topic %q for checkpoints has cleanup.policy=%s, by which it would lose them; if it has nothing else, run "+
			"'kafka-configs.sh --bootstrap-server %s --alter --topic %[1]s --add-config cleanup.policy=compact', and if it has, name another one in checkpoints",
			d.Topic, policy, c.cfg.Brokers[0]))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fit, t.checked = d.ID, time.Now()
	return nil
}

// readCheckpoints returns the checkpoints of a topic as they are committed up to an offset of the
// partition, or further.
func (t *checkpointTopic) readCheckpoints(ctx context.Context, at topicPartition, to int64, topic string) (checkpoints, error) {
	return t.readCheckpointsSince(ctx, at, to, topic, time.Now())
}

// readCheckpointsSince is like readCheckpoints, but does not read a partition again that was read
// after since.
func (t *checkpointTopic) readCheckpointsSince(ctx context.Context, at topicPartition, to int64, topic string, since time.Time) (checkpoints, error) {
	p := t.partitionCache(at.partition)
	slot, err := p.lock.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer slot.Release()
	c := t.client
	if p.id != at.id {
		p.resetTo(at.id)
	}
	if began := time.Now(); !p.read.After(since) {
		err := p.readTo(ctx, c, at.partition, to)
		if errors.Is(err, kerr.OffsetOutOfRange) || errors.Is(err, errReplaced) {
			p.resetTo(at.id)
			err = p.readTo(ctx, c, at.partition, to)
		}
		if err != nil {
			return nil, fmt.Errorf("read topic %s: %w", c.cfg.Checkpoints, err)
		}
		p.read = began
	}
	found := checkpoints{}
	for key, s := range p.newest {
		if name, ok := strings.CutPrefix(key, topic+"/"); ok {
			found[name] = s
		}
	}
	return found, nil
}

// lastAdded returns the time after which a partition must have been read to have every checkpoint
// that was left behind when partitions were added.
func (t *checkpointTopic) lastAdded() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := time.Now().Add(-recheck); t.counted.Before(old) {
		return old
	}
	return t.counted
}

func (t *checkpointTopic) partitionCache(partition int32) *partitionCache {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.partitions[partition]
	if p == nil {
		p = &partitionCache{lock: limit.New(1, 0), turn: limit.New(1, t.client.graceTime())}
		t.partitions[partition] = p
	}
	return p
}

func (p *partitionCache) resetTo(id kadm.TopicID) {
	// Not lock and turn, which others wait for meanwhile.
	p.id, p.newest, p.read, p.last = id, nil, time.Time{}, recordIdentity{}
}

// errReplaced reports that the newest record that was read is no longer in the partition.
var errReplaced = errors.New("the partition has other records now")

// readTo reads up to an offset. It begins with the newest record that it has read, to check
// that it is still there. After an error it keeps the records that it has read.
func (p *partitionCache) readTo(ctx context.Context, c *client, partition int32, to int64) error {
	from, seen := p.last.offset, p.last != (recordIdentity{})
	if seen && to <= from {
		// Another sink has read further meanwhile, unless the cluster has lost that record. A
		// fetch would wait for the next one.
		now, err := c.listOffsets(ctx, c.cfg.Checkpoints, []int32{partition}, stableOffset)
		if err != nil {
			return err
		}
		if now[0] <= from {
			return errReplaced
		}
		to = from + 1
	}
	if !seen {
		start, err := c.listOffsets(ctx, c.cfg.Checkpoints, []int32{partition}, firstOffset)
		if err != nil {
			return err
		}
		p.newest, from = map[string]storedCheckpoint{}, start[0]
	}
	for r, err := range c.readRecords(ctx, c.cfg.Checkpoints, partition, from, to) {
		switch {
		case err != nil:
			return err
		case !seen:
			p.addRecord(r)
		case identityOf(r) != p.last:
			return errReplaced
		}
		seen = false
	}
	if seen {
		return errReplaced
	}
	return nil
}

func (p *partitionCache) addRecord(r *kgo.Record) {
	p.last = identityOf(r)
	key := string(r.Key)
	if r.Value == nil {
		delete(p.newest, key)
		return
	}
	s := storedCheckpoint{offset: r.Offset, time: r.Timestamp, data: bytes.Clone(r.Value), sequence: parseSequence(r.Headers), by: committer{r.ProducerID, r.ProducerEpoch}, byBefore: p.newest[key].by}
	for _, h := range r.Headers {
		switch h.Key {
		case topicIDHeader:
			s.topic.id = string(h.Value)
		case topicEndsHeader:
			s.topic.ends = parseEnds(string(h.Value))
		case deadIDHeader:
			s.dead.id = string(h.Value)
		case deadEndsHeader:
			s.dead.ends = parseEnds(string(h.Value))
		}
	}
	p.newest[key] = s
}

// The headers of a checkpoint's record: the id of the feed's topic, and the offsets that its
// partitions have reached, in their order and separated by commas; and those of its dead-letter
// topic.
const (
	topicIDHeader   = "Feedbridge-Topic-Id"
	topicEndsHeader = "Feedbridge-Topic-Ends"
	deadIDHeader    = "Feedbridge-Dead-Topic-Id"
	deadEndsHeader  = "Feedbridge-Dead-Topic-Ends"
)
