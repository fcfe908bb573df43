package datareplication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

// readSnapshot reads on in the snapshot of cur: its index, the position in the feed after
// it, or entities of one page. At the end of the snapshot, cur is that position.
func (r *feedReader) readSnapshot(ctx context.Context, cur cursor) (feed.Batch, error) {
	w := &snapshotWalk{r: r, cur: cur, sn: cur.Snapshot}
	ix, err := w.snapshotIndex(ctx)
	if err != nil {
		return feed.Batch{}, err
	}
	switch {
	case !w.sn.Ready:
		err = w.findFeedStart(ctx)
	case w.sn.Page < len(ix.pages):
		if err = w.readPage(ctx, ix); isGone(err) {
			err = w.checkReplaced(ctx, err)
		}
	}
	if err != nil {
		return feed.Batch{}, err
	}
	if w.sn.Ready && w.sn.Page == len(ix.pages) {
		r.log.Info("the snapshot has been read; continuing with the feed", "snapshot", w.sn.ID, "entities", w.sn.Published, "from", w.cur.Search.String())
		r.index, w.cur.Snapshot = nil, nil
	}
	return w.build(w.cur.encodeCursor(), true), nil
}

// snapshotWalk reads a part of a snapshot, for one call of Next.
type snapshotWalk struct {
	batchBuilder
	r   *feedReader
	cur cursor
	sn  *snapshotPosition // cur's
}

// snapshotIndex returns the index of the snapshot that is being read.
func (w *snapshotWalk) snapshotIndex(ctx context.Context) (*index, error) {
	sn := w.sn
	if ix := w.r.index; ix != nil && isStoredID(sn.ID, ix.id) && ix.created.Equal(sn.Created) {
		return ix, nil
	}
	ix, err := readIndex(ctx, w.r.pages.client, cmp.Or(sn.Found, sn.Index), &w.seen)
	if sn.Found != "" && source.StatusOf(err) != 0 && errors.Is(err, feed.ErrPermanent) {
		// The snapshot is gone, or was there under a URL that holds for a while.
		ix, err = readIndex(ctx, w.r.pages.client, sn.Index, &w.seen)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case sn.ID == "", sn.Published == 0 && !sn.matches(ix):
		w.startSnapshot(ix)
	case !sn.matches(ix):
		replaced := lostForGood(kindSnapshotReplaced, ix.url, "the snapshot is %s of %s with %d pages now, and was %s of %s with %d pages when %d entities of it were published",
			ix.id, ix.created.Format(time.RFC3339Nano), len(ix.pages), sn.ID, sn.Created.Format(time.RFC3339Nano), sn.Pages, sn.Published)
		if ix.created.After(sn.Created) {
			return nil, replaced.forCertain()
		}
		return nil, replaced // a lagging server has the snapshot before, too
	}
	w.r.index = ix
	return ix, nil
}

// checkReplaced requests the index again after a page is gone, because the snapshot may
// have been replaced. It returns err if it was not.
func (w *snapshotWalk) checkReplaced(ctx context.Context, err error) error {
	was := *w.sn
	w.r.index = nil
	if _, replaced := w.snapshotIndex(ctx); replaced != nil || *w.sn != was {
		return replaced
	}
	return err
}

// startSnapshot starts to read the snapshot of the index. If the position in the feed is
// known already, it is not changed: the feed is read from the creation of the first
// snapshot, and a newer snapshot contributes only entities that were not modified since.
// So the deletes in between are not missed.
func (w *snapshotWalk) startSnapshot(ix *index) {
	sn := w.sn
	found := ""
	if ix.url != sn.Index {
		found = ix.url
	}
	*sn = snapshotPosition{Index: sn.Index, Found: found, ID: storedID(ix.id), Created: ix.created, Pages: len(ix.pages), Ready: sn.Ready, Published: sn.Published}
	if !sn.Ready {
		w.cur.Search.From, w.cur.Search.Early = ix.feedStart(), int64(startMargin/time.Second)
	}
	w.r.log.Info("reading a snapshot", "snapshot", sn.ID, "created", sn.Created, "pages", sn.Pages)
}

// findFeedStart searches for the position in the feed after the snapshot, before entities of
// the snapshot are published. So a feed that cannot be read is detected at once, and a
// feed that later does not reach back so far is known to have lost entities. The whole
// search happens in one call, because a stored one could continue at a page that is gone.
func (w *snapshotWalk) findFeedStart(ctx context.Context) error {
	sr := w.cur.Search.restarted()
	start, err := w.r.seekBack(ctx, sr, 0, &w.seen)
	if gone, ok := errors.AsType[*lostPosition](err); ok {
		return &gone.violation // the next search may find the page again
	}
	switch {
	case errors.Is(err, errEmpty): // the feed starts behind the snapshot
	case err != nil:
		return err
	default:
		w.cur.Page, sr.Reached = start, !sr.Oldest
	}
	sr.Start = "" // from here on a change of the configured start has no effect
	w.cur.Search, w.sn.Ready = sr, true
	return nil
}

