// Package datareplication reads feeds of the datareplication format: pages of
// multipart entities, linked to each other by Link headers and read from the
// oldest to the newest.
//
// A [Source] finds the page to start at by HEAD requests from the entry point back, reads
// forward from there by GET, and then polls the newest page with one conditional request.
// The search for a configured start begins with a GET, whose answer is read if its page is the
// one to start at: so a feed of one page is started with one request.
// If the configuration names a snapshot, its pages are read first. Package page parses
// the pages.
//
// # The position
//
// The cursor names a page and the number of entities that were read of it. It also has the
// evidence that the position is still the same: the Content-ID and the time of the entity
// before it, and a digest over the entities before it on the page. At the start of a page
// the page before must end with that entity. The page before is read again for this only
// after a restart, a pause, or a poll of an empty newest page. If the evidence does not
// match, the position is lost. The source then searches the whole feed for the entity. If
// the feed does not have it, Config.Gap decides.
//
// Upstreams may have replicas that lag. An older answer is the feed without its newest
// pages and entities. It can hide a position but cannot move it, because the entities
// after the one before the position are the same in every version of the feed. A position
// counts as lost after it was missing several times in a row over several seconds. Until
// then Next returns a transient error.
//
// "Not modified" is trusted for an hour after the page was read in full. The cursor has the
// time of that, so a restart does not extend the hour.
//
// The cursor takes at most 1 KiB, and a few URLs.
//
// # Memory
//
// Pages are parsed as they arrive. A Source holds the batch that it reads and a buffer of
// 64 KiB, however large the page is, and with Config.Memory it reserves the batch before
// it reads it. Nothing that it keeps between calls of Next refers to an entity.
package datareplication

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

// Source reads one feed. It implements the Source of package bridge. Its state between
// calls of Next saves requests and delays reports, and has no other effect. It is used by
// one goroutine at a time.
type Source struct {
	reader *feedReader
	gaps   gapHandler
	// expect is the cursor that was returned last, or for which the last call failed.
	expect  feed.Cursor
	decoded decodedCursor
}

// New returns a Source for the feed that cfg names.
func New(cfg Config, client *source.Client, log *slog.Logger) *Source {
	if cfg.Gap == "" {
		cfg.Gap = GapHalt
	}
	pages := &pageClient{client: client, ahead: client.PagesAhead(), log: log, url: cfg.URL, maxEntity: int(cfg.Limits.Entity)}
	cfg.SearchPages = cmp.Or(cfg.SearchPages, headsPerCall)
	r := &feedReader{cfg: cfg, pages: pages, log: log, trust: trustETag - rand.N(trustETag/6)}
	return &Source{reader: r, gaps: gapHandler{r: r}}
}

// Next reads on from after: at most one page of new entities, or a part of the search for
// the start.
func (s *Source) Next(ctx context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	r := s.reader
	r.pages.reserved, r.limits = reservation{memory: r.cfg.Memory}, limits
	r.pages.lastHead = page.Header{}
	if !bytes.Equal(after, s.expect) {
		r.closePage()
		r.pages.ahead.Close()
		r.trail = trail{}
		r.old, s.gaps.gaps = finding{}, finding{}
	}
	batch, err := s.readNext(ctx, after)
	if err != nil {
		r.release()
		s.expect = after
		r.proven = pageEnd{} // the feed may be recreated before the next call
		return feed.Batch{}, err
	}
	batch.Violations = append(batch.Violations, r.pages.takeHeadFault()...)
	batch.Newest = r.pages.newest.at
	s.expect = batch.Cursor
	r.old, s.gaps.gaps = finding{}, finding{}
	return batch, nil
}

func (s *Source) readNext(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	cur, err := s.decoded.decode(after)
	if err != nil {
		return feed.Batch{}, err
	}
	fresh := cur.Page == "" && cur.Search == nil
	edited := cur.Search != nil && cur.Search.Start != "" && cur.Search.Start != s.reader.cfg.Start.String()
	if fresh || edited {
		cur = startCursor(s.reader.cfg.Start)
	}
	batch, err := s.readAt(ctx, cur, after)
	if err != nil && mayBeOld(err, &cur) && !s.reader.old.countFinding() {
		return feed.Batch{}, unconfirmed(err)
	}
	if l, ok := errors.AsType[*lostPosition](err); ok {
		return s.gaps.recoverPosition(ctx, cur, l)
	}
	return batch, err
}

// readAt continues the snapshot, the search or the reading of pages that cur is in.
func (s *Source) readAt(ctx context.Context, cur cursor, after feed.Cursor) (feed.Batch, error) {
	r := s.reader
	if cur.Snapshot != nil {
		return r.readSnapshot(ctx, cur)
	}
	if cur.Page != "" {
		return (&pageWalk{r: r, trail: &r.trail, cur: cur, named: cur.Page}).readBatch(ctx, after)
	}
	sr := cur.Search
	var seen sightings
	sr.get = true // reading begins in this call
	start, err := r.seekBack(ctx, sr, r.cfg.SearchPages, &seen)
	switch {
	case errors.Is(err, errEmpty) && sr.Now:
		// The feed is empty, so all later entities are new.
		sr.Now = false
		return feed.Batch{Cursor: cur.encodeCursor(), Violations: seen}, nil
	case errors.Is(err, errEmpty):
		return feed.Batch{Cursor: after, Violations: seen}, nil
	case err != nil:
		return feed.Batch{}, err
	case start == "":
		r.pages.client.DropHandedOver() // reading does not begin with the entry point
		return feed.Batch{Cursor: cur.encodeCursor(), More: true, Violations: seen}, nil
	}
	cur.Page = start
	return (&pageWalk{r: r, trail: &r.trail, cur: cur, batchBuilder: batchBuilder{seen: seen}}).readBatch(ctx, after)
}

// Release closes the pages that are kept open between calls of Next, and drops their buffers
// and the index of a snapshot.
func (s *Source) Release() { s.reader.release() }
