package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

func (s *Sink) window() int { return either(max(0, s.topic.Window), sink.DefaultWindow) }

// reach is how many offsets of a partition are read at most to find a window of
// this feed's newest messages. There are others between them: markers, what was
// aborted or compacted away, and other feeds'.
func (s *Sink) reach() int64 { return 16 * int64(s.window()) }

// lostAfter is how long a partition must be too short before its messages count as lost. The
// broker that answers may have been deposed as its leader, and not know what was committed
// since. Kafka replaces a leader after 9 s (broker.session.timeout.ms).
const lostAfter = 10 * time.Second

// waitTopic waits until every transaction in the topic has ended, and its partitions have
// reached atLeast. It returns the ends of the partitions. A partition that stays shorter has
// lost messages.
func (s *Sink) waitTopic(ctx context.Context, d description, atLeast []int64) ([]int64, error) {
	c := s.conn
	if len(atLeast) > len(d.leaders) {
		return nil, s.errLost(len(d.leaders), 0, atLeast[len(d.leaders)])
	}
	for began := time.Now(); ; {
		ends, err := c.waitStable(ctx, d.name, d.partitions(), atLeast, c.cfg.Timeout, s.watchTransaction().check)
		var unstable *unstableError
		if !errors.As(err, &unstable) {
			return ends, err
		}
		lost := s.lost(ctx, d, atLeast)
		switch {
		case lost == nil:
			return nil, err
		case time.Since(began) >= lostAfter:
			return nil, lost
		}
	}
}

// lost returns an error that matches [checkpoint.ErrLost] if a partition of the topic does
// not reach atLeast.
func (s *Sink) lost(ctx context.Context, d description, atLeast []int64) error {
	ends, err := s.conn.offsets(ctx, d.name, d.partitions(), end)
	if err != nil {
		return err
	}
	for p, n := range atLeast {
		switch {
		case p >= len(ends):
			return s.errLost(p, 0, n)
		case ends[p] < n:
			return s.errLost(p, ends[p], n)
		}
	}
	return nil
}

func (s *Sink) errLost(partition int, end, want int64) error {
	return feed.Permanent(fmt.Errorf("%w: partition %d ends at offset %d, and its checkpoint says at least %d; restore them, "+
		"or read on at the place from which they are missing with 'feedbridge checkpoint set %s', or start the feed over with 'feedbridge checkpoint reset %[5]s'",
		checkpoint.ErrLost, partition, end, want, s.topic.Feed))
}

// forget starts ids over, for a topic that is as d says.
func (s *Sink) forget(d description) {
	s.ids.Reset()
	s.seen.id, s.seen.known, s.seen.next = d.id, true, make([]int64, len(d.leaders))
}

// catchUp makes ids hold the newest IDs that the topic holds of this feed, and all
// of its marks, for the checkpoint cp. It reads nothing that it has read before,
// and of a topic without marks never much more than the window, unless other
// messages lie between.
func (s *Sink) catchUp(ctx context.Context, d description, cp checkpoint.Checkpoint) error {
	ends, err := s.waitTopic(ctx, d, s.newest.ends)
	if err != nil {
		return err
	}
	starts, err := s.conn.offsets(ctx, d.name, d.partitions(), first)
	if err != nil {
		return err
	}
	committed, err := s.isCommitted(ctx, s.seen.checkpoint)
	if err != nil {
		return err
	}
	if !committed || !s.follows(d, starts, ends) || !cp.Moved.Equal(s.seen.moved) {
		// The topic is another one, or has lost messages; or a person has moved the
		// position, perhaps after deleting some; or the cluster has lost the checkpoint with
		// which ids was caught up, and so perhaps the messages before it.
		s.forget(d)
		s.seen.moved = cp.Moved
		if err := s.tail(ctx, starts, ends, cp.Count > 0); err != nil {
			return err
		}
	} else {
		// Partitions may have been added.
		from := append(slices.Clone(s.seen.next), starts[len(s.seen.next):]...)
		if _, err := s.load(ctx, from, from, ends); err != nil {
			// Some of them may be loaded now, and would be twice.
			s.seen.next = nil
			return fmt.Errorf("read what the topic holds: %w", err)
		}
	}
	s.seen.next, s.seen.checkpoint = ends, s.newest
	return nil
}

