package syndication

import (
	"net/url"
	"slices"

	"github.com/feedbridge/feedbridge/source/link"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// addHeaderLinks adds the links to other documents of the feed that only the field Link of the
// answer has. Such a link is equal to one in the document (RFC 8288, section 1): a feed whose
// prev-archive is overlooked loses its history. A link in the document precedes one in the header that
// contradicts it, because servers and proxies often add the same header to all of their answers.
func (p *profile) addHeaderLinks(d *document) {
	known := func(rel string) bool {
		return slices.Contains(navigation, rel) || slices.Contains(p.older, rel) || rel == p.newer
	}
	for _, field := range d.response.Header.Values("Link") {
		for l := range link.Read(field) {
			to, err := d.response.URL.Parse(l.Target)
			if err != nil || l.Anchored || !d.meta.Format.MayHaveType(l.Type) {
				continue
			}
			for _, rel := range l.Relations {
				if rel = feedxml.NormalRelation(rel); known(rel) {
					d.addHeaderLink(rel, to)
				}
			}
		}
	}
}

func (d *document) addHeaderLink(rel string, to *url.URL) {
	written, n := d.meta.Link(rel)
	if rel == "prev-archive" && d.meta.PrevRaw != "" {
		written.Href, n = d.meta.Prev, 1 // as the drafts had it
	}
	switch {
	case n == 0:
		d.meta.Links = append(d.meta.Links, feedxml.Link{Rel: rel, Href: to.String(), Raw: to.String()})
	case withoutFragment(written.Href) != withoutFragment(to.String()):
		d.seen.addViolation(kindOtherInHeader, d.url, "the document has the link %s to %q, and the header Link to %q; the first one counts", rel, feedxml.Excerpt(written.Href), feedxml.Excerpt(to.String()))
	}
}
