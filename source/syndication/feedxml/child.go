package feedxml

import (
	"encoding/xml"
	"slices"
	"strings"
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

// firstClipped is [first] for what describes a document, which is held longer than
// an entry.
func firstClipped(at *string, content []byte) {
	if *at == "" {
		*at = clipText(text(content))
	}
}

func clipText(s string) string { return strings.Clone(clip(s, longestAddress)) }

func keep(at *[]byte, content []byte) {
	if *at == nil {
		*at = content
	}
}
