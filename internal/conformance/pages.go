package conformance

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/httpfeed"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// Pages has a digest of each page that a crawl has read, or of each event of http-feeds. Its zero value is
// that of the first crawl.
type Pages struct {
	order []string // URLs, or the IDs of events
	of    map[string]*pageDigest
	// before is the crawl that this one is compared with; nil for the first one, and after the comparison.
	before *Pages
}

// pageDigest is that of the entities of a page. upTo is the digest of as many of them as the crawl
// before has read there.
type pageDigest struct {
	count     int
	sum, upTo uint64
}

var seed = maphash.MakeSeed()

// Again returns the pages of another crawl, to compare it with this one.
func (p *Pages) Again() *Pages { return &Pages{before: p} }

// mostEvents limits the number of events that are compared.
const mostEvents = 100_000

// Add adds an entity of a feed of that format to the digest of its page.
func (p *Pages) Add(e *feed.Entity, format string) {
	if p.of == nil {
		p.of = map[string]*pageDigest{}
	}
	page := e.Page
	if format == httpfeed.Kind {
		page = e.ID
	}
	d := p.of[page]
	switch {
	case d == nil && format == httpfeed.Kind && len(p.order) == mostEvents:
		return
	case d == nil:
		d = new(pageDigest)
		p.of[page] = d
		p.order = append(p.order, page)
	}
	var h maphash.Hash
	h.SetSeed(seed)
	add := func(s string) {
		maphash.WriteComparable(&h, len(s))
		_, _ = h.WriteString(s)
	}
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, d.sum))
	add(e.ID)
	add(string(e.Op))
	if format == datareplication.Kind { // other formats may have times that the source made
		add(e.Modified.String())
		for _, f := range e.Header {
			add(f.Name)
			add(f.Value)
		}
	}
	_, _ = h.Write(e.Body)
	d.sum = h.Sum64()
	d.count++
	if p.before != nil && p.before.of[page] != nil && p.before.of[page].count == d.count {
		d.upTo = d.sum
	}
}

// Compare adds to checks how the crawl differs from the one before. entry is the URL of the feed.
// Changes that a producer may make become notes.
func (p *Pages) Compare(r *Report, entry string, checks Checks) {
	before := p.before
	p.before = nil // only the newest two are kept
	grown, removed, kept := 0, 0, false
	for i, page := range before.order {
		was, is := before.of[page], p.of[page]
		switch {
		case r.Format == httpfeed.Kind:
			if checks.tested(checkClosed); is != nil && is.sum != was.sum {
				checks.failed(checkClosed, entry, "the event %q is another one now", page)
			}
		case r.Dialect == syndication.Archived && page == entry, r.Format != datareplication.Kind && r.Dialect != syndication.Archived:
			continue // it may change
		case is == nil && r.Dialect == syndication.Archived && (kept || r.Sampled == ""):
			checks.failed(checkURLs, page, "no archive has this URL any more")
		case is == nil && kept:
			checks.failed(checkClosed, page, "the page is no longer part of the feed, and older pages are")
		case is == nil:
		case i == len(before.order)-1: // the newest page
			if checks.tested(checkOpen); is.upTo != was.sum {
				checks.failed(checkOpen, page, "of its %d entities some have changed, or are gone", was.count)
			}
			grown += max(0, is.count-was.count)
		case is.sum != was.sum:
			checks.failed(checkClosed, page, "the page had %d entities and has %d, and they are not the same", was.count, is.count)
		default:
			checks.tested(checkClosed)
			checks.tested(checkURLs)
		}
		if is == nil && (kept || r.Sampled == "") { // the sample may begin later
			removed++
		}
		kept = kept || is != nil
	}
	known := false
	for _, page := range p.order {
		if known = known || before.of[page] != nil; known && before.of[page] == nil {
			grown += p.of[page].count
		}
	}
	if grown > 0 && (r.Sampled == "" || r.Format != httpfeed.Kind) { // of http-feeds the sample has the oldest events
		r.AddNote("the feed grew while it was checked")
	}
	if removed > 0 {
		r.AddNote("pages or events were removed from the feed while it was checked")
	}
}
