package syndication

import (
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// feedState is the state of a Source between calls. It only saves requests: without it,
// the same entries are published.
type feedState struct {
	documentReader
	newest instant
	// unread counts the consecutive polls whose subscription document could not be
	// read.
	unread int
	// search is how far the search for the oldest document of the present call has come; nil
	// if there is none.
	search atomic.Pointer[search]
	// round has the pages that were read in mode tail since the last pause.
	round map[hashedKey]bool
}

// turn is one call of Next.
type turn struct {
	s    *feedState
	cur  cursor
	seen violationSet
	// asked reports that the subscription document was received. noted reports that the
	// cursor has changed although the call fails.
	asked, noted bool
}

// dropReported drops violations that were already reported with the first part of a document.
func (t *turn) dropReported(d *document) {
	if p := t.cur.Doc; p != nil && p.URL == hashOf(d.url) && p.Hash == d.hash {
		d.seen = violationSet{}
	}
}

// isRecheckDue reports whether the published archives, or all pages, have to be read
// again.
func (t *turn) isRecheckDue(now time.Time) bool {
	every := t.s.cfg.RecheckArchives.Every
	switch t.cur.Dialect {
	case Paged:
		every = t.s.cfg.FullEvery
	case Archived, ArchivedElement:
		if t.s.cfg.RecheckArchives.Newest == 0 {
			return false
		}
	default:
		return false
	}
	return t.cur.Walked != 0 && now.Sub(time.Unix(t.cur.Walked, 0)) >= every
}

// expectedOrder returns the order in which the entries of a document are expected.
func (t *turn) expectedOrder() feedxml.Order {
	switch {
	case t.s.profile.order != feedxml.NoOrder:
		return t.s.profile.order
	case t.cur.Order != feedxml.NoOrder:
		return t.cur.Order
	}
	return feedxml.NewestFirst
}

// recordTorn reports a page that may lack the link to the older one.
func (t *turn) recordTorn(d *document) {
	j := t.s.job
	if !d.unsure || j.dialect != Paged && t.cur.Dialect != Paged {
		return
	}
	j.torn, j.lacking, j.shared = true, true, true
	t.seen.addViolation(Incomplete, d.url, "the page is broken, and the link to what is older may be missing")
}
