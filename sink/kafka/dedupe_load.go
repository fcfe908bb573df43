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
	times  *recordTimes

	// seen is the state of the topic that ids was last caught up with: the topic's id, the next
	// offset of each partition and of the dead letters, the checkpoint, and when a person last
	// moved the position. It outlives errors, and so does lost.
	seen struct {
		id         kadm.TopicID
		known      bool
		moved      time.Time
		next       []int64
		deadID     kadm.TopicID
		deadNext   int64
		checkpoint storedCheckpoint
		lost       error // the loss that a commit found since a person moved the position, or nil
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
	l.times.newest = time.Time{}
	l.seen.id, l.seen.known, l.seen.next, l.seen.deadNext = d.ID, true, make([]int64, len(d.Partitions)), 0
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
	ranges := l.topicRanges(starts, ends, dead)
	if !committed || !l.matchesTopic(d, starts, ends) || !l.followsDead(dead) || !cp.Moved.Equal(l.seen.moved) {
		// The topic is another one, or has lost messages; or a person has moved the
		// position, perhaps after deleting some; or the cluster has lost the checkpoint with
		// which ids was caught up, and so perhaps the messages before it.
		l.resetIDs(d)
		l.seen.moved = cp.Moved
		if err := l.loadNewest(ctx, ranges, cp.Count > 0); err != nil {
			return err
		}
	} else {
		for i := range ranges {
			r := &ranges[i]
			switch {
			case r.topic == dead.topic:
				r.start, r.from = l.seen.deadNext, l.seen.deadNext
			case i < len(l.seen.next): // partitions may have been added
				r.start, r.from = l.seen.next[i], l.seen.next[i]
			}
		}
		if _, err := l.loadRanges(ctx, ranges); err != nil {
			// Some may be loaded already, and would be loaded twice.
			l.seen.next = nil
			return fmt.Errorf("load the IDs of the topic: %w", err)
		}
	}
	l.seen.next, l.seen.deadID, l.seen.deadNext, l.seen.checkpoint = ends, dead.id, dead.to, store.newest
	return nil
}

// matchesTopic reports whether ids still matches the topic up to seen.next.
func (l *dedupeLoader) matchesTopic(d kadm.TopicDetail, starts, ends []int64) bool {
	if !l.seen.known || l.seen.next == nil || l.seen.id != d.ID || len(l.seen.next) > len(ends) {
		return false
	}
	for p, next := range l.seen.next {
		if starts[p] > next || next > ends[p] || ends[p]-next > l.searchLimit() && !l.ids.Marked() {
			return false
		}
	}
	return true
}

// followsDead reports whether ids still matches the dead letters up to seen.deadNext. A person may
// have deleted some, or their topic.
func (l *dedupeLoader) followsDead(dead offsetRange) bool {
	return l.seen.deadID == dead.id && l.seen.deadNext >= dead.start && l.seen.deadNext <= dead.to
}

