package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// What the checkpoint topic is created with. Kafka compacts it except for its newest
// segment, and a process reads it from the start: so segments are small, and the
// markers of transactions, one for every commit, are deleted soon.
const checkpointPartitions = 12

var checkpointConfig = []string{
	"cleanup.policy=compact",
	"segment.bytes=4194304",
	"min.cleanable.dirty.ratio=0.1",
	"delete.retention.ms=600000",
}

// checkpointTopic reads the checkpoint topic, for all sinks of a connection: they would
// each read the same partitions.
type checkpointTopic struct {
	conn *Conn

	mu         sync.Mutex
	checked    time.Time // when the topic and the cluster were last found fit
	fit        kadm.TopicID
	partitions map[int32]*partitionCache
}

// partitionCache holds the newest checkpoints of one partition of the checkpoint topic, as far
// as it has been read.
type partitionCache struct {
	lock   chan struct{} // held while reading
	turn   chan struct{} // held by the commit that will wait for the last stable offset
	id     kadm.TopicID
	newest map[string]stored // by key; nil if nothing has been read
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

// stored is a checkpoint as it is stored in the topic.
type stored struct {
	offset int64     // -1 if there is none
	time   time.Time // of the record
	data   []byte
	topic  string // the id of the feed's topic, empty if it is unknown
	// ends are offsets that the partitions of the feed's topic had reached, at least, when
	// the commit was made; there may be fewer than partitions, or none.
	ends []int64
	// by is the transaction that committed it, and byBefore that of the checkpoint before.
	by, byBefore committer
}

// is reports whether two are the same checkpoint.
func (s stored) is(other stored) bool {
	return s.offset == other.offset && bytes.Equal(s.data, other.data)
}

// checkpoints are the newest checkpoints of a topic, by feed.
type checkpoints map[string]stored

// of returns the checkpoint of a feed, with offset -1 if there is none.
func (c checkpoints) of(feedName string) stored {
	if s, ok := c[feedName]; ok {
		return s
	}
	return stored{offset: -1}
}

// place is where the checkpoints of a topic are: all in one partition, so that a
// transaction of one feed is ordered with those of the others.
type place struct {
	id        kadm.TopicID
	partition int32
}

func newCheckpointTopic(c *Conn) *checkpointTopic {
	return &checkpointTopic{conn: c, partitions: map[int32]*partitionCache{}}
}

// recheck is how long the checkpoint topic and the cluster are trusted to stay as
// they were found.
const recheck = time.Minute

// describe returns the checkpoint topic. It creates it if it is missing and create says
// so; if not it returns [kerr.UnknownTopicOrPartition].
func (t *checkpointTopic) describe(ctx context.Context, replication int, create bool) (description, error) {
	c := t.conn
	d, err := c.describe(ctx, c.cfg.Checkpoints)
	if missing(err) && create {
		d, err = c.create(ctx, c.cfg.Checkpoints, checkpointPartitions, replication, checkpointConfig)
	}
	if err != nil {
		return d, fmt.Errorf("topic %q for checkpoints: %w", c.cfg.Checkpoints, err)
	}
	return d, t.check(ctx, d)
}

// check returns an error if the topic or the cluster is unfit.
func (t *checkpointTopic) check(ctx context.Context, d description) error {
	t.mu.Lock()
	known := t.fit == d.id && time.Since(t.checked) < recheck
	t.mu.Unlock()
	if known {
		return nil
	}
	c := t.conn
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	if err := c.checkVersions(bounded); err != nil {
		return causeOf(bounded, err)
	}
	if err := c.mayUse(d); err != nil {
		return err
	}
	config, err := c.config(ctx, d.name)
	if err != nil {
		return err
	}
	if policy, ok := config["cleanup.policy"]; ok && policy != "compact" {
		return feed.Permanent(fmt.Errorf("topic %q for checkpoints has cleanup.policy=%s, by which it would lose them; if it has nothing else, run "+
			"'kafka-configs.sh --bootstrap-server %s --alter --topic %[1]s --add-config cleanup.policy=compact', and if it has, name another one in checkpoints",
			d.name, policy, c.cfg.Brokers[0]))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fit, t.checked = d.id, time.Now()
	return nil
}

// read returns the checkpoints of a topic as they are committed up to an offset of the
// partition, or further.
func (t *checkpointTopic) read(ctx context.Context, at place, to int64, topic string) (checkpoints, error) {
	return t.readUnless(ctx, at, to, math.MaxInt64, topic)
}

// readUnless is read, and begins at the start of the partition if records were read before at
// an offset or behind it where there can be none: the cluster has lost them.
func (t *checkpointTopic) readUnless(ctx context.Context, at place, to, none int64, topic string) (checkpoints, error) {
	p := t.cache(at.partition)
	select {
	case p.lock <- struct{}{}:
		defer func() { <-p.lock }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c := t.conn
	if p.id != at.id || p.last.offset >= none {
		p.reset(at.id)
	}
	err := p.readTo(ctx, c, at.partition, to)
	if errors.Is(err, kerr.OffsetOutOfRange) || errors.Is(err, errReplaced) {
		p.reset(at.id)
		err = p.readTo(ctx, c, at.partition, to)
	}
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", c.cfg.Checkpoints, err)
	}
	found := checkpoints{}
	for key, s := range p.newest {
		if name, ok := strings.CutPrefix(key, topic+"/"); ok {
			found[name] = s
		}
	}
	return found, nil
}

func (t *checkpointTopic) cache(partition int32) *partitionCache {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.partitions[partition]
	if p == nil {
		p = &partitionCache{lock: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
		t.partitions[partition] = p
	}
	return p
}

func (p *partitionCache) reset(id kadm.TopicID) {
	// Not lock and turn, which others wait for meanwhile.
	p.id, p.newest, p.last = id, nil, recordIdentity{}
}

// takeTurn waits until no other commit of this connection has the turn in a partition.
func (t *checkpointTopic) takeTurn(ctx context.Context, partition int32) (release func(), err error) {
	turn := t.cache(partition).turn
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// errReplaced reports that the newest record that was read is not there any more.
var errReplaced = errors.New("the partition has other records now")

// readTo reads up to an offset. It begins with the newest record that it has read, to see
// that it is still there. What it has read when it fails it keeps.
func (p *partitionCache) readTo(ctx context.Context, c *Conn, partition int32, to int64) error {
	from, seen := p.last.offset, p.last != (recordIdentity{})
	if seen {
		to = max(to, from+1)
	} else {
		start, err := c.offsets(ctx, c.cfg.Checkpoints, []int32{partition}, first)
		if err != nil {
			return err
		}
		p.newest, from = map[string]stored{}, start[0]
	}
	err := c.scan(ctx, c.cfg.Checkpoints, partition, from, to, func(r *kgo.Record) (bool, error) {
		if seen {
			seen = false
			if identityOf(r) != p.last {
				return false, errReplaced
			}
			return true, nil
		}
		p.add(r)
		return true, nil
	})
	if err != nil {
		return err
	}
	if seen {
		return errReplaced
	}
	return nil
}

func (p *partitionCache) add(r *kgo.Record) {
	p.last = identityOf(r)
	key := string(r.Key)
	if r.Value == nil {
		delete(p.newest, key)
		return
	}
	s := stored{offset: r.Offset, time: r.Timestamp, data: bytes.Clone(r.Value), by: committer{r.ProducerID, r.ProducerEpoch}, byBefore: p.newest[key].by}
	for _, h := range r.Headers {
		switch h.Key {
		case topicIDHeader:
			s.topic = string(h.Value)
		case topicEndsHeader:
			s.ends = parseEnds(string(h.Value))
		}
	}
	p.newest[key] = s
}

// The headers of a checkpoint's record: the id of the feed's topic, and the offsets that its
// partitions have reached, in their order and separated by commas.
const (
	topicIDHeader   = "Feedbridge-Topic-Id"
	topicEndsHeader = "Feedbridge-Topic-Ends"
)

// checkpointRecord is the record of a checkpoint, for a topic whose partitions end at ends or
// behind that.
func (s *Sink) checkpointRecord(cp checkpoint.Checkpoint, ends []int64) kgo.Record {
	r := kgo.Record{Topic: s.conn.cfg.Checkpoints, Partition: s.place.partition, Key: []byte(s.name), Value: checkpoint.Encode(cp)}
	if id := idText(s.id); id != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: topicIDHeader, Value: []byte(id)})
	}
	if len(ends) > 0 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: topicEndsHeader, Value: appendEnds(nil, ends)})
	}
	return r
}

