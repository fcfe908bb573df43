package datareplication

import (
	"context"
	"errors"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// headsPerCall and maxHeadTime bound one call of seekBack. The cursor is stored after each
// call, so not much is repeated if the process ends.
const (
	headsPerCall = 100
	maxHeadTime  = 2 * time.Second
)

// errEmpty reports that the feed has no page yet (case 89).
var errEmpty = errors.New("the feed is empty")

// seekBack follows prev links towards older pages, with at most limit requests and for
// about maxHeadTime, unless limit is 0. It returns the URL of the page to start at, or "" if
// it has not reached it yet.
func (r *feedReader) seekBack(ctx context.Context, sr *seek, limit int, seen *sightings) (start string, err error) {
	begin := time.Now()
	if sr.Back == "" {
		r.path = path{}
	}
	for n := 0; limit == 0 || n < limit && (n == 0 || time.Since(begin) < maxHeadTime); n++ {
		entry := sr.Back == ""
		page, err := r.headBack(ctx, sr)
		if err == nil && entry && page.Next != "" {
			seen.addAll(feed.NewViolation(kindEntryNotNewest, page.Self, "the page at %s has a next link, to %s", r.cfg.URL, page.Next))
		}
		switch {
		case err != nil && n > 0 && limit > 0 && !errors.Is(err, feed.ErrPermanent):
			return "", nil // the next call gets the same error, or can go on
		case err != nil && n == 0 && sr.Back != "" && r.pages.refused(err, sr.Back):
			return "", newLostPosition(kindPageGone, sr.Back, "the next page to search is out of reach: %v", err).forCertain()
		case err != nil:
			return "", err
		case sr.Newer == "":
			r.pages.newest.advance(page.Modified)
		default:
			if err := sr.checkNeighbours(page, seen); err != nil {
				return "", err
			}
		}

		older := sr.From != nil && page.Modified.Unix() < *sr.From
		switch {
		case older && page.Next != "" && (page.Next == sr.Newer || sr.Newer == ""):
			return page.Next, nil
		case older, sr.Now:
			// The feed ends before the position, and new entities will come after its last
			// page (case 17). Or the links disagree about the page to start at, and
			// reading forward finds it.
			return page.Self, nil
		case page.Prev == "":
			sr.Oldest = true
			return page.Self, nil
		case page.Prev == page.Self || sr.Trail.closesLoop(page.Prev):
			return "", newBreach(kindLoop, page.Self, "the prev links form a circle through %s", page.Prev)
		}
		if r.pages.ahead.Number() > 0 {
			r.path.add(page.Self)
		}
		sr.Newer, sr.NewerTime, sr.Back = page.Self, page.Modified.Unix(), page.Prev
		sr.Pages++
		if progress := sr.progress(); sr.Pages%headsPerCall == 0 {
			r.log.Info("searching the position to start at", "place", progress.Target, "pages", progress.Pages, "back_to", progress.Back, "at", sr.Back)
		}
	}
	return "", nil
}

// headEntry requests the header of the page at the entry point, where the search begins.
func (r *feedReader) headEntry(ctx context.Context, sr *seek) (head, error) {
	if sr.get {
		return r.pages.requestEntry(ctx)
	}
	return r.pages.requestHead(ctx, r.cfg.URL, false)
}

// headBack requests the header of the next page on the way back.
func (r *feedReader) headBack(ctx context.Context, sr *seek) (head, error) {
	if sr.Back == "" {
		page, err := r.headEntry(ctx, sr)
		if errors.Is(err, errNoContent) {
			return head{}, errEmpty
		}
		return page, err
	}
	page, gone := r.pages.requestHead(ctx, sr.Back, true)
	if !isGone(gone) {
		return page, gone
	}
	// Feeds lose their oldest pages. The page whose prev link led here shows whether this
	// page is still part of the feed.
	page, err := r.pages.requestHead(ctx, sr.Newer, false)
	switch {
	case isGone(err):
		return head{}, newLostPosition(kindPageGone, sr.Newer, "two neighbouring pages are gone, this one and %s", sr.Back)
	case err != nil:
		return head{}, err
	case page.Prev == sr.Back && !sr.Gap:
		return head{}, lostForGood(kindPageGone, page.Self, "its prev link leads to a page that is gone: %v", gone)
	case page.Prev == sr.Back && sr.ID == "" && !r.old.confirmed():
		// All older entities are left out from here on, so this must be confirmed. A search
		// for an ID cannot go wrong here: it fails, and is repeated.
		return head{}, newLostPosition(kindPageGone, page.Self, "its prev link leads to a page that is gone: %v", gone)
	case page.Prev == sr.Back:
		page.Prev = "" // the rest of the feed begins here
	}
	sr.Newer = ""
	return page, nil
}

// checkNeighbours checks the links between a page and the newer page whose prev link leads
// to it. If the page has no next link, reading forward would end there without an error,
// and all newer entities would be missing (case 18).
func (sr *seek) checkNeighbours(page head, seen *sightings) error {
	if page.Next == "" {
		return newBreach(kindMissingNext, page.Self, "the page has no next link although the page %s links back to it", sr.Newer)
	}
	if page.Next != sr.Newer {
		seen.addAll(feed.NewViolation(kindLinksAsymmetric, page.Self, "its next link leads to %s, but the page that links back to it is %s", page.Next, sr.Newer))
	}
	if at := page.Modified.Unix(); at > sr.NewerTime {
		seen.addAll(feed.NewViolation(kindPageTimeRunsBack, page.Self, "it is of %s, and the page after it of %s", formatUnix(at), formatUnix(sr.NewerTime)))
	}
	return nil
}
