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
	client    *client
	topic     string
	partition int32

	// stored is about how many bytes a record takes as the cluster stores it, and
	// unpacked how many it takes here.
	stored, unpacked atomic.Int64

	mu      sync.Mutex // guards what follows
	checked time.Time  // when the topic was last found to be fit
	fit     kadm.TopicID
	found   foundTopic
	// rest belongs to who goes on where the last read ended, for as long as expiry
	// runs.
	rest   rest
	expiry *time.Timer
}

// foundTopic is the topic as it was found last.
type foundTopic struct {
	kadm.TopicDetail
	// at is when the cluster last described it so, or answered to its id.
	at time.Time
	// end is that of the last span, and high the offset behind the newest record then,
	// be it committed or not.
	end, high int64
	ids       fetchKey
}

// fetchKey says whether a cluster is asked for what a topic has by the topic's id, or, before
// Kafka 3.1, by its name, so that nobody can tell whether the answer is about one that
// was made anew. It is not known before it was asked.
type fetchKey int

const (
	_ fetchKey = iota
	byID
	byName
)

// rest is what the last read has left of what was fetched. The next page begins with
// it, which the cluster would have to send once more, and whole batches of it.
type rest struct {
	id       kadm.TopicID
	from, to int64
	records  []*kgo.Record
	// bytes is how many are held for them, which are those of all that came with them:
	// what a batch is unpacked to is one piece.
	bytes int64
}

func newLog(c *client, topic string, partition int32) *Log {
	l := &Log{client: c, topic: topic, partition: partition}
	l.stored.Store(1 << 10)
	l.unpacked.Store(1 << 10)
	return l
}

// Span returns which offsets the partition has: from the oldest that is left to
// before the oldest transaction that is not ended. The epoch is that of the
// topic's id; before Kafka 2.8 topics have none, and it is always the same. A topic
// or partition that is not there is [feed.ErrNoTopic], and a compacted topic is
// refused: its messages vanish from the middle.
func (l *Log) Span(ctx context.Context) (feed.Span, error) {
	span, err := l.readSpan(ctx)
	if err != nil {
		return feed.Span{}, fmt.Errorf("look at the positions: %w", l.explainError(ctx, err))
	}
	return span, nil
}

func (l *Log) readSpan(ctx context.Context) (feed.Span, error) {
	if span, ok := l.fetchSpan(ctx); ok {
		return span, nil
	}
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found.ID == d.ID {
		l.found.end, l.found.high = at[1], at[1]
	}
	return spanOf(d.ID, at[0], at[1]), nil
}

func spanOf(id kadm.TopicID, first, stable int64) feed.Span {
	return feed.Span{
		First: uint64(min(first, stable)), End: uint64(stable),
		// Half of an id is random enough.
		Epoch: strconv.FormatUint(binary.BigEndian.Uint64(id[8:]), 36),
	}
}

