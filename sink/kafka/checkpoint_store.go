package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// checkpointStore finds, compares and makes the checkpoint of one feed.
type checkpointStore struct {
	client   *client
	topic    *checkpointTopic
	to       Topic // of the feed
	location topicPartition
	// newest is the newest checkpoint that this sink has seen. A commit is refused unless it
	// still is.
	newest storedCheckpoint
}

// checkpointKey returns the record key of a feed's checkpoint.
func (s *checkpointStore) checkpointKey(feedName string) []byte {
	return []byte(s.to.Name + "/" + feedName)
}

// checkpointRecord returns the record of a checkpoint, with the topics and the sequence of its stored
// form.
func (s *checkpointStore) checkpointRecord(cp checkpoint.Checkpoint, stored storedCheckpoint) kgo.Record {
	r := kgo.Record{Topic: s.client.cfg.Checkpoints, Partition: s.location.partition, Key: s.checkpointKey(s.to.Feed), Value: checkpoint.Encode(cp)}
	for _, h := range []kgo.RecordHeader{
		{Key: topicIDHeader, Value: []byte(stored.topic.id)},
		{Key: topicEndsHeader, Value: appendEnds(nil, stored.topic.ends)},
		{Key: deadIDHeader, Value: []byte(stored.dead.id)},
		{Key: deadEndsHeader, Value: appendEnds(nil, stored.dead.ends)},
	} {
		if len(h.Value) > 0 {
			r.Headers = append(r.Headers, h)
		}
	}
	if stored.sequence > 0 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: sequenceHeader, Value: strconv.AppendInt(nil, stored.sequence, 10)})
	}
	return r
}

// explainWriteError is for an error of writing a checkpoint. It is no [sink.ErrTooLarge], for that is about
// an entity.
func (s *checkpointStore) explainWriteError(err error) error {
	if !errors.Is(err, kerr.MessageTooLarge) && !errors.Is(err, kerr.RecordListTooLarge) {
		return err
	}
	return feed.Permanent(fmt.Errorf("the checkpoint is too large: if max.message.bytes of topic %s is lower than %d, run 'kafka-configs.sh --bootstrap-server %s --alter --topic %[1]s "+
		"--add-config max.message.bytes=1048588'; if not, its cursor grows with what the feed repeats: report the feed, or move the position with 'feedbridge checkpoint set %[4]s'",
		s.client.cfg.Checkpoints, defaultBatch, s.client.cfg.Brokers[0], s.to.Feed))
}

// findCheckpoints returns the newest checkpoints of the topic, once every transaction in their
// partition has ended. It sets location to that partition.
//
// The partition is the one that the topic's name hashes to. When partitions are added to the
// checkpoint topic, the name may hash to another one; existing checkpoints stay in their
// partition.
func (s *checkpointStore) findCheckpoints(ctx context.Context, create bool, patience time.Duration, meanwhile meanwhile) (checkpoints, error) {
	d, err := s.topic.describeTopic(ctx, s.to.Replication, create)
	if err != nil {
		return nil, err
	}
	s.location = topicPartition{d.ID, partitionOf(s.to.Name, len(d.Partitions))}
	feeds, err := s.readCheckpoints(ctx, patience, meanwhile)
	if err != nil || feeds.forFeed(s.to.Feed).offset >= 0 {
		return feeds, err
	}
	at, own, found, err := s.findElsewhere(ctx, d)
	if err != nil || !found || !own && len(feeds) > 0 {
		return feeds, err
	}
	s.location = at
	return s.readCheckpoints(ctx, patience, meanwhile)
}

// findElsewhere returns the partition with the newest checkpoint of this feed, or if there is
// none, with the newest of the topic; own reports which. It does not search location.
func (s *checkpointStore) findElsewhere(ctx context.Context, d kadm.TopicDetail) (at topicPartition, own, found bool, err error) {
	ends, err := s.client.listOffsets(ctx, d.Topic, d.Partitions.Numbers(), stableOffset)
	if err != nil {
		return at, false, false, err
	}
	var newest time.Time
	for i, to := range ends {
		there := topicPartition{d.ID, int32(i)}
		if there == s.location || to == 0 {
			continue
		}
		// Each feed that starts for the first time comes here, so a partition is not read for each
		// of them. A checkpoint can be elsewhere only since partitions were added.
		feeds, err := s.topic.readCheckpointsSince(ctx, there, to, s.to.Name, s.topic.lastAdded())
		if err != nil {
			return at, false, false, err
		}
		for name, cp := range feeds {
			mine := name == s.to.Feed
			if !found || mine && !own || mine == own && cp.time.After(newest) {
				at, own, found, newest = there, mine, true, cp.time
			}
		}
	}
	return at, own, found, nil
}

// readCheckpoints returns the checkpoints of the topic in the partition location, once every
// transaction in it has ended.
func (s *checkpointStore) readCheckpoints(ctx context.Context, patience time.Duration, meanwhile meanwhile) (checkpoints, error) {
	c := s.client
	ends, err := stableWait{c, c.cfg.Checkpoints, []int32{s.location.partition}, patience, meanwhile}.toEnd(ctx, nil)
	if err != nil {
		return nil, err
	}
	return s.topic.readCheckpoints(ctx, s.location, ends[0], s.to.Name)
}

