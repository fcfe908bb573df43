package serve

import (
	"context"
	"iter"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve/snapshot"
)

// snapshotEntities returns the entities at the positions [from, to), for [snapshot.Topic]. It
// starts one page early, because a page depends on the page before it.
func (pb *pageBuilder) snapshotEntities(ctx context.Context, span feed.Span, from, to uint64) iter.Seq2[*snapshot.Entity, error] {
	return func(yield func(*snapshot.Entity, error) bool) {
		if from >= to {
			return
		}
		id := pageID{epoch: span.Epoch, size: uint64(pb.cfg.PageSize)}
		page := id.withNumber(max(from/id.size, 1) - 1) // that is being read
		norm := newNormalizer(0)
		var e entity
		var out snapshot.Entity
		for r, err := range pb.log.Read(ctx, max(span.First, page.firstPosition()), to) {
			if err != nil {
				yield(nil, err)
				return
			}
			if k := r.Position / id.size; k > page.k {
				var front summary
				if k == page.k+1 && id.withNumber(k).isWhole(span) {
					front = norm.own
				}
				norm, page = newNormalizer(id.size), id.withNumber(k)
				norm.before = front
			}
			e = pb.decoder.decodeRecord(span.Epoch, r, e.header)
			own := e.id // the normalizer may change it
			if !norm.normalizeNext(&e) || e.position < from {
				continue
			}
			out = snapshot.Entity{
				Position: e.position, ID: own, Op: e.op, Modified: e.modified, Header: e.header, Body: e.body,
				Key: r.Key, Tombstone: r.Tombstone,
				AppendPart: func(b []byte, boundary string) []byte { return appendPart(b, &e, boundary) },
			}
			out.HasID = message.ID(e.header) != ""
			if pb.cfg.Snapshot.Key != nil && r.Key != nil {
				with := e
				with.addKey(r.Key)
				out.Header = with.header
			}
			if !yield(&out, nil) {
				return
			}
		}
	}
}
