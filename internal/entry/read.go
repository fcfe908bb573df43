package entry

import (
	"cmp"
	"strings"

	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

// isEntry and isItem report whether a root element is an article that can be read.
func isEntry(t *xmlcopy.Tag) bool {
	return t.Local == "entry" && (t.Space == AtomSpace || t.Space == atom03Space)
}

// Documents of RSS 2.0 may have any default namespace.
func isItem(t *xmlcopy.Tag) bool { return t.Local == "item" }

// articleReader reads a document whose root is an entry or an item.
type articleReader struct {
	fieldReader
	// contentBase and textBase are the bases of content and of other HTML that have an xml:base of their own.
	contentBase, textBase string
}

// Read parses doc as an article, whose relative references start from base. It
// reports false if doc has another root element or is not well-formed.
func Read(doc []byte, base string) (*Entry, bool) {
	s, ok := xmlcopy.Open(doc)
	deleted := s != nil && s.Tag.Space == TombstoneSpace && s.Tag.Local == "deleted-entry"
	if !ok || !deleted && !isEntry(&s.Tag) && !isItem(&s.Tag) {
		return nil, false
	}
	own := cmp.Or(s.Tag.Space, noSpace)
	a := &articleReader{fieldReader: fieldReader{room: roomFor(len(doc))}}
	a.Deleted, a.Language = deleted, s.Tag.AttrIn(xmlcopy.XMLSpace, "lang")
	if isEntry(&s.Tag) {
		own = atomOnly
	}
	if deleted {
		own = "" // all children are extensions
		a.ID, a.Updated = strings.TrimSpace(cmp.Or(s.Tag.AttrIn(ExtraSpace, "id"), s.Tag.Attr("ref"))), strings.TrimSpace(s.Tag.Attr("when"))
	}
	if own == rss1Space || own == rss090Space {
		a.ID = s.Tag.AttrIn(rdfSpace, "about")
	}
	if at := s.Tag.AttrIn(xmlcopy.XMLSpace, "base"); at != "" {
		base = a.rebase(base, at)
		a.BaseURL = base
	}
	a.Base = base
	for {
		found, err := s.NextChild()
		switch {
		case err != nil:
			return nil, false
		case !found:
			a.setStandIns()
			a.addFromExtensions()
			a.addPermalink()
			if base := cmp.Or(a.contentBase, a.textBase); base != "" && (a.contentBase != "" || a.Content == nil) {
				a.Base, a.BaseURL = base, base
			}
			return &a.Entry, s.AtEnd()
		}
		if err := a.readChild(s, own, base); err != nil {
			return nil, false
		}
	}
}

// readChild reads a child whose start tag was read last. own is the namespace of the
// article's own elements.
func (a *articleReader) readChild(s *xmlcopy.Scanner, own, base string) error {
	t := s.Tag
	if at := t.AttrIn(xmlcopy.XMLSpace, "base"); at != "" {
		base = a.rebase(base, at)
		switch t.Local {
		case "content", "encoded", "body":
			setIfEmpty(&a.contentBase, base)
		case "summary", "description":
			setIfEmpty(&a.textBase, base)
		}
	}
	switch space := cmp.Or(t.Space, noSpace); {
	case own == "":
	case space == own && rssFields[t.Local] && t.Attr("href") == "":
		return a.readRSS(s, &t, t.Local, base)
	case space == atom03Space && t.Local == "created":
		return a.postpone(s, t.Local, base)
	case space == AtomSpace && isAtomField(&t), space == atom03Space && isAtomField(&t):
		return a.readAtom(s, &t, base)
	case rssFields[modules[space]+t.Local] && modules[space] != "":
		name := modules[space] + t.Local
		switch {
		case isStandIn(name):
			return a.postpone(s, name, base)
		case !a.has(name):
			return a.readRSS(s, &t, name, base)
		}
	}
	return a.readExtension(s)
}