// fetchSpan is span by one request in place of three: whoever fetches from the end of a
// partition learns both its ends, and that it is that of the same topic. It is not ok if
// the cluster has to be asked in full.
func (l *Log) fetchSpan(ctx context.Context) (_ feed.Span, ok bool) {
	l.mu.Lock()
	was, fit := l.found, l.isFit()
	l.mu.Unlock()
	if !fit || was.ids == byName || was.high == 0 || was.Partitions[l.partition].Leader < 0 {
		return feed.Span{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, fetchSpanTimeout)
	defer cancel()
	r := reader{client: l.client, topic: l.topic, partition: l.partition, known: &was.TopicDetail}
	now := time.Now()
	got, err := r.requestFetch(ctx, was.high, 1, 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.found.ID != was.ID:
		return feed.Span{}, false
	case err != nil:
		// Another broker may lead it now, or it is another topic, or none.
		return feed.Span{}, false
	case !r.byID:
		l.found.ids = byName
		return feed.Span{}, false
	case got.LastStableOffset < was.end:
		// A leader that is new at it may not know yet how much is committed. To the other
		// requests it does not say so before it knows.
		return feed.Span{}, false
	}
	l.found.at, l.found.ids = now, byID
	l.found.end = max(l.found.end, got.LastStableOffset)
	l.found.high = max(l.found.high, got.HighWatermark)
	return spanOf(was.ID, got.LogStartOffset, got.LastStableOffset), true
}

// glanceFor is how long a glance may take, so that a leader that is gone does not cost
// all the time that there is.
const fetchSpanTimeout = time.Second

// Read returns the committed messages from one offset on and before another, which
// is at most the end of the partition's span. It holds about a thousand of them at
// once, a megabyte as the cluster stores them, or a few megabytes as they are here; at
// least one batch, which is unpacked whole. For who goes on where the last Read ended, or
// was left, it fetches twice as many, and keeps for seconds what is behind the end: a
// cluster takes longer to be asked than to answer with more.
func (l *Log) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		d, recalled, err := l.cachedTopic(ctx)
		r := reader{client: l.client, topic: l.topic, partition: l.partition, known: &d, recalled: recalled}
		for next := int64(from); err == nil && next < int64(to); {
			had, goesOn := l.restFrom(d.ID, next)
			switch {
			case had.to > next:
			case goesOn:
				had, err = l.loadRange(ctx, &r, next, next+2*recordsPerLoad)
			default:
				had, err = l.loadRange(ctx, &r, next, min(int64(to), next+recordsPerLoad))
			}
			for i, k := range had.records {
				// Whoever leaves at a record goes on with it.
				if k.Offset >= int64(to) || !yield(toFeedRecord(k), nil) {
					l.keepRest(rest{d.ID, min(next, int64(to)), had.to, had.records[i:], had.bytes})
					return
				}
				next = k.Offset + 1
			}
			if next = had.to; next >= int64(to) {
				l.keepRest(rest{id: d.ID, from: int64(to), to: next})
			}
		}
		if errors.Is(err, errRecreated) || isMissingTopic(err) && !errors.Is(err, feed.ErrNoTopic) {
			err = fmt.Errorf("%w (%w)", feed.ErrNoTopic, err)
		}
		if err != nil {
			yield(feed.Record{}, fmt.Errorf("read: %w", l.explainError(ctx, err)))
		}
	}
}

// cachedTopic returns the topic as it was found last if that was a moment ago, and otherwise
// as it is.
func (l *Log) cachedTopic(ctx context.Context) (d kadm.TopicDetail, recalled bool, err error) {
	l.mu.Lock()
	d, recalled = l.found.TopicDetail, l.found.ids == byID && l.isFit() && time.Since(l.found.at) < topicCacheTime
	l.mu.Unlock()
	if !recalled {
		d, err = l.checkTopic(ctx)
	}
	return d, recalled, err
}

// recallFor is for how long a reader goes by what was found before. The cluster answers
// to the topic's id, so it is never another one that is read.
const topicCacheTime = time.Second

const (
	// restLifetime is how long the rest of a read waits for who goes on with it, and
	// keptBytes how much it may take.
	restLifetime = 2 * time.Second
	maxRestBytes = 4 << 20
)

// keepRest keeps r for the page behind it, if it is not too large, and the topic can be told
// from one that is made anew.
func (l *Log) keepRest(r rest) {
	if r.id == (kadm.TopicID{}) {
		return
	}
	if r.bytes > maxRestBytes {
		r = rest{id: r.id, from: r.from, to: r.from}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = r
	if l.expiry == nil {
		l.expiry = time.AfterFunc(restLifetime, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.rest = rest{}
		})
	}
	l.expiry.Reset(restLifetime)
}

// restFrom returns what was kept from an offset on, if something was. It says whether who
// reads there goes on where the last read ended.
func (l *Log) restFrom(id kadm.TopicID, from int64) (_ rest, goesOn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rest
	if r.id != id || id == (kadm.TopicID{}) || from < r.from || from > r.to {
		return rest{}, false
	}
	i := sort.Search(len(r.records), func(i int) bool { return r.records[i].Offset >= from })
	r.from, r.records = from, r.records[i:]
	return r, true
}

