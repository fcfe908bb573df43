package syndication

import (
	"fmt"

	"github.com/feedbridge/feedbridge/feed"
)

// The kinds of violation that a poll reports. None of them stops the reading. Those of
// the first group mean that entries may be missing from the topic, those of the second
// that entries were left out on purpose. A violation is reported once for each change
// of its document, with the number of times that it occurs there.
const (
	ArchiveGone       = "archive_gone"       // 404, 410, or an error page three times in a row
	ArchiveRefused    = "archive_refused"    // 401, 403, 451 and the like
	ArchiveForeign    = "archive_foreign"    // the link leads where the configuration does not
	ArchiveUnreadable = "archive_unreadable" // any other error, for six hours
	WalkLimit         = "walk_limit"         // Bounds
	Incomplete        = "incomplete"         // a page of a paged feed, or of mode tail, is missing
	PossibleOverrun   = "possible_overrun"   // two polls of a window have no entry in common
	PagedLossy        = "paged_feed_is_lossy"
	LossyShift        = "pages_shifted"
	PageGone          = "page_gone" // of mode tail; the feed is read from its start again

	DeletesHeld      = "deletes_held"     // until the same entries are missing some time later
	DeletesWithheld  = "deletes_withheld" // the document is not well-formed
	StaleDropped     = "stale_dropped"
	UnknownTombstone = "unknown_tombstone"

	DialectChanged   = "dialect_changed"
	OrderChanged     = "order_changed"
	DuplicateID      = "duplicate_ids"
	SharedID         = "shared_ids"
	UpdatedRegressed = "updated_regressed"
	AlwaysChanging   = "always_changing" // most entries change at every poll
	IgnoredNothing   = "ignored_nothing" // ignore_changes_in names an element that no entry has
	FutureDate       = "future_date"
	Loop             = "loop"
	LinkToArchive    = "subscribed_to_archive"
	ArchiveTooNew    = "archive_newer_than_feed"
	NotPermanent     = "this_is_not_permanent"
	Trailing         = "trailing_content"
	Partial          = "partial_document" // 226, although the request did not ask for it
)

// The kinds of violation that a document as a whole can show.
const (
	MixedDialects  = "mixed_dialects"
	RepeatedLink   = "repeated_link"
	CurrentNotSelf = "current_is_not_self"
	OtherInHeader  = "link_differs_in_header"
	NoHistory      = "history_not_reachable"
)

// violationSet collects violations: one of each kind and page, with the number of times
// that it was reported.
type violationSet struct {
	list  []feed.Violation
	times []int
}

func (s *violationSet) addViolation(kind, page, format string, args ...any) {
	for i := range s.list {
		if s.list[i].Kind == kind && s.list[i].Page == page {
			s.times[i]++
			return
		}
	}
	s.list = append(s.list, feed.NewViolation(kind, page, format, args...))
	s.times = append(s.times, 1)
}

func (s *violationSet) addAll(list []feed.Violation) {
	for _, v := range list {
		s.addViolation(v.Kind, v.Page, "%s", v.Detail)
	}
}

// takeAll returns the collected violations, and removes them.
func (s *violationSet) takeAll() []feed.Violation {
	for i, n := range s.times {
		if n > 1 {
			s.list[i].Detail += fmt.Sprintf(" (and %d more)", n-1)
		}
	}
	list := s.list
	*s = violationSet{}
	return list
}
