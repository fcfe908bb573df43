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
	MissingNext       = "missing_next_link"
	Loop              = "loop"
	TooManyEmptyPages = "too_many_empty_pages"
	BadIndex          = "invalid_snapshot_index"

	IDNotFound   = "content_id_not_found"
	NotOldEnough = "feed_not_old_enough"
	PageGone     = "page_gone"
	PageChanged  = "page_changed"

	SnapshotReplaced = "snapshot_replaced"
	NotInFeed        = "snapshot_entity_not_in_feed"

	EmptyPage         = "empty_page"
	LinksAsymmetric   = "links_asymmetric"
	TimeRunsBack      = "time_runs_back"
	PageTimeRunsBack  = "page_time_runs_back"
	PageOlderThanLast = "page_older_than_entity"
	PageNewerThanLast = "page_newer_than_entity"
	PageNewerThanNext = "page_newer_than_next"
	EntryNotNewest    = "entry_point_not_newest"
	HeadRefused       = "head_refused"
	HeadDiffers       = "head_differs"
	RepeatedID        = "repeated_content_id"
	RelativePage      = "relative_page_url"
)

// newBreach returns the error about a breach that stops the reading, with its cure.
func newBreach(kind, page, format string, args ...any) error {
	cure := "nothing after it is published until the provider has fixed it"
	switch kind {
	case TooManyEmptyPages:
		cure = "nothing after it is published until the provider has fixed it, or 'feedbridge checkpoint set' names a position after the empty pages"
	case BadIndex:
		cure = "check that the URL after snapshot: is the URL of an index; if it is, ask the provider to fix it"
	}
	v := feed.NewViolation(kind, page, format, args...)
	return feed.Permanent(fmt.Errorf("%w; %s", &v, cure))
}

// sightings collects violations.
type sightings []feed.Violation

func (s *sightings) addAll(v ...feed.Violation) { *s = append(*s, v...) }
