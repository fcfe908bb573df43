package datareplication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// gapPatience is the time for which the position must be missing before reading continues
// after the gap, if the configuration allows that. A server that is being restarted may lack
// its own pages for a while.
const gapPatience = time.Minute

// gapHandler searches the feed for a lost position, and applies the gap policy if the feed
// does not have it.
type gapHandler struct {
	r *feedReader
	// gaps counts searches that did not find the position, since the last batch.
	gaps finding
}

// recoverPosition searches the feed for the lost position, and applies the gap policy if
// the feed does not have it. It is called after the loss is certain or confirmed. The
// result of the search is confirmed in the same way, because one old answer can mislead it.
//
// The whole search happens in one call. The cursor keeps the lost position until an entity
// after it is found, so reading continues if the position comes back, and a position that
// is found and lost in turn does not move the cursor.
func (g *gapHandler) recoverPosition(ctx context.Context, cur cursor, l *lostPosition) (feed.Batch, error) {
	g.r.closePage()
	g.r.trail, g.r.newestEnd = trail{}, newestEnd{}
	if l.forGood {
		return g.handleGap(cur, l)
	}
	var sr *seek
	switch {
	case cur.Search != nil:
		sr = cur.Search.restarted()
	case cur.Last != "":
		sr = &seek{ID: cur.Last, From: &cur.Modified, Gap: true, exact: true}
	default:
		sr = &seek{} // nothing has been read yet
	}
	g.r.log.Warn("the position of the cursor is no longer in the feed; searching for it", "place", sr.String(), "reason", l)
	w, err := g.findPosition(ctx, cursor{Search: sr, Gap: cur.Gap, Owed: cur.Owed})
	if again, ok := errors.AsType[*lostPosition](err); ok {
		again.forGood = false // the result of a search is always confirmed
		return g.handleGap(cur, again)
	}
	if err != nil && mayBeOld(err, &cur) && !g.gaps.countFinding() {
		return feed.Batch{}, unconfirmed(err)
	}
	if err != nil {
		return feed.Batch{}, err
	}
	g.r.trail = *w.trail
	w.seen.addAll(l.violation)
	return w.build(w.encodeCursor(), w.more), nil
}

// findPosition searches for the position of cur from the entry point back, and reads on to
// the first entities after it or to the end of the feed.
func (g *gapHandler) findPosition(ctx context.Context, cur cursor) (*pageWalk, error) {
	w := &pageWalk{r: g.r, trail: new(trail), cur: cur}
	start, err := g.r.seekBack(ctx, cur.Search, 0, &w.seen)
	if errors.Is(err, errEmpty) {
		return nil, newLostPosition(kindPageGone, g.r.cfg.URL, "the feed is empty, and had entities before")
	}
	if err != nil {
		return nil, err
	}
	w.cur.Page = start
	for !w.ended && len(w.entities) == 0 {
		if err := w.readPages(ctx); err != nil && len(w.entities) == 0 {
			return nil, err
		} else if err != nil {
			g.r.closePage()
			w.more = true
		}
	}
	return w, nil
}

// handleGap applies the gap policy to a feed that may have lost entities after the position.
func (g *gapHandler) handleGap(cur cursor, l *lostPosition) (feed.Batch, error) {
	if !g.gaps.countFinding() && !l.forGood {
		return feed.Batch{}, unconfirmed(l)
	}
	left := gapPatience - time.Since(g.gaps.since)
	if cur.Snapshot != nil {
		return g.handleReplaced(cur, l, left)
	}
	switch {
	case g.r.cfg.Gap == GapHalt:
		return feed.Batch{}, feed.Permanent(fmt.Errorf("entities may be missing from the feed: %w; nothing is published until the position is there again, "+
			"or gap is set to %s or %s, or 'feedbridge checkpoint set' names another position", &l.violation, GapResume, GapRestart))
	case cur.Search != nil && cur.Search.Gap, cur.Search == nil && cur.Last != "" && cur.Gap == cur.Last:
		return feed.Batch{}, feed.Permanent(fmt.Errorf("entities may be missing from the feed, and reading after the gap does not work either: %w", &l.violation))
	case left > 0:
		return feed.Batch{}, fmt.Errorf("entities may be missing from the feed: %w; if this persists, reading continues after them in %v (gap: %s)",
			&l.violation, left.Round(time.Second), g.r.cfg.Gap)
	}
	sr := g.seekBehindGap(cur)
	g.r.log.Error("entities may be missing from the feed; continuing as configured", "gap", string(g.r.cfg.Gap), "from", sr.String(), "reason", l)
	next := cursor{Search: sr, Gap: cur.Last}
	return feed.Batch{Cursor: next.encodeCursor(), More: true, Violations: []feed.Violation{l.violation}}, nil
}

// handleReplaced applies the gap policy to a snapshot that was replaced by another one
// before it was read to its end.
func (g *gapHandler) handleReplaced(cur cursor, l *lostPosition, left time.Duration) (feed.Batch, error) {
	switch {
	case g.r.cfg.Gap == GapHalt:
		return feed.Batch{}, feed.Permanent(fmt.Errorf("the rest of the snapshot cannot be read: %w; nothing is published until it is there again, "+
			"or gap is set to %s or %s, which both read the present snapshot, or the feed gets another topic, in which it starts over", &l.violation, GapResume, GapRestart))
	case left > 0:
		return feed.Batch{}, fmt.Errorf("the rest of the snapshot cannot be read: %w; if this persists, the present snapshot is read in %v (gap: %s)",
			&l.violation, left.Round(time.Second), g.r.cfg.Gap)
	}
	g.r.log.Error("the snapshot was replaced while it was read; reading the present one", "gap", string(g.r.cfg.Gap), "snapshot", cur.Snapshot.String(), "reason", l)
	again := cur.Snapshot.restarted()
	cur.Snapshot = &again
	return feed.Batch{Cursor: cur.encodeCursor(), More: true, Violations: []feed.Violation{l.violation}}, nil
}

// seekBehindGap returns the search for the position where reading goes on after a gap.
func (g *gapHandler) seekBehindGap(cur cursor) *seek {
	switch sr := cur.Search; {
	case sr == nil && (g.r.cfg.Gap == GapRestart || cur.Last == ""):
		return &seek{Gap: true}
	case sr == nil:
		return &seek{Gap: true, From: &cur.Modified, Skip: cur.published()}
	case sr.ID != "" && g.r.cfg.Gap == GapRestart:
		return &seek{Gap: true, Start: sr.Start}
	case sr.ID != "":
		return &seek{Gap: true, Start: sr.Start, From: sr.From, Skip: hashIDs([]string{sr.ID})}
	default:
		// Nothing has been published, so reading starts at the oldest entity that is left.
		sr = sr.restarted()
		sr.Gap, sr.Reached = true, false
		return sr
	}
}
