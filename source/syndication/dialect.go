package syndication

import (
	"strings"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// Dialect is the way in which a feed keeps the entries that its document has no room
// for.
type Dialect string

// The dialects, in the order of their precedence.
const (
	// Complete: the document is the feed (RFC 5005, section 2).
	Complete Dialect = "complete"
	// Archived: prev-archive leads to older documents that do not change (RFC
	// 5005, section 4).
	Archived Dialect = "archived"
	// ArchivedElement: fh:prev does (drafts 01 to 04).
	ArchivedElement Dialect = "archived_element"
	// Snapshots: links this and prev are a chain of the feed's past documents
	// (draft 00, PaceFeedState).
	Snapshots Dialect = "snapshots"
	// Incremental: the document is a part of the feed, and the rest cannot be
	// reached.
	Incremental Dialect = "incremental"
	// Paged: links lead to other pages, which change (RFC 5005, section 3).
	Paged Dialect = "paged"
	// Window: the document has the newest entries.
	Window Dialect = "window"
)

// navigation are the relations between the documents of a feed.
var navigation = []string{"self", "this", "prev", "prev-archive", "next-archive", "current", "first", "next", "previous", "last"}

// dialectOf returns the dialect of a document that was read to its end. deletes reports
// that entries which a complete document lacks are no longer in the feed. It is false
// if the document also contradicts that, because a wrong delete does more harm than a
// late one. odd lists contradictions for the operator.
//
// The links previous and current of draft 05 are not distinguished from those of a
// paged feed.
func dialectOf(m *feedxml.Meta) (dialect Dialect, deletes bool, odd []feed.Violation) {
	tell := func(kind, format string, args ...any) {
		odd = append(odd, feed.NewViolation(kind, m.URL, format, args...))
	}
	has := func(rels ...string) string {
		for _, rel := range rels {
			if _, n := m.Link(rel); n > 0 {
				return rel
			}
		}
		return ""
	}
	for _, rel := range navigation {
		if link, n := m.Link(rel); n > 1 {
			tell(kindRepeatedLink, "there are %d links %s; %q counts", n, rel, feedxml.Excerpt(link.Href))
		}
	}
	contradicts := m.Complete && m.Incremental == feedxml.Yes
	if contradicts {
		tell(kindMixedDialects, "the document is complete and incremental at once; it is taken for incremental")
	}
	if (m.Complete || m.Incremental == feedxml.No) && !contradicts {
		return Complete, mayDelete(m, has, tell), odd
	}
	switch {
	case has("prev-archive", "next-archive") != "" || m.Archive:
		dialect = Archived
	case m.PrevRaw != "":
		dialect = ArchivedElement
	case has("this") != "":
		dialect = Snapshots
	case m.Incremental == feedxml.Yes:
		dialect = Incremental
		tell(kindNoHistory, "the document has a part of the feed, and no link to the rest")
	case has("next", "previous", "prev", "first", "last") != "":
		dialect = Paged
	default:
		dialect = Window
	}
	return dialect, false, odd
}

// isAtomHopper reports whether a subscription document was made by Atom Hopper: no
// document is newer, so its next-archive leads to an older document.
func isAtomHopper(m *feedxml.Meta) bool {
	_, newer := m.Link("prev-archive")
	_, older := m.Link("next-archive")
	current, n := m.Link("current")
	self, _ := m.Link("self")
	isCurrent := n == 0 || current.Href == m.URL || current.Href == self.Href
	return older > 0 && newer == 0 && isCurrent && !m.Archive && !m.Complete
}

// mayDelete reports whether the entries that a complete document lacks were deleted,
// which is so if nothing in the document contradicts its completeness.
func mayDelete(m *feedxml.Meta, has func(...string) string, tell func(kind, format string, args ...any)) bool {
	links := []string{"prev-archive", "next-archive", "next", "previous", "first", "last"}
	if m.Complete {
		links = append(links, "prev")
	} else if has("prev") != "" || m.PrevRaw != "" {
		// Draft 00 forbids it, but defines the meaning of the flag in this case too.
		tell(kindMixedDialects, "the document is the whole feed and links to an older one, which is ignored")
	}
	current, _ := m.Link("current")
	self, _ := m.Link("self")
	if current.Href != "" && self.Href != "" && current.Href != self.Href {
		tell(kindCurrentNotSelf, "the document is complete, and names %q as the current one", feedxml.Excerpt(current.Href))
	}
	if rel := has(links...); rel != "" {
		tell(kindMixedDialects, "the document is complete and has a link %s; nothing is taken for deleted", rel)
		return false
	}
	return true
}

// olderLink returns the URL of the next older document, "" if there is none, and the relation that
// leads there.
func (p *profile) olderLink(m *feedxml.Meta, dialect Dialect) (url, rel string) {
	rels := p.older
	if rels == nil {
		switch dialect {
		case Archived:
			rels = []string{"prev-archive"}
		case ArchivedElement:
			if m.Prev != "" {
				return withoutFragment(m.Prev), ""
			}
			rels = []string{"prev-archive"}
		case Snapshots:
			rels = []string{"prev"}
		case Paged:
			rels = pagedOlder
		default:
			return "", ""
		}
	}
	for _, rel := range rels {
		if link, n := m.Link(rel); n > 0 {
			return withoutFragment(link.Href), rel
		}
	}
	if dialect == Archived || dialect == ArchivedElement {
		return withoutFragment(m.Prev), ""
	}
	return "", ""
}

func withoutFragment(url string) string {
	url, _, _ = strings.Cut(url, "#")
	return url
}

// profile has the settings that a configured dialect implies.
type profile struct {
	forced Dialect // "" detects the dialect
	// older and newer are link relations. The first of older that a document has is
	// used. The default is the relation of the detected dialect.
	older []string
	newer string
	order feedxml.Order
	tail  bool
	// steady reports that pages do not shift: a link to one names the entry that it
	// begins behind.
	steady bool
}

// pagedOlder are the relations to the next older page. Atom Hopper links its live
// pages with next, and the last of them with next-archive to its archives, which
// have next-archive too, where RFC 5005 has prev-archive.
var pagedOlder = []string{"next", "next-archive"}

var profiles = map[DialectName]profile{
	"auto":     {},
	"complete": {forced: Complete},
	"archived": {forced: Archived},
	"paged":    {forced: Paged},
	"window":   {forced: Window},
	// The other drafts are detected; a feed without their marks is of draft 05.
	"feed-history": {forced: Archived, older: []string{"previous", "prev"}},
	"atomhopper":   {forced: Paged, older: pagedOlder, newer: "prev-archive", steady: true},
	"ict4h":        {forced: Archived, order: feedxml.OldestFirst, newer: "next-archive"},
	"kurrent":      {forced: Paged, older: []string{"next"}, newer: "previous", tail: true},
}

var orders = map[OrderName]feedxml.Order{"auto": feedxml.NoOrder, "newest_first": feedxml.NewestFirst, "oldest_first": feedxml.OldestFirst, "updated": feedxml.Mixed}

func (s Settings) profile() profile {
	p := profiles[s.Dialect]
	if o := orders[s.EntryOrder]; o != feedxml.NoOrder {
		p.order = o
	}
	p.tail = p.tail || s.Mode == "tail"
	return p
}
