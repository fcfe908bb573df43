package conformance

import (
	"hash/maphash"
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
// Changes that a producer may make become notes.
func (p *Pages) Compare(before *Pages, r *Report, entry string, checks Checks) {
	grown, removed, kept := false, false, false
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
			grown = len(is) > len(was)
		default:
			checks.record(page, unless(same, "the page had %d entities and has %d, and they are not the same", len(was), len(is)), nil, checkClosed)
			checks.record(page, "", nil, checkURLs)
		}
		removed = removed || gone && (kept || r.Sampled == "") // the sample may begin later
		kept = kept || !gone
	}
	mutable := r.Format != datareplication.Kind && r.Format != httpfeed.Kind && r.Dialect != syndication.Archived
	known := false
	for _, page := range p.order {
		if known = known || before.of[page] != nil; known && before.of[page] == nil {
			grown = true
		}
	}
	if mutable && p.changed(before) {
		r.AddNote("entries were added to the feed or changed while it was checked")
	} else if grown && (r.Sampled == "" || r.Format != httpfeed.Kind) { // of http-feeds the sample has the oldest events
		r.AddNote("the feed grew while it was checked")
	}
	if removed {
		r.AddNote("pages or events were removed from the feed while it was checked")
	}
}

// changed reports whether there are entities that were not there before.
func (p *Pages) changed(before *Pages) bool {
	was := map[uint64]bool{}
	for _, page := range before.of {
		for _, entity := range page {
			was[entity] = true
		}
	}
	for _, page := range p.of {
		if slices.ContainsFunc(page, func(entity uint64) bool { return !was[entity] }) {
			return true
		}
	}
	return false
}
