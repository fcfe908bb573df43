package feedxml

import (
	"mime"
	"strings"
)

// Link is an atom:link, or the link of an RSS channel or item.
type Link struct {
	// Rel is one relation: a registered name in lower case, without the prefix that
	// Atom allows before it, or a URI. A link without one is an "alternate". A link
	// with several is as many links.
	Rel string
	// Href is absolute; "" if it is relative and the document's URL is not
	// known. It may have a fragment.
	Href string
	// Raw is the reference as written.
	Raw string
	// Type is the media type, as written.
	Type string
}

// relationPrefix may precede the name of a registered relation (RFC 4287, section
// 4.2.7.2).
const relationPrefix = "http://www.iana.org/assignments/relation/"

// readLink adds the Atom link whose attributes are r.attrs to the links of the
// document.
func (r *metaReader) readLink(in *scope) {
	l := Link{Rel: "alternate"}
	hasHref := false
	rel := ""
	for _, a := range r.attrs {
		switch string(a.name) {
		case "rel":
			rel = trimSpace(attrValue(a.value))
			if len(rel) > longestAddress {
				r.violationf(kindBadHref, "a link has a rel of %d bytes, and is ignored", len(rel))
				return
			}
		case "href":
			l.Raw, hasHref = trimSpace(attrValue(a.value)), true
		case "type":
			l.Type = clipBytes(attrValue(trimSpace(a.value)), longestAddress)
		}
	}
	if !hasHref {
		return
	}
	if !strings.ContainsAny(rel, " \t\r\n") {
		if rel != "" {
			l.Rel = NormalRelation(rel)
		}
		r.addLink(l, in)
		return
	}
	n := 0
	for one := range strings.FieldsSeq(rel) {
		if n++; n > mostRelations {
			r.violationf(kindTooManyLinks, "the link %q has more than %d relations; the others are ignored", Excerpt(l.Raw), mostRelations)
			return
		}
		l.Rel = NormalRelation(one)
		r.addLink(l, in)
	}
}

// readPlainLink adds the link of an RSS channel to the links of the document.
func (r *metaReader) readPlainLink(link string, in *scope) {
	if link != "" {
		r.addLink(Link{Rel: "alternate", Raw: link}, in)
	}
}

// addLink resolves a link and adds it to the links of the document.
func (r *metaReader) addLink(l Link, in *scope) {
	m := &r.meta
	if len(m.Links) == mostLinks {
		if !r.manyLinks {
			r.violationf(kindTooManyLinks, "the document has more than %d links; the others are ignored", mostLinks)
		}
		r.manyLinks = true
		return
	}
	var ok bool
	if l.Href, ok = resolveLink(in.base, l.Raw); !ok {
		r.badLink("link", l.Raw)
	}
	if len(l.Raw) <= longestAddress {
		m.Links = append(m.Links, l)
	}
}

// badLink reports a reference that could not be resolved.
func (r *metaReader) badLink(what, raw string) {
	r.violationf(kindBadHref, "the %s %q is no URI, leads to one of more than %d bytes, or has no base; it is ignored", what, Excerpt(raw), longestAddress)
}

// NormalRelation returns the normalized form of a relation: without the IANA prefix,
// and in lower case unless it is a URI.
func NormalRelation(rel string) string {
	if len(rel) > len(relationPrefix) && strings.EqualFold(rel[:len(relationPrefix)], relationPrefix) {
		rel = rel[len(relationPrefix):]
	}
	if strings.Contains(rel, ":") {
		return rel
	}
	return strings.ToLower(rel)
}

// MayHaveType reports whether a link of that media type may lead to another document of the feed.
func (f Format) MayHaveType(mediaType string) bool {
	name, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return mediaType == ""
	}
	switch name {
	case "application/atom+xml", "application/rss+xml", "application/rdf+xml", "application/xml", "text/xml":
		return f != JSON
	case "application/feed+json", "application/json":
		return f == JSON
	}
	return false
}

// alternateLink returns the href of the link in v.attrs, as written, if the last of its
// relations is "alternate".
func (v *vocabulary) alternateLink() (href string, ok bool) {
	last := "alternate"
	for _, a := range v.attrs {
		switch string(a.name) {
		case "rel":
			for rel := range strings.FieldsSeq(attrValue(a.value)) {
				last = NormalRelation(rel)
			}
		case "href":
			href, ok = trimSpace(attrValue(a.value)), true
		}
	}
	return href, ok && last == "alternate"
}