// readPage adds entities of the current page to the batch, until the page ends or the batch
// is full. Entities before an error are delivered first. The next call gets the same
// error, or can read on.
func (w *snapshotWalk) readPage(ctx context.Context, ix *index) error {
	r, sn := w.r, w.sn
	at, err := ix.pageURL(sn.Page)
	if err != nil {
		return err
	}
	kept, first := r.open != nil, sn.Entity
	for {
		ended := false
		err := w.openPage(ctx, ix, at)
		if err == nil {
			kept = kept || r.open.ahead
			ended, err = w.takeEntities(ctx, r.open)
		}
		switch {
		case err != nil && kept && sn.Entity == first:
			// The request may have ended with the call of Next that made it.
			r.closePage()
			kept = false
			continue
		case err != nil && sn.Entity == first:
			return err
		case err != nil:
			r.closePage()
		case ended:
			r.closePage()
			sn.Page, sn.Entity, sn.Digest = sn.Page+1, 0, 0
		}
		return nil
	}
}

// openPage requests a page of the snapshot and reads up to the position, unless the last
// call has left it open there.
func (w *snapshotWalk) openPage(ctx context.Context, ix *index, at string) error {
	r, sn := w.r, w.sn
	if r.open != nil {
		return nil
	}
	resp, err := r.pages.ahead.Get(ctx, at)
	if err != nil {
		return fmt.Errorf("%s: %w", sn, err)
	}
	r.pages.ahead.Expect(ctx, ix.following(sn.Page+1, r.pages.ahead.Number())...)
	if resp.Status == http.StatusNoContent {
		resp.Body.Close()
		return fmt.Errorf("%s: GET %s: %w", sn, at, errNoContent)
	}
	boundary, err := page.ParseBoundary(resp.Header.Get("Content-Type"), page.Name(resp.URL))
	if err != nil {
		resp.Body.Close()
		return fmt.Errorf("%s: %w", sn, err)
	}
	r.open = &openPage{
		head:     head{Header: page.Header{Self: at, Boundary: boundary}},
		ahead:    resp.Ahead,
		body:     resp.Body,
		parts:    r.pages.newPartReader(resp.Body, boundary, page.Name(resp.URL)),
		reserved: &r.pages.reserved,
	}
	if err := w.skipRead(ctx, r.open); err != nil {
		r.closePage()
		return err
	}
	return nil
}

// skipRead reads the entities before the position, and checks that they are those that
// were read before.
func (w *snapshotWalk) skipRead(ctx context.Context, p *openPage) error {
	var sum digest
	for p.parsed < w.sn.Entity {
		used := w.r.pages.reserved.used
		e, _, _, err := w.nextEntity(ctx, p, true)
		if errors.Is(err, errPageEnd) {
			break
		}
		if err != nil {
			return err
		}
		sum = sum.addEntity(&e)
		w.r.pages.reserved.freeSince(used)
	}
	if p.parsed < w.sn.Entity || sum != w.sn.Digest {
		return lostForGood(kindSnapshotReplaced, p.Self, "the first %d entities of %s are not those that were read before", w.sn.Entity, w.sn).forCertain()
	}
	return nil
}

// takeEntities adds entities of the page to the batch until the page ends or the batch is
// full.
func (w *snapshotWalk) takeEntities(ctx context.Context, p *openPage) (ended bool, err error) {
	sn := w.sn
	for {
		if w.r.limits.AreReached(len(w.entities), w.size) {
			return false, nil
		}
		used := w.r.pages.reserved.used
		p.parts.Buffers = &w.parts
		e, whole, violations, err := w.nextEntity(ctx, p, len(w.entities) == 0)
		switch {
		case errors.Is(err, errPageEnd):
			return true, nil
		case errors.Is(err, errNoMemory):
			return false, nil
		}
		if err != nil {
			return false, err
		}
		sn.Entity++
		sn.Digest = sn.Digest.addEntity(&e)
		if at := e.Modified.Unix(); whole && at >= *w.cur.Search.From {
			if w.cur.Owed == nil || at < w.cur.Owed.Modified {
				w.cur.Owed = &owed{strings.Clone(storedID(e.ID)), at}
			}
			w.r.pages.reserved.freeSince(used)
			continue
		}
		w.addEntity(e, violations)
		sn.Published++
	}
}

// nextEntity returns the next entity of the page. Entities of snapshots may lack headers that
// entities of feeds must have. The ID is generated from the position then, and the time is
// that of the snapshot, so that they are the same at every reading. whole reports that the
// entity has its own ID and time. Without them it cannot be matched with the feed.
func (w *snapshotWalk) nextEntity(ctx context.Context, p *openPage, wait bool) (e feed.Entity, whole bool, violations []feed.Violation, err error) {
	part, err := p.nextPart(ctx, wait)
	if err != nil {
		return feed.Entity{}, false, nil, err
	}
	f := page.ReadFields(part)
	whole = f.ID != "" && f.Modified != ""
	var seen sightings
	made := ""
	if f.Modified == "" {
		made = message.LastModified
		f.Modified = w.sn.Created.UTC().Format(http.TimeFormat)
		if !p.undated {
			p.undated = true
			seen.addAll(feed.NewViolation(page.MissingEntityTime, p.Self, "entity %d has no Last-Modified; it and those like it on the page get the time of the snapshot, %s", p.parsed, f.Modified))
		}
	}
	f.ID = cmp.Or(f.ID, fmt.Sprintf("%s/%d/%d", w.sn.ID, w.sn.Page, p.parsed))
	f.Operation = cmp.Or(f.Operation, string(feed.Put))
	e, violations, err = f.Entity(part, p.Self, p.parsed)
	p.parsed++
	e.Made = made
	return e, whole, append(seen, violations...), err
}
