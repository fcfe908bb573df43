package datareplication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// seek is the search for the position where reading starts: by HEAD requests from the
// entry point back to the page to start at, then by GET past the entities before the
// position (specification §1.1). It is part of the cursor, so that it continues after a
// restart. Its size does not depend on the length of the feed.
type seek struct {
	// Start is the configured start that this search is for, or empty after a gap. If the
	// configuration has another start, another search begins.
	Start string `json:"start,omitempty"`

	// The target is the end of the feed if Now is set. Otherwise it is the entity after
	// the one with the ID, which has the time From. Without an ID it is the first entity of
	// the time From (Unix seconds) or later, and without From the first entity of all.
	Now  bool   `json:"now,omitempty"`
	ID   string `json:"id,omitempty"`
	From *int64 `json:"from,omitempty"`
	// Skip are Content-IDs of the time From that are published already. They are left out
	// until the first entity that is not one of them.
	Skip idHashes `json:"skip_hashes,omitempty"`
	// WholeSkip was stored by earlier versions. decodeCursor converts it to Skip.
	WholeSkip []string `json:"skip,omitempty"`
	// Gap reports that pages are known to be missing. The way back ends at the oldest page
	// that is left.
	Gap bool `json:"gap,omitempty"`
	// exact reports that ID was read from the feed, not typed by a person.
	exact bool

	// Back is the next page on the way back, or empty for the entry point. Newer is the page
	// whose prev link led there, and NewerTime its time.
	Back      string `json:"back,omitempty"`
	Newer     string `json:"newer,omitempty"`
	NewerTime int64  `json:"newer_time,omitempty"`
	// Trail detects loops.
	Trail trail `json:"trail,omitzero"`
	// Oldest reports that the way back ended at the oldest page, and that no entity older
	// than From has been read since. The feed may have lost such entities.
	Oldest bool `json:"oldest,omitempty"`
	// Early is the number of seconds by which From is earlier than the first entity that
	// the feed must have. A feed that begins within that time is complete.
	Early int64 `json:"early,omitempty"`
	// Reached reports that the feed had entities older than From. If it has none later, it
	// has lost some.
	Reached bool `json:"reached,omitempty"`
}

func (s *seek) String() string {
	switch {
	case s.Now:
		return "the end of the feed"
	case s.ID != "":
		return fmt.Sprintf("the entity after %s of %s", s.ID, unix(*s.From))
	case s.From != nil:
		return "the first entity since " + unix(*s.From)
	}
	return "the first entity of the feed"
}

func unix(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// newSeek returns the search for a configured start.
func newSeek(start Start) *seek {
	s := &seek{Start: start.String(), Now: start.Now, ID: start.ID}
	if !start.At.IsZero() {
		// Feeds have whole seconds: one that is asked for with a fraction
		// must not lose the entities of its second (case 19).
		from := start.At.Unix()
		s.From = &from
	}
	return s
}

// verdict is the result of a comparison of an entity with the target of a search.
type verdict int

const (
	before  verdict = iota // the entity is before the position
	found                  // the entity is after the position
	last                   // the entity is the last before the position
	missing                // the position is not in the feed
)

// compare returns where e is, relative to the target of the search.
func (s *seek) compare(e *feed.Entity) verdict {
	at := e.Modified.Unix()
	switch {
	case s.Now, s.From != nil && at < *s.From:
		return before
	case s.ID != "" && (isStoredID(s.ID, e.ID) || !s.exact && sameID(e.ID, s.ID)):
		return last
	case s.ID != "" && at > *s.From:
		return missing
	case s.ID != "", s.From != nil && at == *s.From && s.Skip.contains(e.ID):
		return before
	}
	return found
}

// sameID compares an ID of the feed with one that a person may have typed: one
// pair of angle brackets more or less does not matter (case 56).
func sameID(id, wanted string) bool {
	return bare(id) == bare(wanted)
}

func bare(id string) string {
	return strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">")
}

// headsPerCall and headsFor bound one call of seekBack. The cursor is stored after each
// call, so not much is repeated if the process ends.
const (
	headsPerCall = 100
	headsFor     = 2 * time.Second
)

