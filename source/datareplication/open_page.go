package datareplication

import (
	"context"
	"errors"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// openPage requests the page of the cursor, and reads up to its position. It returns nil if the feed still
// ends at the position.
func (w *pageWalk) openPage(ctx context.Context) (*openPage, error) {
	r, cur := w.r, &w.cur
	for earlier := 0; ; {
		etag, full := cur.ETag, time.Unix(cur.Full, 0)
		known := r.newestEnd.matches(*cur)
		if known {
			etag, full = r.newestEnd.etag, r.newestEnd.full
		}
		switch {
		case !r.trustsETag(full):
			etag = ""
		case known:
			if same, err := w.sameEnd(ctx); same || err != nil {
				return nil, w.asLostPosition(err)
			}
		}
		p, err := r.pages.requestPage(ctx, cur.Page, etag)
		if err != nil {
			return nil, w.asLostPosition(err)
		}
		if p == nil {
			if !known {
				if now := time.Now(); full.After(now) {
					full = now
				}
				r.newestEnd = newestEnd{page: cur.Page, index: cur.Index, digest: cur.Digest, etag: etag, full: full}
			}
			return nil, nil
		}
		r.expectAfter(ctx, p)
		skipped := ""
		if !known && cur.Index == 0 {
			skipped, err = w.checkPrev(ctx, p)
		}
		if err == nil && skipped == "" {
			if err = w.skipRead(ctx, p); err == nil {
				return p, nil
			}
		}
		p.body.Close()
		if earlier++; err == nil && earlier > headsPerCall {
			err = newBreach(kindLoop, p.Self, "more than %d prev links in a row lead to pages that next links skip", headsPerCall)
		}
		if err != nil {
			return nil, err
		}
		cur.Page = skipped
		*w.trail = trail{} // this page is visited again
	}
}

// sameEnd reports whether a HEAD request proves that the feed has not changed since its end
// was read. It is used for servers without ETags whose Last-Modified is conclusive.
func (w *pageWalk) sameEnd(ctx context.Context) (bool, error) {
	r := w.r
	if r.newestEnd.etag != "" || !r.newestEnd.settled || r.pages.noHead {
		return false, nil
	}
	h, err := r.pages.requestHead(ctx, r.newestEnd.page, false)
	if err != nil {
		return false, err
	}
	return !r.pages.noHead && h.Next == "" && h.Modified.Equal(r.newestEnd.modified) && h.length == r.newestEnd.length, nil
}

// checkPrev checks the prev link of a page of which nothing has been read. If the link
// leads to a newer page that has not been read, it returns that page, to be read first.
func (w *pageWalk) checkPrev(ctx context.Context, p *openPage) (earlier string, err error) {
	w.seen.addAll(p.violations...)
	came := w.cur.Came
	if came == "" || p.Prev == came {
		return "", nil
	}
	if p.Prev != "" {
		h, err := w.r.pages.requestHead(ctx, p.Prev, false)
		switch {
		case err != nil && !errors.Is(err, feed.ErrPermanent) && !isGone(err):
			return "", err
		case err == nil && h.Self == came:
			return "", nil // the same page by another name
		case err == nil && (h.Next == p.Self || h.Next == w.cur.Page) && h.Modified.Unix() >= w.cur.Modified:
			// The next link has skipped a page that has not been read, as a next link does
			// that always leads to the latest page.
			earlier = p.Prev
		}
		w.seen.addAll(feed.NewViolation(kindLinksAsymmetric, p.Self, "its prev link leads to %s, but the page whose next link leads here is %s", p.Prev, came))
	}
	if earlier == "" && p.Modified.Unix() < w.cur.Modified {
		// The next links may lead back to pages that were read. trail detects that only
		// after entities would have been published twice.
		return "", w.checkLoop(ctx, p, came)
	}
	return earlier, nil
}

// checkLoop fails if the next links lead from p back to the page whose next link
// led to p.
func (w *pageWalk) checkLoop(ctx context.Context, p *openPage, came string) error {
	next := p.Next
	for n := 0; next != "" && n < headsPerCall; n++ {
		if next == came {
			return newBreach(kindLoop, came, "the next links form a circle through %s", p.Self)
		}
		h, err := w.r.pages.requestHead(ctx, next, false)
		switch {
		case err != nil && !errors.Is(err, feed.ErrPermanent) && !isGone(err):
			return err
		case err != nil:
			return nil // the error is reported when reading gets to that page
		}
		next = h.Next
	}
	return nil
}

// skipRead reads the entities before the position, and checks that they are those that
// were read before.
func (w *pageWalk) skipRead(ctx context.Context, p *openPage) error {
	cur := &w.cur
	var sum digest
	var e feed.Entity
	for p.parsed < cur.Index {
		used := w.r.pages.reserved.used
		var err error
		e, _, err = p.nextEntity(ctx, true) // its violations were reported when it was new
		if errors.Is(err, errPageEnd) {
			return newLostPosition(kindPageChanged, p.Self, "the page had %d entities and has %d now", cur.Index, p.parsed)
		}
		if err != nil {
			return err
		}
		sum = sum.addEntity(&e)
		w.r.pages.reserved.freeSince(used)
	}
	switch {
	case cur.Index == 0:
	case !isStoredID(cur.Last, e.ID):
		return newLostPosition(kindPageChanged, p.Self, "entity number %d of the page was %s and is %s now", cur.Index, cur.Last, e.ID).forCertain()
	case sum != cur.Digest:
		if sum != w.r.changed {
			w.r.changed = sum
			w.seen.addAll(feed.NewViolation(kindPageChanged, p.Self, "entities that were read before have other contents now, somewhere in the first %d", cur.Index))
		}
		w.replaced, cur.Digest = cur.Digest, sum
	}
	return nil
}

// asLostPosition returns a lostPosition for an error about a page of the cursor that is gone
// or must not be requested (case 84), and other errors unchanged.
func (w *pageWalk) asLostPosition(err error) error {
	switch page := w.cur.Page; {
	case isGone(err):
		return newLostPosition(kindPageGone, page, "the next page to read is gone: %v", err)
	case page == w.named && w.r.pages.refused(err, page):
		return newLostPosition(kindPageGone, page, "the next page to read is out of reach: %v", err).forCertain()
	}
	return err
}
