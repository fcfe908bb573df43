package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// dedupeLoader keeps the IDs and marks in memory equal to those of the feed's messages in the
// topic.
type dedupeLoader struct {
	client *client
	topic  Topic
	ids    *sink.IDs
	// sequence is the highest of the feed's messages, as far as they or a checkpoint were seen; see
	// sequenceHeader. It is never lowered.
	sequence int64

	// seen is the state that ids was last caught up with: the next offset of each partition of the
	// topic and of the dead letters, the checkpoint, and when a person last moved the position. It
	// outlives errors, and so does lost.
	seen struct {
		known       bool
		moved       time.Time
		topic, dead topicEnds
		checkpoint  storedCheckpoint
		lost        error // the loss that a commit found since a person moved the position, or nil
	}
}

// An offsetRange is a part of a partition: the records from one offset on and before another.
// start is where the partition starts.
type offsetRange struct {
	topic           string
	id              kadm.TopicID // of dead letters only
	partition       int32
	start, from, to int64
}

// topicRanges returns the ranges of all partitions of the topic, and that of its dead letters.
func (l *dedupeLoader) topicRanges(starts, ends []int64, dead offsetRange) []offsetRange {
	var all []offsetRange
	for p, to := range ends {
		all = append(all, offsetRange{topic: l.topic.Name, partition: int32(p), start: starts[p], from: starts[p], to: to})
	}
	if dead.topic != "" {
		all = append(all, dead)
	}
	return all
}

// searchLimit returns how many offsets of a partition are read at most to find a window of this
// feed's newest messages. Not every offset has one: there are markers, records that were
// aborted or compacted away, and messages of other feeds.
func (l *dedupeLoader) searchLimit() int64 { return 16 * int64(l.topic.Window) }

// resetIDs empties ids, for the topic that d describes.
func (l *dedupeLoader) resetIDs(d kadm.TopicDetail) {
	l.ids.Reset()
	l.seen.known, l.seen.topic, l.seen.dead = true, topicEnds{idText(d.ID), make([]int64, len(d.Partitions))}, topicEnds{}
}

// catchUp makes ids hold the newest IDs that the topic holds of this feed, and all
// of its marks, for cp, which is the newest checkpoint of the store. The partitions end at
// ends; dead is the range of the dead letters, zero if there are none. It reads nothing that it has read before, and of a topic without marks never much
// more than the window, unless other messages are between.
func (l *dedupeLoader) catchUp(ctx context.Context, d kadm.TopicDetail, ends []int64, dead offsetRange, cp checkpoint.Checkpoint, store *checkpointStore) error {
	starts, err := l.client.listOffsets(ctx, d.Topic, d.Partitions.Numbers(), firstOffset)
	if err != nil {
		return err
	}
	committed, err := store.isCommitted(ctx, l.seen.checkpoint)
	if err != nil {
		return err
	}
	if !committed || !l.matchesTopic(d, starts, ends) || !l.followsDead(dead) || !cp.Moved.Equal(l.seen.moved) {
		// The topic is another one, or has lost messages; or a person has moved the
		// position, perhaps after deleting some; or the cluster has lost the checkpoint with
		// which ids was caught up, and so perhaps the messages before it.
		l.resetIDs(d)
		l.seen.moved = cp.Moved
		err = l.loadNewest(ctx, l.topicRanges(starts, ends, dead), cp.Count > 0)
	} else {
		copy(starts, l.seen.topic.ends) // partitions may have been added
		if dead.topic != "" {
			dead.start, dead.from = l.seen.dead.ends[0], l.seen.dead.ends[0]
		}
		_, err = l.loadRanges(ctx, l.topicRanges(starts, ends, dead))
	}
	if err != nil {
		// Some may be loaded already, and would be loaded twice.
		l.seen.topic.ends = nil
		return fmt.Errorf("load the IDs of the topic: %w", err)
	}
	l.noteState(ends, dead, store.newest)
	return nil
}

// noteState records that ids was caught up with a checkpoint, with partitions that end at ends, and
// with the dead letters. If there are none, as in a configuration without them, it keeps what the
// checkpoint has of their topic for a configuration with them.
func (l *dedupeLoader) noteState(ends []int64, dead offsetRange, newest storedCheckpoint) {
	l.seen.topic.ends, l.seen.dead, l.seen.checkpoint = ends, newest.dead, newest
	l.sequence = max(l.sequence, newest.sequence)
	if dead.topic != "" {
		l.seen.dead = topicEnds{idText(dead.id), []int64{dead.to}}
	}
}

// matchesTopic reports whether ids still matches the topic up to seen.topic.
func (l *dedupeLoader) matchesTopic(d kadm.TopicDetail, starts, ends []int64) bool {
	if !l.seen.known || l.seen.topic.ends == nil || !l.seen.topic.isOf(d.ID) || len(l.seen.topic.ends) > len(ends) {
		return false
	}
	for p, next := range l.seen.topic.ends {
		if starts[p] > next || next > ends[p] || ends[p]-next > l.searchLimit() && !l.ids.Marked() {
			return false
		}
	}
	return true
}