// errEmpty reports that the feed has no page yet (case 89).
var errEmpty = errors.New("the feed is empty")

// seekBack follows prev links towards older pages, with at most limit requests and for
// about headsFor, unless limit is 0. It returns the URL of the page to start at, or "" if
// it has not reached it yet.
func (s *Source) seekBack(ctx context.Context, sr *seek, limit int, seen *sightings) (start string, err error) {
	begin := time.Now()
	for n := 0; limit == 0 || n < limit && (n == 0 || time.Since(begin) < headsFor); n++ {
		page, err := s.headBack(ctx, sr)
		switch {
		case err != nil && n > 0 && limit > 0 && !errors.Is(err, feed.ErrPermanent):
			return "", nil // the next call gets the same error, or can go on
		case err != nil && n == 0 && sr.Back != "" && s.refused(err, sr.Back):
			return "", lost(PageGone, sr.Back, "the page to look at next is out of reach: %v", err).forCertain()
		case err != nil:
			return "", err
		case sr.Newer == "":
			s.newest.set(page.Modified)
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
		case page.Prev == page.Self || sr.Trail.visit(page.Prev):
			return "", broken(Loop, page.Self, "the prev links lead in a circle by way of %s", page.Prev)
		}
		sr.Newer, sr.NewerTime, sr.Back = page.Self, page.Modified.Unix(), page.Prev
	}
	return "", nil
}

// headBack requests the header of the next page on the way back.
func (s *Source) headBack(ctx context.Context, sr *seek) (head, error) {
	if sr.Back == "" {
		page, err := s.head(ctx, s.cfg.URL)
		if errors.Is(err, errNoContent) {
			return head{}, errEmpty
		}
		return page, err
	}
	page, gone := s.head(ctx, sr.Back)
	if !isGone(gone) {
		return page, gone
	}
	// Feeds lose their oldest pages. The page whose prev link led here shows whether this
	// page is still part of the feed.
	page, err := s.head(ctx, sr.Newer)
	switch {
	case isGone(err):
		return head{}, lost(PageGone, sr.Newer, "two neighbouring pages are gone, this one and %s", sr.Back)
	case err != nil:
		return head{}, err
	case page.Prev == sr.Back && !sr.Gap:
		return head{}, lostForGood(PageGone, page.Self, "its prev link leads to a page that is gone: %v", gone)
	case page.Prev == sr.Back && sr.ID == "" && !s.old.confirmed():
		// All older entities are left out from here on, so this must be confirmed. A search
		// for an ID cannot go wrong here: it fails, and is repeated.
		return head{}, lost(PageGone, page.Self, "its prev link leads to a page that is gone: %v", gone)
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
		return broken(MissingNext, page.Self, "the page has no next link although the page %s links back to it", sr.Newer)
	}
	if page.Next != sr.Newer {
		seen.add(violation(LinksAsymmetric, page.Self, "its next link leads to %s, but the page that links back to it is %s", page.Next, sr.Newer))
	}
	if at := page.Modified.Unix(); at > sr.NewerTime {
		seen.add(violation(PageTimeRunsBack, page.Self, "it is of %s, and the page after it of %s", unix(at), unix(sr.NewerTime)))
	}
	return nil
}

// again returns the search in its initial state.
func (s *seek) again() *seek {
	return &seek{Start: s.Start, Now: s.Now, ID: s.ID, From: s.From, Skip: s.Skip, Gap: s.Gap, Early: s.Early, Reached: s.Reached, exact: s.exact}
}

// trail detects links that form a loop, in constant memory and after at most about three
// times as many steps as there are pages (Brent's algorithm: Mark is moved to the current
// page at every power of two).
type trail struct {
	Mark  string `json:"mark,omitempty"`
	Steps int    `json:"steps,omitempty"`
	Power int    `json:"power,omitempty"`
}

// visit counts a step to a page and reports whether it closes a loop.
func (t *trail) visit(page string) bool {
	if page == t.Mark {
		return true
	}
	if t.Steps++; t.Steps > t.Power {
		t.Mark, t.Steps, t.Power = page, 0, max(2*t.Power, 1)
	}
	return false
}
