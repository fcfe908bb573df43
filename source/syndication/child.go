package syndication

import (
	"encoding/xml"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/message"
)

// children reads the children of an entry that mean something. It returns where
// in the body those are that do not count in the hash.
func (r *Reader) children(e *Entry, p *parts, b []byte, outer *scope) (without []span) {
	e.Links = r.links[:0]
	defer func() {
		r.links = e.Links[:0]
		e.Links = append([]Link(nil), e.Links...)
	}()
	for i := range r.element.children {
		c := &r.element.children[i]
		s := outer
		r.attrs = r.attrs[:0]
		if c.attributes > 0 {
			inner := r.inner(outer, b[c.start:], tag{nameEnd: c.nameEnd - c.start, attributes: c.attributes})
			s = &inner
		}
		in, local, _ := s.resolve(b[c.start+1 : c.nameEnd])
		content := b[c.tagEnd:c.close]
		r.entryChild(e, p, s, in.space, local, content)
		if len(r.opts.HashWithout) > 0 && slices.ContainsFunc(r.opts.HashWithout, func(n xml.Name) bool {
			return n.Local == string(local) && (n.Space == "*" || trim(n.Space) == trim(in.uri))
		}) {
			without = append(without, span{len(b) - c.start, len(b) - c.end})
		}
	}
	return without
}

// entryChild reads one child of an entry. Of those that repeat, the first counts.
func (r *Reader) entryChild(e *Entry, p *parts, s *scope, in space, local, content []byte) {
	name := string(local) // does not escape
	isOwn := in == r.own && r.meta.Format != Atom
	switch {
	case in == atom && name == "link" && (!isOwn || len(r.attrs) > 0):
		e.Links = r.appendLink(e.Links, s)
		if n := len(e.Links); p.link == "" && r.meta.Format == Atom && n > 0 && e.Links[n-1].Rel == "alternate" {
			p.link = e.Links[n-1].Href
		}
	case isOwn && name == "link":
		link := text(content)
		if p.link == "" {
			p.link = link
		}
		e.Links = r.appendPlainLink(e.Links, link, s)
	case in == atom && name == "id":
		first(&p.id, content)
	case isOwn && name == "guid":
		first(&p.guid, content)
	case (isOwn || in == atom) && name == "title":
		keep(&p.title, content)
	case isOwn && name == "description", in == atom && (name == "summary" || name == "content"):
		keep(&p.description, content)
	case e.Deleted && name == "comment" && (in == tombstones || in == atom):
		first(&e.Comment, content)
	case e.Deleted && name == "by" && (in == tombstones || in == atom):
		if e.By == "" {
			e.By = textOf(content, "name")
		}
	case e.Deleted:
		// A tombstone has its time in an attribute.
	case updateRank(in, name) > 0:
		r.better(&e.Updated, &p.updatedRank, updateRank(in, name), name, content)
	case publishRank(in, name, isOwn) > 0:
		keep(&p.published, content)
		r.better(&e.Published, &p.publishedRank, publishRank(in, name, isOwn), name, content)
	}
}

// updateRank says how good a date tells when an entry was changed; 0 if it does
// not.
func updateRank(in space, local string) int {
	switch {
	case in == atom && (local == "updated" || local == "modified"):
		return 3
	case in == dcterms && local == "modified":
		return 2
	case in == dc && local == "date":
		return 1
	}
	return 0
}

func publishRank(in space, local string, isOwn bool) int {
	switch {
	case in == atom && (local == "published" || local == "issued"), isOwn && local == "pubDate":
		return 2
	case in == atom && local == "created":
		return 1
	}
	return 0
}

func first(at *string, content []byte) {
	if *at == "" {
		*at = text(content)
	}
}

func keep(at *[]byte, content []byte) {
	if *at == nil {
		*at = content
	}
}

// better keeps a date if it is better than the one that was found before.
func (r *Reader) better(at *Date, had *int, rank int, from string, content []byte) {
	if rank <= *had {
		return
	}
	d := r.date(dateName(from), text(content))
	// One that cannot be read is kept until there is another.
	if !d.Time.IsZero() || at.Raw == "" {
		*at = d
		if !d.Time.IsZero() {
			*had = rank
		}
	}
}

// dateName returns the name of an element with a date, without an allocation.
func dateName(local string) string {
	for _, name := range [...]string{"updated", "published", "pubDate", "modified", "date", "issued", "created"} {
		if name == local {
			return name
		}
	}
	return strings.Clone(local)
}

// date reads a date, and tells of one that cannot be read.
func (r *Reader) date(from, raw string) Date {
	raw = trim(raw)
	if raw == "" {
		return Date{}
	}
	t, _, ok := message.ParseDate(raw)
	if !ok {
		r.violation(BadDate, "%s is no date: %s", excerpt(from), excerpt(raw))
	}
	return Date{Time: t, Raw: raw, From: from}
}

// appendPlainLink appends the link of an RSS channel or item.
func (r *Reader) appendPlainLink(links []Link, link string, s *scope) []Link {
	if link == "" {
		return links
	}
	href, ok := resolve(s.base, link)
	if !ok {
		r.violation(BadHref, "the link %q is relative, and to what is not known", excerpt(link))
	}
	return append(links, Link{Rel: "alternate", Href: href, Raw: link})
}