// loadNewest loads the IDs of about a window of the newest messages, or of all messages within
// searchLimit. If one of them has a mark, it loads all messages, because their source needs
// every mark, however old. If there is no message within searchLimit although some were
// published (some), it reads further back until it finds one, to learn whether messages have
// marks.
func (l *dedupeLoader) loadNewest(ctx context.Context, ranges []offsetRange, some bool) error {
	all, limit := false, l.searchLimit()
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
		if err != nil {
			l.seen.next = nil
			return fmt.Errorf("load the IDs of the topic: %w", err)
		}
		switch {
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

// loadRanges loads the IDs of this feed's messages in ranges of all partitions, the oldest
// first. It returns how many there were since the time from which on the messages of all
// partitions are known to be among them.
func (l *dedupeLoader) loadRanges(ctx context.Context, ranges []offsetRange) (int, error) {
	var open []*partitionReader
	since, whole := int64(0), true
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
		r, err := t.peekRecord(ctx)
		if err != nil {
			return 0, err
		}
		if part.from > part.start {
			// Records before the first one that was read here are unknown.
			if r == nil {
				whole = false
			} else {
				since = max(since, r.Timestamp.UnixMilli())
			}
		}
		if r, err = l.peekOwnRecord(ctx, t); err != nil {
			return 0, err
		}
		if r != nil {
			open = append(open, t)
		}
	}
	n := 0
	for len(open) > 0 {
		oldest, record := 0, open[0].records[0]
		for i, t := range open {
			if t.records[0].Timestamp.Before(record.Timestamp) {
				oldest, record = i, t.records[0]
			}
		}
		l.ids.LoadMessage(headerFields(record.Headers))
		l.times.noteRecord(record)
		if whole && record.Timestamp.UnixMilli() >= since {
			n++
		}
		t := open[oldest]
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
// feeds before it: their timestamps say nothing about the order of this feed's.
func (l *dedupeLoader) peekOwnRecord(ctx context.Context, t *partitionReader) (*kgo.Record, error) {
	for {
		r, err := t.peekRecord(ctx)
		if err != nil || r == nil || l.isOwnRecord(r) {
			return r, err
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
		err := l.client.scanRecords(ctx, part.topic, part.partition, from, part.to, func(r *kgo.Record) (bool, error) {
			found = l.isOwnRecord(r)
			return !found, nil
		})
		if err != nil || found {
			return found, err
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

// endsAfter returns the ends of the topic's partitions, as far as this sink knows them, once
// its records in written are committed: the later of the ends when it resumed and the ends of
// its own records. No other copy writes for this feed, so the IDs up to there are known.
func (l *dedupeLoader) endsAfter(written kadm.Offsets) []int64 {
	ends := slices.Clone(l.seen.next)
	for partition, end := range written[l.topic.Name] {
		for int(partition) >= len(ends) {
			ends = append(ends, 0) // of a partition that was added since
		}
		ends[partition] = max(ends[partition], end.At)
	}
	return ends
}

// knownPartitions returns the partitions of the topic that compareEnds compares.
func (l *dedupeLoader) knownPartitions() (known kadm.TopicsSet) {
	for p := range l.seen.next {
		known.Add(l.topic.Name, int32(p))
	}
	return known
}

// compareEnds returns an error if a partition of the topic is shorter than it was, as far as the
// broker knows that answers. Whether messages are lost, the next Resume finds out. stable has last
// stable offsets of partitions, which ended there or later a moment ago: if these reach as far as
// the topic has reached, no broker is asked. A transaction of another program may hold them back.
func (l *dedupeLoader) compareEnds(ctx context.Context, stable map[int32]int64) error {
	var asked []int32
	for p, n := range l.seen.next {
		if stable[int32(p)] < n {
			asked = append(asked, int32(p))
		}
	}
	if len(asked) == 0 {
		return nil
	}
	ends, err := l.client.listOffsets(ctx, l.topic.Name, asked, endOffset)
	if err != nil {
		return err
	}
	for i, p := range asked {
		if n := l.seen.next[p]; ends[i] < n {
			return fmt.Errorf("partition %d of the topic ends at offset %d, and has ended at %d", p, ends[i], n)
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

// checkOffsets returns [checkpoint.ErrLost] if records that this sink has written have offsets
// that the topic had reached before.
func (l *dedupeLoader) checkOffsets(written []kgo.Record) error {
	for i := range written {
		r := &written[i]
		if p := int(r.Partition); p < len(l.seen.next) && r.Offset < l.seen.next[p] {
			l.seen.lost = topicCheck{l.client, l.topic}.errLost(p, r.Offset, l.seen.next[p])
			return l.seen.lost
		}
	}
	return nil
}

// recordCommit records that ids was caught up with a checkpoint that this sink has committed, with
// these dead letters.
func (l *dedupeLoader) recordCommit(newest storedCheckpoint, dead []kgo.Record) {
	l.seen.checkpoint, l.seen.next = newest, newest.ends
	for i := range dead {
		l.seen.deadNext = max(l.seen.deadNext, dead[i].Offset+1)
	}
}
