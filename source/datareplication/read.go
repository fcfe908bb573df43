package datareplication

import (
	"context"
	"errors"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// A feed may have a long row of empty pages. But a server that generates an empty page for
// every number must not be read for ever.
const (
	// maxEmptyPages is the largest number of empty pages in a row.
	maxEmptyPages = 1000
	// pagesPerCall is the number of empty pages that one call of Next reads, so that
	// violations are reported and the cursor is stored in between.
	pagesPerCall = 100
)

// pageWalk reads pages from the oldest to the newest, for one call of Next.
type pageWalk struct {
	batchBuilder
	r     *feedReader
	trail *trail // detects next links that form a loop
	cur   cursor
	// named is the page of the caller's cursor.
	named string
	// replaced is the digest in the caller's cursor, if the contents of the
	// page have changed since and cur has another.
	replaced digest

	moved bool // cur differs from the caller's cursor
	more  bool // upstream has more
	ended bool // the feed ends at cur
}

// readBatch reads on from the position of w, to the end of the first page with new
// entities, until the batch is full, or to the end of the feed.
func (w *pageWalk) readBatch(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	err := w.readPages(ctx)
	switch {
	case err != nil && !w.moved:
		return feed.Batch{}, err
	case err != nil:
		// The entities before the error are complete and in order. The next call gets the
		// same error, or can read on.
		w.r.closePage()
		w.r.proven = pageEnd{}
		w.more = true
	}
	if w.moved {
		after = w.encodeCursor()
	}
	return w.build(after, w.more), nil
}

func (w *pageWalk) encodeCursor() feed.Cursor {
	w.cur.trimFields()
	return w.cur.encodeCursor()
}

// readPages reads pages until there are new entities, the batch is full, or the feed ends. It
// ends: each page is read once, and requested a second time at most, and there is a limit for the
// number of pages.
func (w *pageWalk) readPages(ctx context.Context) error {
	r := w.r
	if r.open != nil && (r.open.Self != w.cur.Page || r.open.parsed != w.cur.Index) {
		r.closePage() // it is open at another position, as after a gap
	}
	// kept reports that the page may have been requested some time ago, and again
	// that it was requested a second time because of that.
	kept, again, pages := r.open != nil, false, 0
	for {
		if r.open == nil {
			p, err := w.openPage(ctx)
			if err != nil {
				return err
			}
			if p == nil {
				if w.cur.Last != "" {
					r.pages.newest.advance(time.Unix(w.cur.Modified, 0).UTC())
				}
				return w.endOfFeed()
			}
			r.open, kept = p, p.ahead
		}
		p := r.open
		ended, err := w.takeEntities(ctx, p)
		if err != nil && kept && !again && !w.moved {
			// The request may have ended with the call of Next that made it, or the server
			// may have closed the connection since, as it may if the page was requested ahead
			// and waited for its turn. That is no error: request it again.
			r.closePage()
			again = true
			continue
		}
		if err != nil {
			return err
		}
		if !ended {
			w.more = true
			return nil
		}
		w.checkPage(p)
		w.recordEnd(p)
		r.closePage()
		again = false
		if p.Next == "" {
			w.recordFullRead(p)
			return w.endOfFeed()
		}
		if err := w.startNextPage(p); err != nil {
			return err
		}
		r.pages.updateNewest(ctx)
		if pages++; len(w.entities) > 0 || w.cur.Search != nil || pages == pagesPerCall {
			w.more = true
			return nil
		}
	}
}

// startNextPage moves the cursor from the end of the page p to the start of the page after it.
func (w *pageWalk) startNextPage(p *openPage) error {
	self, next := p.Self, p.Next
	if next == w.cur.Page || next == self || w.trail.closesLoop(next) {
		return newBreach(kindLoop, self, "the next links form a circle through %s", next)
	}
	if w.cur.Index == 0 && w.cur.Empty >= maxEmptyPages {
		return newBreach(kindTooManyEmptyPages, self, "%d pages before it are empty, and so is this one, whose next link leads to %s", w.cur.Empty, next)
	}
	proven := w.cur.Index > 0 || w.r.proven.provesPosition(&w.cur, p.answered)
	w.cur.startNextPage(self, next)
	w.moved = true
	if proven {
		w.r.proven = endBefore(&w.cur, p)
	}
	return nil
}

// takeEntities adds entities of the page to the batch until the page ends or the batch is
// full.
func (w *pageWalk) takeEntities(ctx context.Context, p *openPage) (ended bool, err error) {
	for {
		if w.r.limits.AreReached(len(w.entities), w.size) {
			return false, nil
		}
		used := w.r.pages.reserved.used
		p.parts.Buffers = &w.parts
		e, violations, err := p.nextEntity(ctx, len(w.entities) == 0)
		switch {
		case errors.Is(err, errPageEnd):
			return true, nil
		case errors.Is(err, errNoMemory):
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if w.cur.Index == 0 {
			if err := w.r.checkPageBefore(ctx, &w.cur, p, &e, &w.seen); err != nil {
				return false, err
			}
		}
		deliver, err := w.filterEntity(p, &e)
		if err == nil && deliver {
			err = w.checkSnapshotGap(p, &e)
		}
		if err != nil {
			return false, err
		}
		if deliver {
			w.addEntity(e, violations)
			if w.cur.Last != "" && e.Modified.Unix() < w.cur.Modified {
				w.seen.addAll(feed.NewViolation(kindTimeRunsBack, p.Self, "entity %s is of %s, and %s before it of %s", e.ID, formatUnix(e.Modified.Unix()), w.cur.Last, formatUnix(w.cur.Modified)))
			}
		} else {
			w.r.pages.reserved.freeSince(used)
		}
		// From here on the cursor has the page's own URL. Set earlier, it would move the
		// cursor at a page without new entities.
		w.cur.Page = p.Self
		w.cur.advance(&e)
		w.moved = true
	}
}

// filterEntity reports whether to deliver an entity. It leaves entities out until the search for
// the start of reading has found its position.
func (w *pageWalk) filterEntity(p *openPage, e *feed.Entity) (deliver bool, err error) {
	sr := w.cur.Search
	if sr == nil {
		return true, nil
	}
	at := e.Modified.Unix()
	if sr.From != nil && at < *sr.From {
		sr.Oldest = false
	}
	switch sr.compareTarget(e) {
	case last:
		w.cur.Search = nil
	case found:
		if sr.Oldest && sr.Reached {
			return false, lostForGood(kindNotOldEnough, p.Self, "the oldest entity is of %s, and the feed had some from before %s when the snapshot was begun", formatUnix(at), formatUnix(*sr.From)).forCertain()
		}
		w.cur.Search = nil
		if sr.Oldest && sr.From != nil && at >= *sr.From+sr.Early {
			w.seen.addAll(feed.NewViolation(kindNotOldEnough, p.Self, "the oldest entity is of %s, so the feed may have lost some since %s", formatUnix(at), formatUnix(*sr.From)))
		}
		return true, nil
	case missing:
		if sr.Oldest {
			return false, lostForGood(kindNotOldEnough, p.Self, "the oldest entity is of %s, so the feed has lost %s of %s", formatUnix(at), sr.ID, formatUnix(*sr.From)).forCertain()
		}
		return false, lostForGood(kindIDNotFound, p.Self, "there is no entity %s of %s before the first later one, %s of %s", sr.ID, formatUnix(*sr.From), e.ID, formatUnix(at)).forCertain()
	}
	return false, nil
}

// checkSnapshotGap fails if the feed lacks the oldest entity that was left out of a snapshot
// because the feed must have it. If the feed has that one, it has the later ones, too,
// because feeds lose their oldest pages first. A provider whose entities have other times
// or IDs in the snapshot than on the feed is detected here as well.
func (w *pageWalk) checkSnapshotGap(p *openPage, e *feed.Entity) error {
	switch o := w.cur.Owed; {
	case o == nil:
	case isStoredID(o.ID, e.ID):
		w.cur.Owed = nil
	case e.Modified.Unix() > o.Modified:
		return lostForGood(kindNotInFeed, p.Self, "the snapshot has the entity %s of %s, and the feed has none with this Content-ID up to %s of %s",
			o.ID, formatUnix(o.Modified), e.ID, formatUnix(e.Modified.Unix())).forCertain()
	}
	return nil
}

// endOfFeed is called at the end of the newest page.
func (w *pageWalk) endOfFeed() error {
	w.ended = true
	// Between two polls of an empty newest page the feed may be recreated.
	w.r.proven = pageEnd{}
	if w.cur.Empty > 0 {
		w.cur.Empty, w.moved = 0, true // the row of empty pages has ended
	}
	switch sr := w.cur.Search; {
	case sr == nil:
	case sr.Now:
		w.cur.Search, w.moved = nil, true
	case sr.ID != "" && sr.Oldest:
		return lostForGood(kindNotOldEnough, w.cur.Page, "the feed reaches back to its oldest page, has nothing older than %s, and no entity %s of that time", formatUnix(*sr.From), sr.ID)
	case sr.ID != "":
		return lostForGood(kindIDNotFound, w.cur.Page, "the feed ends without an entity %s of %s", sr.ID, formatUnix(*sr.From))
	}
	return nil
}

// checkPage checks a page that has been read to its end.
func (w *pageWalk) checkPage(p *openPage) {
	if w.r.newestEnd.matches(w.cur) {
		return // it was checked before
	}
	if p.parsed == 0 {
		w.seen.addAll(feed.NewViolation(kindEmptyPage, p.Self, "the page has no entity"))
	}
	if !w.moved || w.cur.Index == 0 || w.cur.Modified == p.Modified.Unix() {
		return
	}
	kind := kindPageOlderThanLast
	if w.cur.Modified < p.Modified.Unix() {
		kind = kindPageNewerThanLast
	}
	w.seen.addAll(feed.NewViolation(kind, p.Self, "the page is of %s, and its last entity %s of %s", formatUnix(p.Modified.Unix()), w.cur.Last, formatUnix(w.cur.Modified)))
}

// recordFullRead records in the cursor that p, the newest page, was read to its end. A
// changed cursor costs a commit. So a cursor that has not moved is changed only when its
// time is too old to be of use: about once an hour on an idle feed, and never without
// ETags.
func (w *pageWalk) recordFullRead(p *openPage) {
	switch {
	case w.moved:
	case keepsETag(p.etag) && !w.r.trustsETag(time.Unix(w.cur.Full, 0)):
		w.moved = true
	default:
		return
	}
	w.cur.setFullRead(p.etag, p.answered)
}

// recordEnd caches the validators of p if it is the newest page.
func (w *pageWalk) recordEnd(p *openPage) {
	if p.Next != "" {
		return
	}
	r, cur := w.r, &w.cur
	r.newestEnd = newestEnd{
		page: cur.Page, index: cur.Index, digest: cur.Digest,
		etag: p.etag, modified: p.Modified, length: p.length,
		settled: p.length >= 0 || p.date.Sub(p.Modified) >= strongAge,
		full:    p.answered,
	}
	if !w.moved && w.replaced != 0 {
		r.newestEnd.digest = w.replaced // the cursor is not changed
	}
	r.pages.newest.advance(p.Modified)
}