// readNewest returns the newest checkpoint of the feed that is committed. It does not wait for
// transactions that are open.
func (s *checkpointStore) readNewest(ctx context.Context) (storedCheckpoint, error) {
	c := s.client
	ends, err := c.listOffsets(ctx, c.cfg.Checkpoints, []int32{s.location.partition}, stableOffset)
	if err != nil {
		return storedCheckpoint{}, err
	}
	feeds, err := s.topic.readCheckpoints(ctx, s.location, ends[0], s.to.Name)
	return feeds.forFeed(s.to.Feed), err
}

// isCommitted reports whether a checkpoint of this feed that this sink has seen is still in the
// log. If it is, so is everything committed before it. A cluster can lose even confirmed
// records, and another copy may have written other commits at their offsets since. A checkpoint
// that was compacted away counts as lost.
func (s *checkpointStore) isCommitted(ctx context.Context, cp storedCheckpoint) (found bool, err error) {
	switch {
	case cp.offset < 0:
		return true, nil
	case cp.offset >= s.newest.offset:
		return cp.equals(s.newest), nil
	}
	for r, err := range s.client.readRecords(ctx, s.client.cfg.Checkpoints, s.location.partition, cp.offset, cp.offset+1) {
		switch {
		case errors.Is(err, kerr.OffsetOutOfRange):
			return false, nil
		case err != nil:
			return false, err
		}
		found = r.Offset == cp.offset && bytes.Equal(r.Value, cp.data)
	}
	return found, nil
}

// newestOf returns the feed's checkpoint among feeds; that of another feed, if the topic is not
// shared and has none of this one; or the zero value.
func (s *checkpointStore) newestOf(feeds checkpoints) storedCheckpoint {
	last, found := feeds[s.to.Feed]
	if others := s.otherFeeds(feeds); !found && len(others) > 0 {
		return feeds[others[0]]
	}
	return last
}

// otherFeeds returns the other feeds that have a checkpoint, in order; none if the topic is shared.
func (s *checkpointStore) otherFeeds(feeds checkpoints) []string {
	if s.to.Shared {
		return nil
	}
	names := slices.Sorted(maps.Keys(feeds))
	return slices.DeleteFunc(names, func(name string) bool { return name == s.to.Feed })
}

// checkOwner returns an error that matches [checkpoint.ErrForeign] if another feed
// writes into the topic and it is not shared.
func (s *checkpointStore) checkOwner(feeds checkpoints) error {
	if others := s.otherFeeds(feeds); len(others) > 0 {
		return feed.Permanent(fmt.Errorf("%w: it has a checkpoint of feed %q, this is feed %q; give the feed a topic of its own, "+
			"or set \"shared: true\" for all feeds that write into it, or take the topic over with 'feedbridge checkpoint reset %[3]s', "+
			"if the other feed is gone", checkpoint.ErrForeign, others[0], s.to.Feed))
	}
	return nil
}

// checkUnchanged returns [checkpoint.ErrConflict] unless the newest checkpoint, as the
// answering broker knows it, is the one that this sink has resumed from.
func (s *checkpointStore) checkUnchanged(ctx context.Context) error {
	was := s.location
	feeds, err := s.findCheckpoints(ctx, false, s.client.graceTime(), nil)
	if err != nil {
		return err
	}
	if s.location != was {
		return fmt.Errorf("topic %q for checkpoints is another one since the sink resumed", s.client.cfg.Checkpoints)
	}
	return s.checkNewest(feeds)
}

// readBelow returns the newest checkpoints of the topic below own, which is the offset of
// the first record of the open transaction in the partition. It is a linearizable read.
//
// A broker that was deposed as the leader of the partition answers with old offsets, and
// nothing fences such a read. But the true leader has appended the record at own, so it had
// every record below, and none can be added there. The last stable offset cannot pass own while
// this transaction is open, and it reaches own when every transaction below has ended. So a
// broker that says it has reached own knows everything below own, and how it ended. A copy that
// commits a checkpoint of this feed above own has initialized the transactional id after this
// sink. Either this transaction can no longer be committed; or it was committed before, and
// that copy finds its checkpoint when it reads below its own.
func (s *checkpointStore) readBelow(ctx context.Context, own int64) (checkpoints, error) {
	c := s.client
	wait := stableWait{c, c.cfg.Checkpoints, []int32{s.location.partition}, c.cfg.Timeout, nil}
	if _, err := wait.upTo(ctx, []int64{own}); err != nil {
		return nil, err
	}
	return s.topic.readCheckpoints(ctx, s.location, own, s.to.Name)
}

// checkNewest returns an error unless the feed's checkpoint among feeds is the one that this
// sink has seen last, and there is no other feed's in a topic that is not shared. It compares
// also the content: a cluster that has lost its newest records gives their offsets to others.
func (s *checkpointStore) checkNewest(feeds checkpoints) error {
	if now := feeds.forFeed(s.to.Feed); !now.equals(s.newest) {
		return fmt.Errorf("%w: the newest checkpoint has offset %d, not %d", checkpoint.ErrConflict, now.offset, s.newest.offset)
	}
	return s.checkOwner(feeds)
}
