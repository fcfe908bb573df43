package datareplication

import (
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
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
	// Gap reports that pages are known to be missing. The way back ends at the oldest page
	// that is left.
	Gap bool `json:"gap,omitempty"`
	// exact reports that ID was read from the feed, not typed by a person.
	exact bool
	// get makes the search begin with a GET. If the page at the entry point is the one to start
	// at, as in a feed of one page, it is read from that answer.
	get bool

	// Back is the next page on the way back, or empty for the entry point. Newer is the page
	// whose prev link led there, and NewerTime its time.
	Back      string `json:"back,omitempty"`
	Newer     string `json:"newer,omitempty"`
	NewerTime int64  `json:"newer_time,omitempty"`
	// Pages counts the pages that the way back has passed, for people.
	Pages int `json:"pages,omitempty"`
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
		return fmt.Sprintf("the entity after %s of %s", s.ID, formatUnix(*s.From))
	case s.From != nil:
		return "the first entity since " + formatUnix(*s.From)
	}
	return "the first entity of the feed"
}

// Search describes a search for the position where reading starts. The zero Search is none.
type Search struct {
	// Target is the position that is searched for, such as "the first entity since" a time.
	Target string
	// Pages is the number of pages that were searched, from the newest page back, and Back
	// the time of the oldest of them. Back is zero if Pages is.
	Pages int
	Back  time.Time
	// Forward is the time of the newest entity that was read to find the position, after the
	// page to start at was found; zero before.
	Forward time.Time
}

func (s *seek) progress() Search {
	p := Search{Target: s.String(), Pages: s.Pages}
	if s.NewerTime != 0 {
		p.Back = time.Unix(s.NewerTime, 0).UTC()
	}
	return p
}

// String describes how far the search has come; "" if there is none.
func (s Search) String() string {
	text := s.Target
	switch {
	case s.Pages == 1:
		text += "; 1 page is searched"
	case s.Pages > 1:
		text += fmt.Sprintf("; %d pages are searched", s.Pages)
	}
	if !s.Back.IsZero() {
		text += ", back to " + s.Back.Format(time.RFC3339)
	}
	if !s.Forward.IsZero() {
		text += ", and from there forward to " + s.Forward.Format(time.RFC3339)
	}
	return text
}

func formatUnix(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// newSeek returns the search for a configured start.
func newSeek(start source.Start) *seek {
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

// compareTarget returns where e is, relative to the target of the search.
func (s *seek) compareTarget(e *feed.Entity) verdict {
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
	return trimAngles(id) == trimAngles(wanted)
}

func trimAngles(id string) string {
	return strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">")
}

// restarted returns the search in its initial state.
func (s *seek) restarted() *seek {
	return &seek{Start: s.Start, Now: s.Now, ID: s.ID, From: s.From, Skip: s.Skip, Gap: s.Gap, Early: s.Early, Reached: s.Reached, exact: s.exact}
}