// loadRecords is about how many records are read at once.
const recordsPerLoad = 1000

// loadRange returns records from an offset on and before another, with perhaps some
// more.
func (l *Log) loadRange(ctx context.Context, r *reader, from, to int64) (rest, error) {
	for {
		// Batches may be unpacked to a thousand times their size, and the last of them
		// to more than is asked for.
		n := min(to-from, max(1, maxRestBytes*3/4/l.unpacked.Load()))
		size := min(fetchBytes, n*l.stored.Load()*5/4)
		records, next, err := r.fetchRecords(ctx, from, from+n, int32(size))
		if err == nil {
			got := rest{from: from, to: next, records: records}
			for _, k := range records {
				got.bytes += heldBeside + int64(len(k.Key)+len(k.Value))
				for _, h := range k.Headers {
					got.bytes += int64(len(h.Key) + len(h.Value))
				}
			}
			l.stored.Store(max(1, r.size/(next-from)))
			l.unpacked.Store(max(1, got.bytes/(next-from)))
			return got, nil
		}
		if !errors.Is(err, kerr.OffsetOutOfRange) {
			return rest{}, err
		}
		// Retention has taken them, perhaps this moment.
		start, lost := l.client.listOffsets(ctx, l.topic, []int32{l.partition}, firstOffset)
		switch {
		case lost != nil:
			return rest{}, lost
		case start[0] <= from:
			return rest{}, err
		}
		if from = start[0]; from >= to {
			return rest{to: from}, nil
		}
	}
}

// heldBeside is about what a record takes beside its key, its value and its headers.
const heldBeside = 512

// toFeedRecord is a message as it is read back.
func toFeedRecord(r *kgo.Record) feed.Record {
	return feed.Record{
		Position: uint64(r.Offset), Time: r.Timestamp, Header: headerFields(r.Headers), Body: r.Value, Key: r.Key, Tombstone: r.Value == nil,
	}
}

// headerFields is a record's headers as a list. Its values share one piece of memory.
func headerFields(headers []kgo.RecordHeader) feed.Header {
	size := 0
	for _, h := range headers {
		size += len(h.Value)
	}
	var values strings.Builder
	values.Grow(size)
	list := make(feed.Header, len(headers))
	for i, h := range headers {
		from := values.Len()
		values.Write(h.Value)
		list[i] = feed.Field{Name: h.Key, Value: values.String()[from:]}
	}
	return list
}

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
	l.found.TopicDetail, l.found.at = d, time.Now()
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
		return d, feed.Permanent(l.errCompacted(policy))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fit, l.checked = d.ID, time.Now()
	return d, nil
}

// isFit says whether the topic that was found last is known to be fit. The caller has
// locked mu.
func (l *Log) isFit() bool { return l.fit == l.found.ID && time.Since(l.checked) < recheck }

func (l *Log) explainError(ctx context.Context, err error) error {
	if !errors.Is(err, feed.ErrNoTopic) {
		err = l.client.explainError(ctx, err)
	}
	return fmt.Errorf("topic %q: %w", l.topic, err)
}

// errCompacted says that a compacted topic cannot be read back. It does not tell to
// change that: the topic would lose by its age what its programs count on.
func (l *Log) errCompacted(policy string) error {
	if l.topic == l.client.cfg.Checkpoints {
		return errors.New("it has the checkpoints of feeds, and no entities; name the topic of a feed")
	}
	return fmt.Errorf("it is compacted (cleanup.policy=%s), so that messages vanish from its middle; name a topic that is not", policy)
}

// noPartition says that a topic lacks the partition that is to be read. It matches
// [feed.ErrNoTopic]: there is nothing to read.
type noPartition struct {
	wanted int32
	has    int
}

func (e *noPartition) Error() string {
	return fmt.Sprintf("it has no partition %d, only 0 to %d; set serve.feeds.NAME.from.partition to one of these", e.wanted, e.has-1)
}

func (e *noPartition) Is(target error) bool { return target == feed.ErrNoTopic }
