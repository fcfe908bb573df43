package syndication

import (
	"time"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// state is kept by a Source between calls. It saves requests and decides nothing.
type state struct {
	documentReader
	newest instant
	// unread counts how often in a row the subscription document could not be read.
	unread int
	// round has the pages that were read in mode tail since the last pause.
	round map[hashedKey]bool
}

// turn is one call of Next.
type turn struct {
	s    *state
	cur  cursor
	seen violationSet
	// asked reports that the subscription document was there, and noted that the
	// cursor has news though the call fails.
	asked, noted bool
}

// dropReported drops violations that were already reported with the first part of a document.
func (r *turn) dropReported(d *document) {
	if p := r.cur.Doc; p != nil && p.URL == hashOf(d.url) && p.Hash == d.hash {
		d.seen = violationSet{}
	}
}

// isRecheckDue reports whether archives that are published, or all pages, are to be
// read again.
func (r *turn) isRecheckDue(now time.Time) bool {
	every := r.s.cfg.RecheckArchives.Every
	switch r.cur.Dialect {
	case Paged:
		every = r.s.cfg.FullEvery
	case Archived, ArchivedElement:
		if r.s.cfg.RecheckArchives.Newest == 0 {
			return false
		}
	default:
		return false
	}
	return r.cur.Walked != 0 && now.Sub(time.Unix(r.cur.Walked, 0)) >= every
}

// expectedOrder is the order that the entries of a document are expected in.
func (r *turn) expectedOrder() feedxml.Order {
	switch {
	case r.s.profile.order != feedxml.NoOrder:
		return r.s.profile.order
	case r.cur.Order != feedxml.NoOrder:
		return r.cur.Order
	}
	return feedxml.NewestFirst
}

// recordTorn records a page that may lack the link to the older one.
func (r *turn) recordTorn(d *document) {
	j := r.s.job
	if !d.unsure || j.dialect != Paged && r.cur.Dialect != Paged {
		return
	}
	j.torn, j.lacking, j.shared = true, true, true
	r.seen.addViolation(Incomplete, d.url, "the page is broken, and the link to what is older may be missing")
}
