package syndication

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// feedState is the state of a Source between calls. It only saves requests: without it,
// the same entries are published.
type feedState struct {
	documentReader
	newest instant
	churn  churn
	// limits bound the batch of the present call of Next.
	limits feed.Limits
	// unread counts the consecutive polls whose subscription document could not be
	// read.
	unread int
	// search is how far the search for the oldest document of the present call has come; nil
	// if there is none.
	search atomic.Pointer[search]
	// tailPages has the pages that were read in mode tail since the last pause.
	tailPages map[hashedKey]bool
}

// nextCall is one call of Next.
type nextCall struct {
	s    *feedState
	cur  cursor
	seen violationSet
	// asked reports that the subscription document was received. noted reports that the
	// cursor has changed although the call fails.
	asked, noted bool
}

// dropReported drops violations that were already reported with the first part of a document.
func (c *nextCall) dropReported(d *document) {
	if p := c.cur.Doc; p != nil && p.URL == hashOf(d.url) && p.Hash == d.hash {
		d.seen = violationSet{}
	}
}

// isRecheckDue reports whether all pages have to be read again.
func (c *nextCall) isRecheckDue(now time.Time) bool {
	return c.cur.Dialect == Paged && c.cur.Walked != 0 && now.Sub(time.Unix(c.cur.Walked, 0)) >= c.s.cfg.FullEvery
}

// expectedOrder returns the order in which the entries of a document are expected.
func (c *nextCall) expectedOrder() feedxml.Order {
	switch {
	case c.s.profile.order != feedxml.NoOrder:
		return c.s.profile.order
	case c.cur.Order != feedxml.NoOrder:
		return c.cur.Order
	}
	return feedxml.NewestFirst
}

// olderRequest returns the request for an older document of the pending poll.
func (c *nextCall) olderRequest(url string) request {
	pending := c.s.pending
	return request{url: url, archive: true, late: pending.isLate(), believe: pending.believe, order: c.expectedOrder()}
}

// readOlder requests and reads an older document.
func (c *nextCall) readOlder(ctx context.Context, q request) (*document, error) {
	d, err := c.s.readDocument(ctx, &c.cur, q)
	if err == nil && d.unmodified {
		err = fmt.Errorf("%s: the server answers without a document", q.url)
	}
	if err != nil {
		return nil, err
	}
	d.response.Header = nil // it may be large, and the document may wait in memory
	return d, nil
}

// resumeDocument has the published part of a document skipped, if there is one.
func (c *nextCall) resumeDocument(q *request) bool {
	p := c.cur.Doc
	if p == nil || p.URL != hashOf(q.url) {
		return false
	}
	q.from, q.order = p, p.Order
	return true
}

// recordMissingLink reports a page that may lack the link to the older one.
func (c *nextCall) recordMissingLink(d *document) {
	pending := c.s.pending
	if !d.unsure || pending.dialect != Paged && c.cur.Dialect != Paged {
		return
	}
	pending.reread, pending.walked = true, 0 // all pages are read again
	pending.lacking, pending.connected = true, true
	c.seen.addViolation(kindIncomplete, d.url, "the page is broken, and its link to the older page may be missing")
}
