package conformance

import (
	"hash/maphash"
	"maps"
	"slices"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/httpfeed"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// Pages has the digests of the entities of each page that a crawl has read, or of each event of http-feeds.
type Pages struct {
	order []string // URLs, or the IDs of events
	of    map[string][]uint64
}

var seed = maphash.MakeSeed()

// mostCompared limits the number of events, and of documents, that are compared.
const mostCompared = 100_000

// Add adds an entity of a feed of that format to its page.
func (p *Pages) Add(e *feed.Entity, format string) {
	if p.of == nil {
		p.of = map[string][]uint64{}
	}
	page := e.Page
	if format == httpfeed.Kind {
		page = e.ID
	}
	if p.of[page] == nil {
		if format == httpfeed.Kind && len(p.order) == mostCompared {
			return
		}
		p.order = append(p.order, page)
	}
	var h maphash.Hash
	h.SetSeed(seed)
	add := func(s string) {
		maphash.WriteComparable(&h, len(s))
		_, _ = h.WriteString(s)
	}
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
	p.of[page] = append(p.of[page], h.Sum64())
}

// IsNewest reports whether a page is the last one that was read.
func (p *Pages) IsNewest(page string) bool {
	return len(p.order) > 0 && p.order[len(p.order)-1] == page
}

// Compare adds to checks how a crawl differs from the one before. entry is the URL of the feed.
// That the feed has changed at all becomes a note.
func (p *Pages) Compare(before *Pages, r *Report, entry string, checks Checks) {
	kept := false
	for i, page := range before.order {
		was, is := before.of[page], p.of[page]
		gone, same := is == nil, slices.Equal(was, is)
		switch {
		case r.Format == httpfeed.Kind:
			checks.record(entry, unless(gone || same, "the event %q is another one now", page), nil, checkClosed)
		case r.Dialect == syndication.Archived && page == entry, r.Format != datareplication.Kind && r.Dialect != syndication.Archived:
			continue // it may change
		case gone && r.Dialect == syndication.Archived && (kept || r.Sampled == ""):
			checks.record(page, "no archive has this URL any more", nil, checkURLs)
		case gone && kept:
			checks.record(page, "the page is no longer part of the feed, and older pages are", nil, checkClosed)
		case gone:
		case i == len(before.order)-1: // the newest page
			same = len(is) >= len(was) && slices.Equal(was, is[:len(was)])
			checks.record(page, unless(same, "of its %d entities some have changed, or are gone", len(was)), nil, checkOpen)
		default:
			checks.record(page, unless(same, "the page had %d entities and has %d, and they are not the same", len(was), len(is)), nil, checkClosed)
			checks.record(page, "", nil, checkURLs)
		}
		kept = kept || !gone
	}
	if r.Sampled == "" && !maps.EqualFunc(p.of, before.of, slices.Equal) { // a sample may begin or end elsewhere
		r.AddNote("the feed has changed while it was checked")
	}
}
