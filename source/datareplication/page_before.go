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
	if cur.pageBefore() == "" {
		return nil
	}
	if !r.proven.provesPosition(cur, p.answered) {
		if err := r.provePosition(ctx, cur, p, first, seen); err != nil {
			return err
		}
	}
	if at := first.Modified; at.Before(r.proven.modified) && at.Unix() >= cur.Modified { // else time runs back, which is reported
		seen.addAll(feed.NewViolation(kindPageNewerThanNext, r.proven.page, "the page is of %s, and the first entity after it, %s, of %s", formatUnix(r.proven.modified.Unix()), first.ID, formatUnix(first.Modified.Unix())))
	}
	return nil
}

// provePosition reads the page before p.
func (r *feedReader) provePosition(ctx context.Context, cur *cursor, p *openPage, first *feed.Entity, seen *sightings) error {
	before := cur.pageBefore()
	looked := time.Now()
	end, modified, found, err := r.pages.lastEntity(ctx, before)
	gone := isGone(err) || r.pages.refused(err, before)
	follows := (p.Prev == "" || p.Prev == cur.Came) && first.Modified.Unix() >= cur.Modified
	switch {
	case gone && !follows:
		return newLostPosition(kindPageGone, before, "the page before %s is gone, and that page does not continue it: %v", p.Self, err)
	case gone:
		// Feeds lose their oldest pages. The links and times of the rest of this feed
		// continue the position.
		r.log.Info("the page before the position is gone; following the links instead", "page", p.Self, "gone", before)
	case err != nil:
		return err
	case !found:
		return newLostPosition(kindPageChanged, before, "the page had the entity %s at its end and is empty now", cur.Last)
	case !isStoredID(cur.Last, end.ID):
		return newLostPosition(kindPageChanged, before, "the page ended with the entity %s and ends with %s now", cur.Last, end.ID)
	case end.Modified.Unix() != cur.Modified:
		seen.addAll(feed.NewViolation(kindPageChanged, before, "the entity %s at its end was of %s and is of %s now", cur.Last, formatUnix(cur.Modified), formatUnix(end.Modified.Unix())))
	}
	r.proven = pageEnd{before, strings.Clone(storedID(cur.Last)), modified, looked, time.Now()}
	return nil
}
