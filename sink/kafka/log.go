package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/feed"
)

// Log is a partition of a topic to be read back, whoever wrote it. The position of
// a message is its offset, so there are gaps where markers of transactions are, and
// what was aborted. It is safe for concurrent use.
//
// A cluster that elects an unclean leader gives the offsets of what it loses to
// other messages, and nobody can tell.
type Log struct {
	conn      *Conn
	topic     string
	partition int32

	// stored is about how many bytes a record takes as the cluster stores it.
	stored atomic.Int64

	mu      sync.Mutex
	checked time.Time // when the topic was last found to be fit
	fit     kadm.TopicID
	rest    rest
}

// rest is what the last read has left of its last batch. The next page begins with
// it, which the cluster would have to send once more, and whole.
type rest struct {
	id       kadm.TopicID
	from, to int64
	records  []*kgo.Record
}

// Log returns a partition of a topic.
func (c *Conn) Log(topic string, partition int32) *Log {
	l := &Log{conn: c, topic: topic, partition: partition}
	l.stored.Store(1 << 10)
	return l
}

// Span returns which offsets the partition has: from the oldest that is left to
// before the oldest transaction that is not ended. The epoch is that of the
// topic's id; before Kafka 2.8 topics have none, and it is always the same. A topic
// or partition that is not there is [feed.ErrNoTopic], and a compacted topic is
// refused: its messages vanish from the middle.
func (l *Log) Span(ctx context.Context) (feed.Span, error) {
	span, err := l.span(ctx)
	if err != nil {
		return feed.Span{}, fmt.Errorf("look at the positions: %w", l.explain(ctx, err))
	}
	return span, nil
}

func (l *Log) span(ctx context.Context) (feed.Span, error) {
	d, err := l.check(ctx)
	if err != nil {
		return feed.Span{}, err
	}
	var at [2]int64
	var asked errgroup.Group
	for i, of := range []boundary{first, stable} {
		asked.Go(func() error {
			offsets, err := l.conn.offsets(ctx, l.topic, []int32{l.partition}, of)
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
		Epoch: strconv.FormatUint(binary.BigEndian.Uint64(d.id[8:]), 36),
	}, nil
}

// Read returns the committed messages from one offset on and before another, which
// is at most the end of the partition's span. It holds about a thousand of them at
// once, or a megabyte as the cluster stores them.
func (l *Log) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		d, err := l.check(ctx)
		r := reader{conn: l.conn, topic: l.topic, partition: l.partition, known: &d}
		for next := int64(from); err == nil && next < int64(to); {
			records, end := l.kept(d.id, next)
			if end == 0 {
				records, end, err = l.load(ctx, &r, next, min(int64(to), next+loadRecords))
			}
			for i, k := range records {
				// Whoever leaves at a record goes on with it.
				if k.Offset >= int64(to) || !yield(record(k), nil) {
					l.keep(rest{d.id, min(next, int64(to)), end, records[i:]})
					return
				}
				next = k.Offset + 1
			}
			next = end
		}
		if err != nil {
			yield(feed.Record{}, fmt.Errorf("read: %w", l.explain(ctx, err)))
		}
	}
}

// keep keeps r for the page behind it, if the topic can be told from one that is
// made anew.
func (l *Log) keep(r rest) {
	if r.id == (kadm.TopicID{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = r
}

// kept returns the records from an offset on that were kept, if they were, and the
// offset behind them.
func (l *Log) kept(id kadm.TopicID, from int64) (records []*kgo.Record, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.rest; r.id == id && r.from <= from && from < r.to {
		i := sort.Search(len(r.records), func(i int) bool { return r.records[i].Offset >= from })
		return r.records[i:], r.to
	}
	return nil, 0
}

// loadRecords is about how many records are read at once.
const loadRecords = 1000

// load returns records from an offset on and before another, with perhaps some
// more, and the offset behind them.
func (l *Log) load(ctx context.Context, r *reader, from, to int64) ([]*kgo.Record, int64, error) {
	for {
		size := min(fetchBytes, (to-from)*l.stored.Load()*5/4)
		records, next, err := r.fetch(ctx, from, to, int32(size))
		if err == nil {
			l.stored.Store(max(1, r.size/(next-from)))
		}
		if !errors.Is(err, kerr.OffsetOutOfRange) {
			return records, next, err
		}
		// Retention has taken them, perhaps this moment.
		start, lost := l.conn.offsets(ctx, l.topic, []int32{l.partition}, first)
		switch {
		case lost != nil:
			return nil, 0, lost
		case start[0] <= from:
			return nil, 0, err
		}
		if from = start[0]; from >= to {
			return nil, from, nil
		}
	}
}

// record is a message as it is read back.
func record(r *kgo.Record) feed.Record {
	return feed.Record{
		Position: uint64(r.Offset), Time: r.Timestamp, Header: fields(r.Headers), Body: r.Value, Tombstone: r.Value == nil,
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

// check returns the topic as the cluster describes it, or an error if it cannot be
// read back.
func (l *Log) check(ctx context.Context) (description, error) {
	d, err := l.conn.describe(ctx, l.topic)
	switch {
	case missing(err):
		return d, fmt.Errorf("%w (%w)", feed.ErrNoTopic, err)
	case err != nil:
		return d, err
	case l.partition < 0 || int(l.partition) >= len(d.leaders):
		return d, fmt.Errorf("%w: it has no partition %d, only 0 to %d", feed.ErrNoTopic, l.partition, len(d.leaders)-1)
	}
	l.mu.Lock()
	known := l.fit == d.id && time.Since(l.checked) < recheck
	l.mu.Unlock()
	if known {
		return d, nil
	}
	config, err := l.conn.config(ctx, l.topic)
	if err != nil {
		return d, err
	}
	if policy := config["cleanup.policy"]; strings.Contains(policy, "compact") {
		return d, feed.Permanent(fmt.Errorf("it is compacted (cleanup.policy=%s), so that messages vanish from its middle; name a topic that is not, or run "+
			"'kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config cleanup.policy=delete'", policy, l.conn.cfg.Brokers[0], l.topic))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fit, l.checked = d.id, time.Now()
	return d, nil
}

func (l *Log) explain(ctx context.Context, err error) error {
	if !errors.Is(err, feed.ErrNoTopic) {
		err = l.conn.explain(ctx, err)
	}
	return fmt.Errorf("topic %q: %w", l.topic, err)
}
