package datareplication

import (
	"fmt"

	"github.com/feedbridge/feedbridge/feed"
)

// The kinds of violation of the specification, besides those of package page. Those of the
// first group stop the reading: they are errors that match [feed.ErrPermanent]. Those of
// the last group are counted, and reading goes on. Those of the two groups between are
// about a lost position. They stop the reading unless the position is found again or
// Config.Gap allows to go on.
const (
	kindMissingNext       = "missing_next_link"
	kindLoop              = "loop"
	kindTooManyEmptyPages = "too_many_empty_pages"
	kindBadIndex          = "invalid_snapshot_index"

	kindIDNotFound   = "content_id_not_found"
	kindNotOldEnough = "feed_not_old_enough"
	kindPageGone     = "page_gone"
	kindPageChanged  = "page_changed"

	kindSnapshotReplaced = "snapshot_replaced"
	kindNotInFeed        = "snapshot_entity_not_in_feed"

	kindEmptyPage         = "empty_page"
	kindLinksAsymmetric   = "links_asymmetric"
	kindTimeRunsBack      = "time_runs_back"
	kindPageTimeRunsBack  = "page_time_runs_back"
	kindPageOlderThanLast = "page_older_than_entity"
	kindPageNewerThanLast = "page_newer_than_entity"
	kindPageNewerThanNext = "page_newer_than_next"
	kindEntryNotNewest    = "entry_point_not_newest"
	kindHeadRefused       = "head_refused"
	kindHeadDiffers       = "head_differs"
	kindRepeatedID        = "repeated_content_id"
	kindRelativePage      = "relative_page_url"
)

// newBreach returns the error about a breach that stops the reading, with its cure.
func newBreach(kind, page, format string, args ...any) error {
	cure := "nothing after it is published until the provider has fixed it"
	switch kind {
	case kindTooManyEmptyPages:
		cure = "nothing after it is published until the provider has fixed it, or 'feedbridge checkpoint set' names a position after the empty pages"
	case kindBadIndex:
		cure = "check that the URL after snapshot: is the URL of an index; if it is, ask the provider to fix it"
	}
	v := feed.NewViolation(kind, page, format, args...)
	return feed.Permanent(fmt.Errorf("%w; %s", &v, cure))
}

// sightings collects violations.
type sightings []feed.Violation

func (s *sightings) addAll(v ...feed.Violation) { *s = append(*s, v...) }
