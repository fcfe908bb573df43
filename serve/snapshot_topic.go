package serve

import (
	"context"
	"iter"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve/snapshot"
)

// walked is a message of a topic as its page has it.
type walked struct {
	*entity
	record feed.Record
	ownID  string // which the page may have changed
	fits   bool   // false if the page leaves it out
}

// walkPages returns the messages of the pages from page k on, up to the position to. The first page depends on the page
// before it, so its entities may differ from those that are served.
func (pb *pageBuilder) walkPages(ctx context.Context, span feed.Span, k, to uint64) iter.Seq2[walked, error] {
	return func(yield func(walked, error) bool) {
		page := pageID{span.Epoch, uint64(pb.cfg.PageSize), k}
		norm := newNormalizer(page.size)
		var e entity
		for r, err := range pb.log.Read(ctx, max(span.First, page.firstPosition()), to) {
			if err != nil {
				yield(walked{}, err)
				return
			}
			if next := page.withNumber(r.Position / page.size); next.k > page.k {
				var front summary
				if next.k == page.k+1 && next.isWhole(span) {
					front = norm.own
				}
				norm, page = newNormalizer(page.size), next
				norm.before = front
			}
			e = pb.decoder.decodeRecord(span.Epoch, r, e.header)
			own := e.id
			if !yield(walked{&e, r, own, norm.normalizeNext(&e)}, nil) {
				return
			}
		}
	}
}

// snapshotEntities returns the entities at the positions [from, to), for [snapshot.Topic]. It
// starts one page early, because a page depends on the page before it.
func (pb *pageBuilder) snapshotEntities(ctx context.Context, span feed.Span, from, to uint64) iter.Seq2[*snapshot.Entity, error] {
	return func(yield func(*snapshot.Entity, error) bool) {
		if from >= to {
			return
		}
		var out snapshot.Entity
		for e, err := range pb.walkPages(ctx, span, max(from/uint64(pb.cfg.PageSize), 1)-1, to) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !e.fits || e.position < from {
				continue
			}
			key := e.record.Key
			out = snapshot.Entity{
				Position: e.position, ID: e.ownID, Op: e.op, Modified: e.modified, Header: e.header, Body: e.body,
				Key: key, Tombstone: e.record.Tombstone, HasID: message.ID(e.header) != "",
				AppendPart: func(b []byte, boundary string) []byte { return appendPart(b, e.entity, boundary) },
			}
			if pb.cfg.Snapshot.Key != nil && key != nil {
				with := *e.entity
				with.addKey(key)
				out.Header = with.header
			}
			if !yield(&out, nil) {
				return
			}
		}
	}
}
