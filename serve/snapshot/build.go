package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// ErrMoved reports that the topic was recreated while it was read.
var ErrMoved = errors.New("the topic changes faster than it can be read")

// builder builds the snapshots of a topic.
type builder struct {
	topic Topic
	Options

	// Of the snapshot that is being built: since when, 0 if none is, in nanoseconds of Unix time; how many positions were
	// read, and about how many are read in all.
	began       atomic.Int64
	read, total atomic.Uint64
}

// entities yields the entities of the topic before end, and counts what it has read.
func (b *builder) entities(ctx context.Context, span feed.Span, end uint64) iter.Seq2[*Entity, error] {
	return func(yield func(*Entity, error) bool) {
		base := b.read.Load() - span.First
		for e, err := range b.topic.Entities(ctx, span, span.First, end) {
			if err == nil {
				b.read.Store(base + e.Position)
			}
			if !yield(e, err) {
				return
			}
		}
		b.read.Store(base + end)
	}
}

// buildSnapshot reads the topic and writes a snapshot of it. It handles the keys in ranges of
// their hashes, each as large as memory allows: it reads the topic once to find the
// messages of the state, and once more to write them.
func (b *builder) buildSnapshot(ctx context.Context, span feed.Span, end uint64, created time.Time) (_ *Snapshot, err error) {
	file, err := os.CreateTemp(b.Dir, "feedbridge-snapshot-*")
	if err != nil {
		return nil, err
	}
	// The file has no name from here on, so a process that is killed leaves nothing behind.
	_ = os.Remove(file.Name())
	built := &Snapshot{End: end, Created: created, Span: span, file: file}
	defer func() {
		if err != nil {
			built.closeUnused()
		}
	}()
	w := &writer{s: built, entities: b.PageSize, bytes: b.PageBytes, hash: sha256.New()}
	var all matches
	pass := float64(2 * (end - min(span.First, end))) // each range of keys is read twice
	b.read.Store(0)
	b.total.Store(uint64(pass))
	b.began.Store(time.Now().UnixNano())
	defer b.began.Store(0)
	for from := uint64(0); ; {
		live, to, found, err := b.findLivePuts(ctx, span, end, from)
		if err != nil {
			return nil, err
		}
		all.addCounts(found)
		if to < math.MaxUint64 { // the other ranges are about as large
			b.total.Store(b.read.Load() + uint64(pass/2+pass*float64(math.MaxUint64-to)/float64(to-from+1)))
		}
		if err := b.writeEntities(ctx, span, end, live, w); err != nil {
			return nil, err
		}
		if to == math.MaxUint64 {
			break
		}
		from = to + 1
	}
	if err := w.endPage(); err != nil {
		return nil, err
	}
	built.ID = fmt.Sprintf("%s-%d-%x", span.Epoch, end, w.contentHash())
	now, err := b.topic.Span(ctx)
	if err == nil && now.Epoch != span.Epoch {
		err = ErrMoved
	}
	if all.late > 0 && err == nil {
		b.Log.Warn("the times of a topic with snapshots run back by more than a page; a late message may be neither in a snapshot nor in the feed after it; "+
			"let the bus set the times of messages, on Kafka with message.timestamp.type=LogAppendTime", "messages", all.late)
	}
	if built.Unmatched = all.unmatched(); built.Unmatched > 0 && err == nil {
		b.Log.Warn("a snapshot leaves out PATCHes and DELETEs that have no PUT; set snapshot.key to a value that they share with their PUT",
			"id", built.ID, "patches", all.patches, "deletes", all.deletes)
	}
	return built, err
}

// findEnd returns the position and time at which the snapshot of a moment ends, and where
// its readers continue with the feed: the first message of the last second before the
// moment that has any. A snapshot with a part of a second would give readers old
// versions behind new ones; without that second, later messages change nothing. If
// there is no message before that second, the snapshot is empty and has the time zero,
// so that its readers begin at the feed's beginning and miss no late message.
func (b *builder) findEnd(ctx context.Context, span feed.Span, moment time.Time) (position uint64, at time.Time, err error) {
	for width := uint64(2 * b.PageSize); ; width *= 4 {
		from := max(span.First, span.End-min(width, span.End))
		position, at = 0, time.Time{}
		seconds := 0
		for e, err := range b.topic.Entities(ctx, span, from, span.End) {
			if err != nil {
				return 0, time.Time{}, err
			}
			if !e.Modified.Before(moment) {
				break
			}
			if e.Modified.After(at) {
				position, at = e.Position, e.Modified
				seconds++
			}
		}
		switch {
		case seconds > 1:
			return position, at, nil
		case from == span.First:
			return 0, time.Unix(0, 0).UTC(), nil
		}
	}
}

// findLivePuts returns the newest PUTs that nothing has deleted, of the keys whose hashes are
// in [from, to]. It chooses to, so that there are no more keys than may be held.
func (b *builder) findLivePuts(ctx context.Context, span feed.Span, end, from uint64) (live map[hash128]put, to uint64, found matches, err error) {
	l := living{puts: map[hash128]put{}, erased: map[hash128]uint64{}}
	to = math.MaxUint64
	var newest time.Time
	for e, err := range b.entities(ctx, span, end) {
		if err != nil {
			return nil, 0, matches{}, err
		}
		if e.Modified.Before(newest) {
			found.late++
		} else {
			newest = e.Modified
		}
		key, record, erases := b.entityKeys(e)
		if erases {
			// It applies to all ranges, because the PUTs that it deletes have other keys.
			if l.erased[record] = e.Position; len(l.erased) > b.Keys/8 {
				l.applyTombstones()
			}
		}
		if key[0] < from || key[0] > to {
			continue
		}
		_, known := l.puts[key]
		switch {
		case e.Op == feed.Put:
			l.puts[key] = put{e.Position, record}
		case known:
			found.matching++
		case erases:
		case e.Op == feed.Patch:
			found.patches++
		default:
			found.deletes++
		}
		if e.Op == feed.Delete && known {
			delete(l.puts, key)
		}
		for len(l.puts) > b.Keys && to > from {
			to = from + (to-from)/2
			maps.DeleteFunc(l.puts, func(key hash128, _ put) bool { return key[0] > to })
			found = matches{} // some belong to keys of a later range
		}
	}
	l.applyTombstones()
	return l.puts, to, found, nil
}

// writeEntities writes the messages of the state. PUTs that retention removes meanwhile are
// missing, and so are their PATCHes.
func (b *builder) writeEntities(ctx context.Context, span feed.Span, end uint64, live map[hash128]put, w *writer) error {
	if len(live) == 0 {
		return nil
	}
	for e, err := range b.entities(ctx, span, end) {
		if err != nil {
			return err
		}
		key, _, _ := b.entityKeys(e)
		switch p, ok := live[key]; {
		case ok && p.at == e.Position:
			live[key] = put{at: written}
		case p.at == written && e.Op == feed.Patch:
		default:
			continue
		}
		if err := w.addEntity(e); err != nil {
			return err
		}
	}
	return nil
}
