package datareplication

import (
	"context"
	"errors"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
)

// checkPageBefore checks a position at the start of p, before the first entity of p is
// delivered. A position within a page is proven by the entities before it on the page. At
// the start there are none, and a feed that was recreated under the same URLs would be
// continued in its middle. So the page before p must still end with the entity that was
// read last.
func (w *pageWalk) checkPageBefore(ctx context.Context, p *openPage, first *feed.Entity) error {
	r, cur := w.r, &w.cur
	before := cur.pageBefore()
	if before == "" || r.proven.provesPosition(cur) {
		return nil
	}
	end, found, err := w.lastEntity(ctx, before)
	gone := isGone(err) || r.pages.refused(err, before)
	follows := (p.Prev == "" || p.Prev == cur.Came) && first.Modified.Unix() >= cur.Modified
	switch {
	case gone && !follows:
		return newLostPosition(PageGone, before, "the page before %s is gone, and that page does not continue it: %v", p.Self, err)
	case gone:
		// Feeds lose their oldest pages. The links and times of the rest of this feed
		// continue the position.
		r.log.Info("the page before the position is gone; following the links instead", "page", p.Self, "gone", before)
	case err != nil:
		return err
	case !found:
		return newLostPosition(PageChanged, before, "the page had the entity %s at its end and is empty now", cur.Last)
	case !isStoredID(cur.Last, end.ID):
		return newLostPosition(PageChanged, before, "the page ended with the entity %s and ends with %s now", cur.Last, end.ID)
	case end.Modified.Unix() != cur.Modified:
		w.seen.addAll(violation(PageChanged, before, "the entity %s at its end was of %s and is of %s now", cur.Last, formatUnix(cur.Modified), formatUnix(end.Modified.Unix())))
	}
	r.proven = endBefore(cur)
	return nil
}

// lastEntity returns the ID and the time of the last entity of a page, if it has any.
func (w *pageWalk) lastEntity(ctx context.Context, url string) (last feed.Entity, found bool, err error) {
	r := w.r
	p, err := r.pages.requestPage(ctx, url, "")
	if err != nil {
		return feed.Entity{}, false, err
	}
	defer p.body.Close()
	for {
		used := r.pages.reserved.used
		e, _, err := p.nextEntity(ctx, true)
		switch {
		case errors.Is(err, errPageEnd):
			return last, found, nil
		case err != nil:
			return feed.Entity{}, false, err
		}
		last, found = feed.Entity{ID: strings.Clone(e.ID), Modified: e.Modified}, true
		r.pages.reserved.freeSince(used)
	}
}
