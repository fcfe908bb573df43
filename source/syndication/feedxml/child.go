package feedxml

import (
	"encoding/xml"
	"slices"
)

// children reads the children of an entry that mean something. It returns where
// in the body those are that do not count in the hash.
func (r *entryReader) children(e *Entry, p *parts, b []byte, el *element, outer *scope) (without []span) {
	for i := range el.children {
		c := &el.children[i]
		s := outer
		r.attrs = r.attrs[:0]
		if c.attributes > 0 {
			inner := r.inner(outer, b[c.start:], tag{nameEnd: c.nameEnd - c.start, attributes: c.attributes})
			s = &inner
		}
		in, local, _ := s.resolve(b[c.start+1 : c.nameEnd])
		content := b[c.tagEnd:c.close]
		r.entryChild(e, p, s, in.space, local, content)
		if len(r.hashWithout) > 0 && slices.ContainsFunc(r.hashWithout, func(n xml.Name) bool {
			return n.Local == string(local) && (n.Space == "*" || trim(n.Space) == trim(in.uri))
		}) {
			without = append(without, span{len(b) - c.start, len(b) - c.end})
		}
	}
	return without
}

// entryChild reads one child of an entry. Of those that repeat, the first counts.
func (r *entryReader) entryChild(e *Entry, p *parts, s *scope, in space, local, content []byte) {
	name := string(local) // does not escape
	isOwn := in == r.own && r.format != Atom
	switch {
	case in == atom && name == "link" && (!isOwn || len(r.attrs) > 0):
		if r.format == Atom && !p.hasLink {
			p.link, p.hasLink = r.alternate()
			p.base = s.base
		}
	case isOwn && name == "link":
		first(&p.link, content)
	case in == atom && name == "id":
		first(&p.id, content)
	case isOwn && name == "guid":
		first(&p.guid, content)
	case (isOwn || in == atom) && name == "title":
		keep(&p.title, content)
	case isOwn && name == "enclosure":
		if url, _ := r.attribute(s, noSpace, "url"); p.enclosure == "" {
			p.enclosure = clip(trim(url), longestAddress)
		}
	case in == contentModule && name == "encoded":
		keep(&p.encoded, content)
	case isOwn && name == "description", in == atom && (name == "summary" || name == "content"):
		keep(&p.description, content)
	case e.Deleted && name == "comment" && (in == tombstones || in == atom):
		if e.Comment == "" {
			e.Comment = clip(text(content), longestAddress)
		}
	case e.Deleted && name == "by" && (in == tombstones || in == atom):
		if e.By == "" {
			e.By = clip(textOf(content, "name"), longestAddress)
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

func keep(at *[]byte, content []byte) {
	if *at == nil {
		*at = content
	}
}