// followsDead reports whether ids still matches the dead letters up to seen.dead. A person may have
// deleted some, or their topic.
func (l *dedupeLoader) followsDead(dead offsetRange) bool {
	seen := l.seen.dead
	return dead.topic == "" || seen.isOf(dead.id) && len(seen.ends) == 1 && seen.ends[0] >= dead.start && seen.ends[0] <= dead.to
}

// loadNewest loads the IDs of about a window of the newest messages, or of all messages within
// searchLimit. If one of them has a mark, it loads all messages, because their source needs
// every mark, however old. If there is no message within searchLimit although some were
// published (some), it reads further back until it finds one, to learn whether messages have
// marks.
func (l *dedupeLoader) loadNewest(ctx context.Context, ranges []offsetRange, some bool) error {
	// Of a topic of one feed, what is read in vain are markers and aborted transactions: however large
	// the last one is, the newest IDs are before it.
	all, limit := false, int64(math.MaxInt64)
	if l.topic.Shared {
		limit = l.searchLimit()
	}
	for span := 2*int64(l.topic.Window)/int64(len(ranges)) + 1; ; span *= 4 {
		complete := true
		for i := range ranges {
			r := &ranges[i]
			if r.from = r.start; !all {
				r.from = max(r.start, r.to-min(span, limit))
			}
			complete = complete && r.from == r.start
		}
		loaded, err := l.loadRanges(ctx, ranges)
		switch {
		case err != nil:
			return err
		case complete:
			return nil
		case l.ids.Marked():
			all = true
		case loaded >= l.topic.Window, span >= limit && (l.ids.Len() > 0 || !some):
			return nil
		case span >= limit:
			limit = math.MaxInt64
		}
		l.ids.Reset()
	}
}

// loadRanges loads the IDs of this feed's messages in ranges of all partitions, in the order of their
// numbers. Those without one come first: they were written before the topic had keys or dead letters, to one
// partition, and have no marks. It returns how many there are behind the point from which on the messages of
// all partitions are known to be among them.
func (l *dedupeLoader) loadRanges(ctx context.Context, ranges []offsetRange) (int, error) {
	var open []*partitionReader
	// Records before the first own one of a partition that is read in part are unknown. What has a higher
	// number than all of these is newer, and so is the rest of such a partition if there is one only.
	edge, whole, partial := int64(-1), true, 0
	size := int64(0)
	for _, r := range ranges {
		size += r.to - r.from
	}
	defer sink.Announce(l.client.log, l.topic.Name, uint64(size))()
	for _, part := range ranges {
		t := &partitionReader{
			reader: reader{client: l.client, topic: part.topic, partition: part.partition},
			next:   part.from, to: part.to, atMost: max(64<<10, fetchBytes/int32(len(ranges))),
		}
		own, err := l.peekOwnRecord(ctx, t)
		if err != nil {
			return 0, err
		}
		if own != nil {
			open = append(open, t)
		}
		if t.partial = part.from > part.start; t.partial {
			partial++
			edge, whole = max(edge, t.sequence), whole && own != nil
		}
	}
	n := 0
	for len(open) > 0 {
		oldest := 0
		for i, t := range open {
			if t.sequence < open[oldest].sequence {
				oldest = i
			}
		}
		t := open[oldest]
		l.ids.LoadMessage(headerFields(t.records[0].Headers))
		l.sequence = max(l.sequence, t.sequence)
		if whole && (t.sequence > edge || t.partial && partial == 1) {
			n++
		}
		t.records = t.records[1:]
		switch r, err := l.peekOwnRecord(ctx, t); {
		case err != nil:
			return 0, err
		case r == nil:
			open = slices.Delete(open, oldest, oldest+1)
		}
	}
	return n, nil
}

// peekOwnRecord returns the next record of this feed, nil at the end. It drops those of other
// feeds before it: they say nothing about the order of this feed's.
func (l *dedupeLoader) peekOwnRecord(ctx context.Context, t *partitionReader) (*kgo.Record, error) {
	for {
		r, err := t.peekRecord(ctx)
		if err != nil || r == nil {
			return nil, err
		}
		if l.isOwnRecord(r) {
			t.sequence = parseSequence(r.Headers)
			return r, nil
		}
		t.records = t.records[1:]
	}
}

// partitionReader reads the rest of a partition.
type partitionReader struct {
	reader
	next, to int64
	atMost   int32
	records  []*kgo.Record
	sequence int64 // of the next record; see sequenceHeader
	partial  bool  // it does not begin at the start of the partition
}

// peekRecord returns the next record, nil at the end.
func (t *partitionReader) peekRecord(ctx context.Context) (*kgo.Record, error) {
	for len(t.records) == 0 && t.next < t.to {
		records, next, err := t.fetchRecords(ctx, t.next, t.to, t.atMost)
		if errors.Is(err, kerr.OffsetOutOfRange) {
			return nil, errors.New("messages were deleted while they were read")
		}
		if err != nil {
			return nil, err
		}
		if n, _ := slices.BinarySearchFunc(records, t.to, func(r *kgo.Record, to int64) int { return int(r.Offset - to) }); n < len(records) {
			records = records[:n]
		}
		t.records, t.next = records, next
	}
	if len(t.records) == 0 {
		return nil, nil
	}
	return t.records[0], nil
}

