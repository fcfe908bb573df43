package datareplication

import (
	"context"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// checkPageBefore checks the position cur at the start of p, before the first entity of p is
// delivered. A position within a page is proven by the entities before it on the page. At
// the start there are none, and a feed that was recreated under the same URLs would be
// continued in its middle. So the page before p must still end with the entity that was
// read last.
func (r *feedReader) checkPageBefore(ctx context.Context, cur *cursor, p *openPage, first *feed.Entity, seen *sightings) error {
	before := cur.pageBefore()
	if before == "" || r.proven.provesPosition(cur, p.answered) {
		return nil
	}
	looked := time.Now()
	end, found, err := r.pages.lastEntity(ctx, before)
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
		seen.addAll(feed.NewViolation(PageChanged, before, "the entity %s at its end was of %s and is of %s now", cur.Last, formatUnix(cur.Modified), formatUnix(end.Modified.Unix())))
	}
	r.proven = pageEnd{before, strings.Clone(storedID(cur.Last)), looked, time.Now()}
	return nil
}
