package datareplication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// seek is the way to the place where reading starts: back by HEAD from the
// entry point to the page to start at, then forward by GET past the entities
// in front of the place (specification §1.1). It is part of the cursor, so that
// a restart goes on with it, and has the same size however long the feed is.
type seek struct {
	// Start is the configured start that this search is for; empty if it is
	// for the cure of a gap. Another start in the configuration begins another
	// search.
	Start string `json:"start,omitempty"`

	// What is looked for: the end of the feed if Now, else the entity behind
	// the one with ID, which has the time From, else the first entity of the
	// time From (Unix seconds) or later, else the first of all.
	Now  bool   `json:"now,omitempty"`
	ID   string `json:"id,omitempty"`
	From *int64 `json:"from,omitempty"`
	// Skip are Content-IDs of the time From that are published already. They
	// are left out up to the first entity that is not one of them.
	Skip idHashes `json:"skip_hashes,omitempty"`
	// WholeSkip is what earlier versions stored. decodeCursor makes Skip of it.
	WholeSkip []string `json:"skip,omitempty"`
	// Gap says that pages are known to be missing: going back ends where they
	// begin.
	Gap bool `json:"gap,omitempty"`
	// exact says that ID was read from the feed, not typed by a person.
	exact bool

	// Back is the page to look at next on the way back, empty for the entry
	// point, and Newer the page whose prev link led there, with its time.
	Back      string `json:"back,omitempty"`
	Newer     string `json:"newer,omitempty"`
	NewerTime int64  `json:"newer_time,omitempty"`
	// Trail notices loops.
	Trail trail `json:"trail,omitzero"`
	// Oldest says that the way back ended at the oldest page there is, and
	// that no entity older than From has been seen since. The feed may have
	// lost some then.
	Oldest bool `json:"oldest,omitempty"`
	// Early is by how much From is earlier than what the feed has to have, in seconds:
	// a feed that is as young as that may have begun there.
	Early int64 `json:"early,omitempty"`
	// Reached says that the feed has had entities older than From. If it is
	// found to have none, it has lost some.
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

// verdict is what a search says of an entity.
type verdict int

const (
	before  verdict = iota // the entity lies before the place
	found                  // the entity lies behind the place
	last                   // the entity is the last before the place
	missing                // the place is not in the feed
)

// compare says where e lies from the place that is looked for.
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

// headsPerCall and headsFor bound how far one call of seekBack goes, so that not
// much of the way is lost if the process ends.
const (
	headsPerCall = 100
	headsFor     = 2 * time.Second
)

// errEmpty says that the feed has no page yet (case 89).
var errEmpty = errors.New("the feed is empty")

// seekBack goes on towards older pages, by at most limit requests and about
// headsFor if limit is not 0. It returns the URL of the page to start at, or "" if it has not got there
// yet.
func (s *Source) seekBack(ctx context.Context, sr *seek, limit int, seen *sightings) (start string, err error) {
	begin := time.Now()
	for n := 0; limit == 0 || n < limit && (n == 0 || time.Since(begin) < headsFor); n++ {
		page, err := s.headBack(ctx, sr)
		switch {
		case err != nil && n > 0 && limit > 0 && !errors.Is(err, feed.ErrPermanent):
			return "", nil // the next call meets it again, or finds it passed
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
			// The feed ends before the place, and its last page tells where
			// new entities will come (case 17). Or the links disagree about
			// the page to start at, and the walk will find it.
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

// headBack asks for the header of the next page on the way back.
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
	// Pages vanish from the old end. The page that led here tells whether this
	// one was part of the feed still.
	page, err := s.head(ctx, sr.Newer)
	switch {
	case isGone(err):
		return head{}, lost(PageGone, sr.Newer, "two neighbouring pages are gone, this one and %s", sr.Back)
	case err != nil:
		return head{}, err
	case page.Prev == sr.Back && !sr.Gap:
		return head{}, lostForGood(PageGone, page.Self, "its prev link leads to a page that is gone: %v", gone)
	case page.Prev == sr.Back && sr.ID == "" && !s.old.confirmed():
		// Whatever is older is left out from here on, so this must be sure. A
		// search for an ID is not misled: it fails, and is repeated.
		return head{}, lost(PageGone, page.Self, "its prev link leads to a page that is gone: %v", gone)
	case page.Prev == sr.Back:
		page.Prev = "" // what is left of the feed begins here
	}
	sr.Newer = ""
	return page, nil
}

// checkNeighbours looks at two neighbours: page, and the newer one that led to it. A
// page that ends the feed although a newer one links back to it would be taken
// for the latest on the way forward, and all after it be lost in silence
// (case 18).
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

// again returns the search as it was before it got anywhere.
func (s *seek) again() *seek {
	return &seek{Start: s.Start, Now: s.Now, ID: s.ID, From: s.From, Skip: s.Skip, Gap: s.Gap, Early: s.Early, Reached: s.Reached, exact: s.exact}
}

// trail notices when a walk comes back to where it was, in constant memory
// and after at most about three times as many steps as there are pages
// (Brent's algorithm: a mark that is moved on at every power of two).
type trail struct {
	Mark  string `json:"mark,omitempty"`
	Steps int    `json:"steps,omitempty"`
	Power int    `json:"power,omitempty"`
}

// visit takes a step and says whether it closes a circle.
func (t *trail) visit(page string) bool {
	if page == t.Mark {
		return true
	}
	if t.Steps++; t.Steps > t.Power {
		t.Mark, t.Steps, t.Power = page, 0, max(2*t.Power, 1)
	}
	return false
}