// hasMessages reports whether the topic has messages of this feed, or may have had some, before
// the ends of its partitions, or has dead letters of it, whose range is dead.
func (l *dedupeLoader) hasMessages(ctx context.Context, d kadm.TopicDetail, ends []int64, dead offsetRange) (found bool, err error) {
	starts, err := l.client.listOffsets(ctx, d.Topic, d.Partitions.Numbers(), firstOffset)
	if err != nil {
		return false, err
	}
	for _, part := range l.topicRanges(starts, ends, dead) {
		from := part.start
		if l.topic.Shared {
			// A shared topic may be too large to be read completely.
			from = max(from, part.to-l.searchLimit())
		} else if from > 0 {
			// Deleted messages count, too.
			return true, nil
		}
		for r, err := range l.client.readRecords(ctx, part.topic, part.partition, from, part.to) {
			if err != nil || l.isOwnRecord(r) {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// isOwnRecord reports whether a record counts as this feed's.
func (l *dedupeLoader) isOwnRecord(r *kgo.Record) bool {
	if !l.topic.Shared {
		return true
	}
	for _, h := range r.Headers {
		if h.Key == message.FeedName {
			return string(h.Value) == l.topic.Feed
		}
	}
	return false
}

// endsAfter returns the ends of the topic and of its dead-letter topic, as far as this sink knows
// them, once its records in written are committed: the later of the ends when it resumed and the
// ends of its own records. No other copy writes for this feed, so the IDs up to there are known.
func (l *dedupeLoader) endsAfter(written kadm.Offsets) (topic, dead topicEnds) {
	return l.seen.topic.endsAfter(written[l.topic.Name]), l.seen.dead.endsAfter(written[l.topic.Name+sink.DeadSuffix])
}

// knownPartitions returns the partitions of the topic that compareEnds compares.
func (l *dedupeLoader) knownPartitions() (known kadm.TopicsSet) {
	for p := range l.seen.topic.ends {
		known.Add(l.topic.Name, int32(p))
	}
	return known
}

// compareEnds returns an error if a partition of the topic is shorter than it was, as far as the
// broker knows that answers, or if the dead-letter topic is, in case there are dead letters to write.
// Whether messages are lost, the next Resume finds out. stable has last stable offsets of partitions,
// which ended there or later a moment ago: if these reach as far as the topic has reached, no broker
// is asked. A transaction of another program may hold them back.
func (l *dedupeLoader) compareEnds(ctx context.Context, stable topicOffsets, dead []kgo.Record) error {
	known := map[string][]int64{l.topic.Name: l.seen.topic.ends}
	if len(dead) > 0 {
		known[dead[0].Topic] = l.seen.dead.ends
	}
	var asked kadm.TopicsSet
	for topic, ends := range known {
		for p, n := range ends {
			if stable[topic][int32(p)] < n {
				asked.Add(topic, int32(p))
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	now, err := l.client.listTopicOffsets(ctx, asked, endOffset)
	if err != nil {
		return err
	}
	for topic, ends := range now {
		for p, end := range ends {
			if n := known[topic][p]; end < n {
				return fmt.Errorf("partition %d of %s ends at offset %d, and has ended at %d", p, topic, end, n)
			}
		}
	}
	return nil
}

// checkLost returns the loss that a commit has found, unless a person has moved the position
// since, as cp shows. The topic does not show that loss: the aborted records of the commit can
// make it as long as its checkpoint says.
func (l *dedupeLoader) checkLost(cp checkpoint.Checkpoint) error {
	if !cp.Moved.Equal(l.seen.moved) {
		l.seen.lost = nil
	}
	return l.seen.lost
}

// checkOffsets returns [checkpoint.ErrLost] if records that this sink has written to a topic have
// offsets that the topic had reached before, unless it was deleted and created again.
func (l *dedupeLoader) checkOffsets(ctx context.Context, written []kgo.Record, reached topicEnds) error {
	for i := range written {
		r := &written[i]
		p := int(r.Partition)
		if p >= len(reached.ends) || r.Offset >= reached.ends[p] {
			continue
		}
		if d, err := l.client.describeTopic(ctx, r.Topic); err == nil && !reached.isOf(d.ID) {
			return fmt.Errorf("topic %s was deleted and created again", r.Topic)
		}
		l.seen.lost = topicCheck{l.client, l.topic}.errLost(r.Topic, p, r.Offset, reached.ends[p])
		return l.seen.lost
	}
	return nil
}

// recordCommit records that ids was caught up with a checkpoint that this sink has committed.
func (l *dedupeLoader) recordCommit(newest storedCheckpoint) {
	l.seen.checkpoint, l.seen.topic, l.seen.dead, l.sequence = newest, newest.topic, newest.dead, newest.sequence
}
