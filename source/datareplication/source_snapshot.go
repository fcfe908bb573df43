package datareplication

import (
	"context"
	"math"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// Snapshot describes a snapshot, from its index.
type Snapshot struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Pages   int       `json:"pages"`
}

// Snapshot reads the index of a snapshot, and none of its pages.
func (s *Source) Snapshot(ctx context.Context, index string) (Snapshot, []feed.Violation, error) {
	var seen sightings
	ix, err := readIndex(ctx, s.reader.pages.client, index, &seen)
	if err != nil {
		return Snapshot{}, nil, err
	}
	return Snapshot{ix.id, ix.created, len(ix.pages)}, seen, nil
}

// ReadSnapshot reads a snapshot to its end, without the feed, and calls take with every
// batch. Together with an error it returns the description of the snapshot, if its index was
// read.
func (s *Source) ReadSnapshot(ctx context.Context, index string, take func(feed.Batch) error) (Snapshot, error) {
	defer s.reader.closePage()
	s.reader.limits = feed.LargestBatch
	var read Snapshot
	never := int64(math.MaxInt64) // all entities come from the snapshot
	cur := cursor{Search: &seek{From: &never}, Snapshot: &snapshotPosition{Index: index, Ready: true}}
	for cur.Snapshot != nil {
		sn := cur.Snapshot
		batch, err := s.reader.readSnapshot(ctx, cur)
		read = Snapshot{sn.ID, sn.Created, sn.Pages}
		if err == nil {
			err = take(batch)
		}
		if err == nil {
			cur, err = decodeCursor(batch.Cursor)
		}
		if err != nil {
			return read, err
		}
	}
	return read, nil
}