func appendEnds(text []byte, ends []int64) []byte {
	for i, n := range ends {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return text
}

// parseEnds returns what appendEnds wrote, and none of it if some cannot be read: a later
// version may write another form.
func parseEnds(text string) []int64 {
	var ends []int64
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 {
			return nil
		}
		ends = append(ends, n)
	}
	return ends
}

// findCheckpoint returns where the checkpoints of the topic are, and the newest of them, once
// every transaction there has ended. It sets place as it goes.
//
// They are in the partition that the topic's name gives. Once somebody has added partitions
// to the checkpoint topic that is another one; checkpoints that are there already stay
// where they are.
func (s *Sink) findCheckpoint(ctx context.Context, create bool, patience time.Duration, meanwhile func(context.Context, time.Duration) error) (place, checkpoints, error) {
	d, err := s.conn.checkpoints.describe(ctx, s.topic.Replication, create)
	if err != nil {
		return place{}, nil, err
	}
	home := place{d.id, partitionOf(s.topic.Name, len(d.leaders))}
	if was := s.place; was.id == home.id && was != home && int(was.partition) < len(d.leaders) {
		feeds, err := s.feeds(ctx, was, patience, meanwhile)
		if err != nil || feeds.of(s.topic.Feed).offset >= 0 {
			return was, feeds, err
		}
	}
	s.place = home
	feeds, err := s.feeds(ctx, home, patience, meanwhile)
	if err != nil || feeds.of(s.topic.Feed).offset >= 0 {
		return home, feeds, err
	}
	at, own, found, err := s.elsewhere(ctx, d)
	if err != nil || !found || !own && len(feeds) > 0 {
		return home, feeds, err
	}
	s.place = at
	feeds, err = s.feeds(ctx, at, patience, meanwhile)
	return at, feeds, err
}

// elsewhere returns the partition with the newest checkpoint of this feed, or if there is
// none, with the newest of the topic; own reports which. It does not look in place.
func (s *Sink) elsewhere(ctx context.Context, d description) (at place, own, found bool, err error) {
	ends, err := s.conn.offsets(ctx, d.name, d.partitions(), stable)
	if err != nil {
		return at, false, false, err
	}
	var newest time.Time
	for i, to := range ends {
		there := place{d.id, int32(i)}
		if there == s.place || to == 0 {
			continue
		}
		feeds, err := s.conn.checkpoints.read(ctx, there, to, s.topic.Name)
		if err != nil {
			return at, false, false, err
		}
		for name, cp := range feeds {
			mine := name == s.topic.Feed
			if !found || mine && !own || mine == own && cp.time.After(newest) {
				at, own, found, newest = there, mine, true, cp.time
			}
		}
	}
	return at, own, found, nil
}
