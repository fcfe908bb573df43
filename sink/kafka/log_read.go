package kafka

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/feedbridge/feedbridge/feed"
)

// Read returns the committed messages from offset from up to offset to, which is at most the
// end of the partition's span. It holds at most about 1000 of them at once, 1 MiB as stored in
// the cluster, or a few MiB in memory; and at least one batch, which is decompressed whole. While
// records are read in order, those behind them are fetched and unpacked already. For a reader that
// continues where the last Read ended or was stopped, this goes beyond to, and the records that are
// not read are kept for two seconds: a request costs more than a larger response.
func (l *Log) Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		d, recalled, err := l.cachedTopic(ctx)
		r := reader{client: l.client, topic: l.topic, partition: l.partition, known: &d, recalled: recalled}
		had, continues := l.takeLeftover(d.ID, int64(from))
		for next := int64(from); err == nil && next < int64(to); {
			if had.to <= next {
				end := int64(to)
				if continues {
					end = math.MaxInt64
				}
				if had, err = l.loadBehind(ctx, &r, had.ahead, next, end); err != nil {
					break
				}
			}
			if continues {
				l.fetchAhead(ctx, &d, &had, had.stable)
			}
			for i, record := range had.records {
				// Readers that search for the first record behind an offset stop early.
				if !continues && i == len(had.records)/2 {
					l.fetchAhead(ctx, &d, &had, int64(to))
				}
				// A reader that stops at a record continues with it.
				if record.Position >= to || !yield(record, nil) {
					had.id, had.from, had.records = d.ID, min(next, int64(to)), had.records[i:]
					l.keepLeftover(had)
					return
				}
				next = int64(record.Position) + 1
			}
			if next = had.to; next >= int64(to) {
				l.keepLeftover(leftover{id: d.ID, from: int64(to), to: next, stable: had.stable, ahead: had.ahead})
				return
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

// leftover has the records that were fetched and not read by the last Read. The next page begins
// with them; without it the cluster would have to send their whole batches again.
type leftover struct {
	id       kadm.TopicID
	from, to int64
	records  []feed.Record
	// bytes is the memory that is held for them: that of all records of the fetch, because the
	// records of a batch share one piece of memory.
	bytes int64
	// stable is the end of the committed records when they were fetched.
	stable int64
	ahead  *readAhead // of the records from offset to on, nil if there is none
}

// readAhead is a fetch of records while those before them are read.
type readAhead struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when got and err are set
	got    leftover
	err    error
}

// fetchAhead begins to fetch the records behind had, up to offset end, unless that has begun.
func (l *Log) fetchAhead(ctx context.Context, d *kadm.TopicDetail, had *leftover, end int64) {
	if had.ahead != nil || had.to >= end || d.ID == (kadm.TopicID{}) {
		return
	}
	// The reader of the next page has another context.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &readAhead{cancel: cancel, done: make(chan struct{})}
	had.ahead = a
	from := had.to
	go func() {
		defer close(a.done)
		r := reader{client: l.client, topic: l.topic, partition: l.partition, known: d, recalled: true}
		a.got, a.err = l.loadRange(ctx, &r, from, end)
	}()
}

// loadBehind returns records from offset from up to offset to at most: those that were fetched
// ahead, if there are any. An error of that fetch does not count, as it may be old.
func (l *Log) loadBehind(ctx context.Context, r *reader, ahead *readAhead, from, to int64) (leftover, error) {
	if ahead != nil {
		defer ahead.cancel()
		select {
		case <-ahead.done:
			if ahead.err == nil && ahead.got.to > from {
				return ahead.got, nil
			}
		case <-ctx.Done():
		}
	}
	return l.loadRange(ctx, r, from, to)
}

// discard ends the fetch of the records behind r.
func (r leftover) discard() {
	if r.ahead != nil {
		r.ahead.cancel()
	}
}

const (
	// leftoverLifetime is how long the rest of a Read is kept for a reader that continues there,
	// and maxLeftoverBytes the most memory that it may take, with the records that are fetched ahead.
	leftoverLifetime = 2 * time.Second
	maxLeftoverBytes = 4 << 20
)

// keepLeftover keeps r for the next page, if it is not too large, and the topic has an id, so that
// it is not confused with one that is created again. An iterator that serve keeps open up to the
// end of the topic was not faster: docs/architecture.md has the figures.
func (l *Log) keepLeftover(r leftover) {
	if r.id == (kadm.TopicID{}) {
		return
	}
	if r.bytes > maxLeftoverBytes {
		r.discard()
		r = leftover{id: r.id, from: r.from, to: r.from}
	}
	l.kept.Put(r, leftoverLifetime, leftover.discard)
}

// takeLeftover returns the kept records from an offset on. continues reports whether a reader at
// that offset continues where the last Read ended.
func (l *Log) takeLeftover(id kadm.TopicID, from int64) (_ leftover, continues bool) {
	r, continues := l.kept.Take(func(r leftover) bool { return r.id == id && r.from <= from && from <= r.to })
	i := sort.Search(len(r.records), func(i int) bool { return int64(r.records[i].Position) >= from })
	r.from, r.records = from, r.records[i:]
	return r, continues
}

// recordsPerLoad is about how many records are read at once.
const recordsPerLoad = 1000

// loadRange returns about recordsPerLoad records from offset from on, at most up to offset to, and
// possibly some more.
func (l *Log) loadRange(ctx context.Context, r *reader, from, to int64) (leftover, error) {
	for {
		// Decompressed batches may have a thousand times their stored size, and the last one
		// may have more records than requested.
		n := min(to-from, recordsPerLoad, max(1, maxLeftoverBytes*3/8/l.unpacked.Load()))
		size := min(fetchBytes, n*l.stored.Load()*5/4)
		records, next, err := r.fetchRecords(ctx, from, from+n, int32(size))
		if err == nil {
			got := leftover{from: from, to: next, stable: r.stable}
			got.records, got.bytes = toFeedRecords(records)
			l.stored.Store(max(1, r.size/(next-from)))
			l.unpacked.Store(max(1, got.bytes/(next-from)))
			return got, nil
		}
		if !errors.Is(err, kerr.OffsetOutOfRange) {
			return leftover{}, err
		}
		// Retention has deleted them, perhaps during this read.
		start, lost := l.client.listOffsets(ctx, l.topic, []int32{l.partition}, firstOffset)
		switch {
		case lost != nil:
			return leftover{}, lost
		case start[0] <= from:
			return leftover{}, err
		}
		if from = start[0]; from >= to {
			return leftover{to: from}, nil
		}
	}
}