// isCommitted reports whether a checkpoint of this feed that this sink has seen is in the
// log still. If it is, so is all that was committed before it. A cluster can lose even what it has
// confirmed, and another copy may have filled its place since, with other
// commits. A checkpoint that was compacted away counts as lost.
func (s *Sink) isCommitted(ctx context.Context, cp stored) (found bool, err error) {
	switch {
	case cp.offset < 0:
		return true, nil
	case cp.offset >= s.newest.offset:
		return cp.is(s.newest), nil
	}
	err = s.conn.scan(ctx, s.conn.cfg.Checkpoints, s.place.partition, cp.offset, cp.offset+1, func(r *kgo.Record) (bool, error) {
		found = r.Offset == cp.offset && bytes.Equal(r.Value, cp.data)
		return false, nil
	})
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return false, nil
	}
	return found, err
}

// follows says whether what ids has is what the topic holds up to seen.next.
func (s *Sink) follows(d description, starts, ends []int64) bool {
	if !s.seen.known || s.seen.next == nil || s.seen.id != d.id || len(s.seen.next) > len(ends) {
		return false
	}
	for p, next := range s.seen.next {
		if starts[p] > next || next > ends[p] || ends[p]-next > s.reach() && !s.ids.Marked() {
			return false
		}
	}
	return true
}

// tail loads about the newest messages: a window of them, or all that there are
// within reach. If one of them has a mark it loads all, for their source wants
// every mark, however old. If there is not one within reach, though there have
// been some, it looks further back until it finds one: only that can tell.
func (s *Sink) tail(ctx context.Context, starts, ends []int64, some bool) error {
	all, limit := false, s.reach()
	for span := 2*int64(s.window())/int64(len(ends)) + 1; ; span *= 4 {
		from := slices.Clone(starts)
		for p := range ends {
			if !all {
				from[p] = max(starts[p], ends[p]-min(span, limit))
			}
		}
		loaded, err := s.load(ctx, starts, from, ends)
		if err != nil {
			s.seen.next = nil
			return fmt.Errorf("read what the topic holds: %w", err)
		}
		switch {
		case slices.Equal(from, starts):
			return nil
		case s.ids.Marked():
			all = true
		case loaded >= s.window(), span >= limit && (s.ids.Len() > 0 || !some):
			return nil
		case span >= limit:
			limit = math.MaxInt64
		}
		s.ids.Reset()
	}
}

// load loads the IDs of this feed's messages between offsets of all partitions,
// the oldest first. It returns how many there were since the time from which on
// the messages of all partitions are known to be among them; starts are where
// the partitions start.
func (s *Sink) load(ctx context.Context, starts, from, to []int64) (int, error) {
	var open []*tape
	since, whole := int64(0), true
	size := int64(0)
	for p := range from {
		size += to[p] - from[p]
	}
	defer sink.Announce(s.conn.log, s.topic.Name, uint64(size))()
	for p := range from {
		t := &tape{
			reader: reader{conn: s.conn, topic: s.topic.Name, partition: int32(p)},
			next:   from[p], to: to[p], atMost: max(64<<10, fetchBytes/int32(len(from))),
		}
		r, err := t.peek(ctx)
		if err != nil {
			return 0, err
		}
		if r != nil {
			open = append(open, t)
		}
		if from[p] > starts[p] {
			// What lies before the first record of this partition is not known.
			if r == nil {
				whole = false
			} else {
				since = max(since, r.Timestamp.UnixMilli())
			}
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
		if s.mine(record) {
			s.ids.LoadMessage(fields(record.Headers))
			if whole && record.Timestamp.UnixMilli() >= since {
				n++
			}
		}
		t := open[oldest]
		t.records = t.records[1:]
		switch r, err := t.peek(ctx); {
		case err != nil:
			return 0, err
		case r == nil:
			open = slices.Delete(open, oldest, oldest+1)
		}
	}
	return n, nil
}

// A tape is what is left to read of a partition.
type tape struct {
	reader
	next, to int64
	atMost   int32
	records  []*kgo.Record
}

// peek returns the next record, nil at the end.
func (t *tape) peek(ctx context.Context) (*kgo.Record, error) {
	for len(t.records) == 0 && t.next < t.to {
		records, next, err := t.fetch(ctx, t.next, t.to, t.atMost)
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
