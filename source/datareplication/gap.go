package datareplication

import (
	"context"
	"errors"
	"fmt"

	"github.com/feedbridge/feedbridge/feed"
)

// lostPlace says that the place in the cursor is not in the feed any more.
type lostPlace struct{ violation feed.Violation }

func (l *lostPlace) Error() string { return l.violation.Error() }

func lost(kind, page, format string, args ...any) error {
	return &lostPlace{violation(kind, page, format, args...)}
}

// recover finds the place again, or decides what to do if it is not there.
func (s *Source) recover(ctx context.Context, cur cursor, l *lostPlace, seen sightings) (feed.Batch, error) {
	s.closePage()
	s.trail = trail{}
	switch {
	case l.violation.Kind == IDNotFound || l.violation.Kind == NotOldEnough:
		// The start that is configured is not there.
		return s.gap(cur, *cur.Search.From, []string{cur.Search.ID}, l, seen)
	case cur.Gone == cur.Page:
		// It was looked for, found, and led here again.
		return s.gap(cur, cur.Modified, append(cur.Ties, cur.Last), l, seen)
	case cur.Search != nil || cur.Last == "":
		// Nothing has been read yet, so nothing is missed by looking for the
		// place to start at once more.
		sr := newSearch(Start{})
		if cur.Search != nil {
			sr = cur.Search.again()
		}
		next := cursor{Version: cursorVersion, Search: sr, Gone: cur.Page}
		seen.add(l.violation)
		return feed.Batch{Cursor: next.encode(), More: true, Violations: seen}, nil
	}

	s.log.Warn("the place where reading goes on is lost; looking for it in the feed", "content_id", cur.Last, "reason", l)
	w, err := s.locate(ctx, cur, &seen)
	var again *lostPlace
	if errors.As(err, &again) {
		return s.gap(cur, cur.Modified, append(cur.Ties, cur.Last), again, seen)
	}
	if err != nil {
		return feed.Batch{}, err
	}
	seen.add(l.violation)
	if len(w.entities) == 0 {
		w.cur.Gone = cur.Page
	}
	w.cur.trim()
	return feed.Batch{Entities: w.entities, Cursor: w.cur.encode(), More: w.more, Violations: append(seen, w.seen...)}, nil
}

// locate looks from the entry point for the last entity that was read, and
// walks on behind it. What it finds on the way is not kept in the cursor: that
// keeps the place that was lost, to which reading returns if it comes back.
func (s *Source) locate(ctx context.Context, cur cursor, seen *sightings) (*walker, error) {
	sr := &search{ID: cur.Last, From: &cur.Modified}
	start, err := s.back(ctx, sr, 0, seen)
	if isGone(err) || errors.Is(err, errEmpty) {
		return nil, lost(PageGone, cur.Page, "the entity %s cannot be looked for: %v", cur.Last, err)
	}
	if err != nil {
		return nil, err
	}
	w := &walker{s: s, cur: cursor{Version: cursorVersion, Page: start, Search: sr}}
	for w.cur.Search != nil {
		if err := w.run(ctx); err != nil && w.cur.Search != nil {
			return nil, err
		} else if err != nil {
			s.closePage()
			w.more = true
		}
	}
	return w, nil
}

// gap does what the configuration says when entities are missing between what
// was published and what the feed still has.
func (s *Source) gap(cur cursor, from int64, published []string, l *lostPlace, seen sightings) (feed.Batch, error) {
	sr := &search{Gap: true}
	switch {
	case s.cfg.Gap == GapHalt:
		return feed.Batch{}, feed.Permanent(fmt.Errorf("entities may be missing from the feed: %w; nothing is published until the place is there again, "+
			"or gap is set to %s or %s, or 'feedbridge checkpoint set' names another place", &l.violation, GapResume, GapRestart))
	case cur.Search != nil && cur.Search.Gap:
		return feed.Batch{}, feed.Permanent(fmt.Errorf("entities may be missing from the feed, and going on behind the gap does not work either: %w", &l.violation))
	case s.cfg.Gap == GapResume:
		sr.From, sr.Skip = &from, published
	}
	s.log.Error("entities may be missing from the feed; going on as configured", "gap", string(s.cfg.Gap), "from", sr.String(), "reason", l)
	seen.add(l.violation)
	next := cursor{Version: cursorVersion, Search: sr, Gone: cur.Page}
	return feed.Batch{Cursor: next.encode(), More: true, Violations: seen}, nil
}
