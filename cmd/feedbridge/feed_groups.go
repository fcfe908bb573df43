package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// feedGroup is a feed, or several that have the same error.
type feedGroup struct {
	feeds []*status.Feed
	cause string // of the first feed: what a person reads of it in a line; empty without trouble
	text  string // printed below the feeds, such as the error of the first one; may be empty
	more  int    // how many other feeds have the same error, and are not in feeds
}

// feedRank orders feeds by their trouble.
func feedRank(f *status.Feed) int {
	switch {
	case f.Attention == status.NeedsYou:
		return 0
	case isTroubled(f):
		return 1
	case f.Attention == status.Behind:
		return 2
	}
	return 3
}

// isTroubled reports whether a person may want to read the explanation.
func isTroubled(f *status.Feed) bool {
	if f.Attention == status.NeedsYou {
		return true
	}
	switch bridge.State(f.State) {
	case bridge.Idle, bridge.Reading, bridge.Starting, bridge.Standby, elsewhere:
		return false
	}
	return true
}

// groupFeeds returns the feeds in natural order, those in trouble first, and those with the same error together.
func groupFeeds(s *status.Process) []feedGroup {
	troubles := map[string]*status.Trouble{}
	for i := range s.Summary.Troubles {
		troubles[s.Summary.Troubles[i].Feed] = &s.Summary.Troubles[i]
	}
	sorted := make([]*status.Feed, len(s.Feeds))
	for i := range s.Feeds {
		sorted[i] = &s.Feeds[i]
	}
	slices.SortStableFunc(sorted, func(a, b *status.Feed) int {
		return cmp.Or(cmp.Compare(feedRank(a), feedRank(b)), status.CompareNames(a.Feed, b.Feed))
	})
	groups, found := make([]feedGroup, 0, len(sorted)), map[string]int{}
	for _, f := range sorted {
		g := feedGroup{feeds: []*status.Feed{f}}
		if isTroubled(f) {
			g.cause = feedCause(f, troubles[f.Feed])
			key := f.State + string(f.Attention) + errorKey(f, g.cause)
			if at, ok := found[key]; ok {
				groups[at].feeds = append(groups[at].feeds, f)
				continue
			}
			found[key] = len(groups)
			g.text = f.Explanation
		}
		groups = append(groups, g)
	}
	return groups
}

// feedCause returns why a feed is in trouble.
func feedCause(f *status.Feed, t *status.Trouble) string {
	switch state := bridge.State(f.State); {
	case f.LastError != nil && (state == bridge.Halted || state == bridge.Retrying):
		return f.LastError.Text
	case t != nil && f.Owner == "":
		return t.Cause
	}
	return f.Explanation
}

// ownParts are the parts of an error that differ from feed to feed and from attempt to attempt: paths of URLs, local
// ports, and times.
var ownParts = regexp.MustCompile(`(https?://[^/\s"?]+)[^\s"]*|:\d+(->)|\d\d\d\d-\d\d-\d\d[T ][0-9:.]+Z?`)

// errorKey is the same for feeds with the same error.
func errorKey(f *status.Feed, text string) string {
	for _, own := range []string{"topic " + f.Topic, "feed " + f.Feed, "resume " + f.Feed} {
		text = strings.ReplaceAll(text, own, "")
	}
	return ownParts.ReplaceAllString(text, "$1$2")
}
