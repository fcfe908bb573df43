package feedxml

import (
	"encoding/xml"
	"slices"
)

// readChildren reads the children of an entry that have a meaning. It returns the parts
// of the body that do not count in the hash.
func (r *entryReader) readChildren(e *Entry, p *entryParts, b []byte, el *element, outer *scope) (without []span) {
	for i := range el.children {
		c := &el.children[i]
		s := outer
		r.attrs = r.attrs[:0]
		if c.attributes > 0 {
			inner := r.innerScope(outer, b[c.start:], tag{nameEnd: c.nameEnd - c.start, attributes: c.attributes})
			s = &inner
		}
		in, local, _ := s.resolveName(b[c.start+1 : c.nameEnd])
		content := b[c.tagEnd:c.close]
		r.readChild(e, p, s, in.space, local, content)
		if len(r.hashWithout) > 0 && slices.ContainsFunc(r.hashWithout, func(n xml.Name) bool {
			return n.Local == string(local) && (n.Space == "*" || trimSpace(n.Space) == trimSpace(in.uri))
		}) {
			without = append(without, span{len(b) - c.start, len(b) - c.end})
		}
	}
	return without
}

// readChild reads one child of an entry. Of several with the same meaning, the first
// counts.
func (r *entryReader) readChild(e *Entry, p *entryParts, s *scope, in space, local, content []byte) {
	name := string(local) // does not escape
	isOwn := in == r.own && r.format != Atom
	switch {
	case e.Deleted:
		readTombstoneChild(e, in, name, content)
	case updateRank(in, name) > 0:
		r.keepBetter(&e.Updated, &p.updatedRank, updateRank(in, name), name, content)
	case publishRank(in, name, isOwn) > 0:
		keepContent(&p.published, content)
		r.keepBetter(&e.Published, &p.publishedRank, publishRank(in, name, isOwn), name, content)
	case name == "link":
		r.readEntryLink(p, s, in, isOwn, content)
	default:
		r.readPart(p, s, in, isOwn, name, content)
	}
}

// readTombstoneChild reads a child of a tombstone, whose time is in an attribute.
func readTombstoneChild(e *Entry, in space, name string, content []byte) {
	switch {
	case in != tombstones && in != atom:
	case name == "comment" && e.Comment == "":
		e.Comment = clipBytes(plainText(content), longestAddress)
	case name == "by" && e.By == "":
		e.By = clipBytes(elementText(content, "name"), longestAddress)
	}
}

// readEntryLink reads an element link: that of Atom, or one of RSS, whose URL is its
// content.
func (r *entryReader) readEntryLink(p *entryParts, s *scope, in space, isOwn bool, content []byte) {
	switch {
	case in == atom && (!isOwn || len(r.attrs) > 0):
		if r.format == Atom && !p.hasLink {
			p.link, p.hasLink = r.alternateLink()
			p.base = s.base
		}
	case isOwn:
		keepFirst(&p.link, content)
	}
}

// readPart reads a child that can identify the entry.
func (r *entryReader) readPart(p *entryParts, s *scope, in space, isOwn bool, name string, content []byte) {
	switch {
	case in == atom && name == "id":
		keepFirst(&p.id, content)
	case isOwn && name == "guid":
		keepFirst(&p.guid, content)
	case (isOwn || in == atom) && name == "title":
		keepContent(&p.title, content)
	case isOwn && name == "enclosure":
		if url, _ := r.attribute(s, noSpace, "url"); p.enclosure == "" {
			p.enclosure = clipBytes(trimSpace(url), longestAddress)
		}
	case in == contentModule && name == "encoded":
		keepContent(&p.encoded, content)
	case isOwn && name == "description", in == atom && (name == "summary" || name == "content"):
		keepContent(&p.description, content)
	}
}

func keepContent(at *[]byte, content []byte) {
	if *at == nil {
		*at = content
	}
}
