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
	kindArchiveGone       = "archive_gone"       // 404, 410, or an error page three times in a row
	kindArchiveRefused    = "archive_refused"    // 401, 403, 451 and the like
	kindArchiveForeign    = "archive_foreign"    // the link leads where the configuration does not
	kindArchiveUnreadable = "archive_unreadable" // any other error, for six hours
	kindWalkLimit         = "walk_limit"         // Bounds
	kindIncomplete        = "incomplete"         // a page of a paged feed, or of mode tail, is missing
	kindPossibleOverrun   = "possible_overrun"   // two polls of a window have no entry in common
	kindPagedLossy        = "paged_feed_is_lossy"
	kindLossyShift        = "pages_shifted"
	kindPageGone          = "page_gone" // of mode tail; the feed is read from its start again

	kindDeletesHeld      = "deletes_held"     // until the same entries are missing some time later
	kindDeletesWithheld  = "deletes_withheld" // the document is not well-formed
	kindStaleDropped     = "stale_dropped"
	kindUnknownTombstone = "unknown_tombstone"

	kindDialectChanged   = "dialect_changed"
	kindOrderChanged     = "order_changed"
	kindDuplicateID      = "duplicate_ids"
	kindSharedID         = "shared_ids"
	kindUpdatedRegressed = "updated_regressed"
	kindAlwaysChanging   = "always_changing" // most entries change at every poll
	kindFutureDate       = "future_date"
	kindLoop             = "loop"
	kindLinkToArchive    = "subscribed_to_archive"
	kindArchiveTooNew    = "archive_newer_than_feed"
	kindNotPermanent     = "this_is_not_permanent"
	kindTrailing         = "trailing_content"
	kindPartial          = "partial_document" // 226, although the request did not ask for it
)

// kindIdentitiesChanged is the kind of violation of a document in which most IDs have
// changed while the entries have not. It stops the feed.
const kindIdentitiesChanged = "identities_changed"

// The kinds of violation that a document as a whole can show.
const (
	kindMixedDialects  = "mixed_dialects"
	kindRepeatedLink   = "repeated_link"
	kindCurrentNotSelf = "current_is_not_self"
	kindOtherInHeader  = "link_differs_in_header"
	kindNoHistory      = "history_not_reachable"
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
