package datareplication

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// provenFor is how long a page that was read to its end proves the position at the start
// of the next page. The end of the page is read again after a longer pause, an error or a
// restart, and after reading has reached the end of the feed.
const provenFor = time.Minute

// pageEnd is the end of a page. It proves the position at the start of the next page.
type pageEnd struct {
	page string // as the cursor names it
	last string // Content-ID of the page's last entity, as storedID returns it
	seen time.Time
}

// endBefore returns the page end that was just seen before the position of cur. It copies
// the ID, which may be a part of an entity's memory.
func endBefore(cur *cursor) pageEnd {
	return pageEnd{cur.pageBefore(), strings.Clone(storedID(cur.Last)), time.Now()}
}

// holds reports whether the page end was read within provenFor and proves the position
// of cur.
func (e pageEnd) holds(cur *cursor) bool {
	return e.page == cur.pageBefore() && e.last == storedID(cur.Last) && time.Since(e.seen) < provenFor
}

// checkPageBefore checks a position at the start of p, before the first entity of p is
// delivered. A position within a page is proven by the entities before it on the page. At
// the start there are none, and a feed that was recreated under the same URLs would be
// continued in its middle. So the page before p must still end with the entity that was
// read last.
func (w *pageWalk) checkPageBefore(ctx context.Context, p *openPage, first *feed.Entity) error {
	s, cur := w.s, &w.cur
	before := cur.pageBefore()
	if before == "" || s.proven.holds(cur) {
		return nil
	}
	end, found, err := w.lastEntity(ctx, before)
	gone := isGone(err) || s.refused(err, before)
	follows := (p.Prev == "" || p.Prev == cur.Came) && first.Modified.Unix() >= cur.Modified
	switch {
	case gone && !follows:
		return lost(PageGone, before, "the page before %s is gone, and that page does not continue it: %v", p.Self, err)
	case gone:
		// Feeds lose their oldest pages. The links and times of the rest of this feed
		// continue the position.
		s.log.Info("the page before the position is gone; going on by the links", "page", p.Self, "gone", before)
	case err != nil:
		return err
	case !found:
		return lost(PageChanged, before, "the page had the entity %s at its end and is empty now", cur.Last)
	case !isStoredID(cur.Last, end.ID):
		return lost(PageChanged, before, "the page ended with the entity %s and ends with %s now", cur.Last, end.ID)
	case end.Modified.Unix() != cur.Modified:
		w.seen.add(violation(PageChanged, before, "the entity %s at its end was of %s and is of %s now", cur.Last, unix(cur.Modified), unix(end.Modified.Unix())))
	}
	s.proven = endBefore(cur)
	return nil
}

// lastEntity returns the ID and the time of the last entity of a page, if it has any.
func (w *pageWalk) lastEntity(ctx context.Context, url string) (last feed.Entity, found bool, err error) {
	s := w.s
	p, err := s.get(ctx, url, "")
	if err != nil {
		return feed.Entity{}, false, err
	}
	defer p.body.Close()
	for {
		used := s.reserved.used
		e, _, err := p.entity(ctx, true)
		switch {
		case errors.Is(err, errPageEnd):
			return last, found, nil
		case err != nil:
			return feed.Entity{}, false, err
		}
		last, found = feed.Entity{ID: strings.Clone(e.ID), Modified: e.Modified}, true
		s.reserved.shrink(used)
	}
}
