// Package entry reads the fields of the entries of Atom and the items of RSS, and encodes them as JSON.
package entry

import (
	"cmp"
	"html"
	"net/url"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

// The namespaces of feeds.
const (
	AtomSpace = "http://www.w3.org/2005/Atom"
	// TombstoneSpace is that of RFC 6721.
	TombstoneSpace = "http://purl.org/atompub/tombstones/1.0"
	atom03Space    = "http://purl.org/atom/ns#"
	rss1Space      = "http://purl.org/rss/1.0/"
	rss090Space    = "http://my.netscape.com/rdf/simple/0.9/"
	DCSpace        = "http://purl.org/dc/elements/1.1/"
	dctermsSpace   = "http://purl.org/dc/terms/"
	ContentSpace   = "http://purl.org/rss/1.0/modules/content/"
	rdfSpace       = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
	xhtmlSpace     = "http://www.w3.org/1999/xhtml"
)

// noSpace is the key of elements without a namespace.
const noSpace = "rss"

// atomOnly is the namespace of RSS in an entry of Atom, which has none.
const atomOnly = "-"

// ExtraSpace is the namespace of attributes for the values that an element of RSS cannot hold:
// the label of a category, and the mail address and URI of a person; and for an ID that is no IRI,
// which an element of Atom cannot hold. Package feedxml reads that. Other readers ignore it.
const ExtraSpace = "https://github.com/feedbridge/feedbridge/extra"

// Entry is an entry of Atom 1.0 or 0.3 or an item of any RSS, as far as the other
// format can say it too.
type Entry struct {
	ID                      string
	Base                    string // of relative references in HTML; "" if it is not known
	BaseURL                 string // the xml:base of the entry; "" if it has none
	Language                string // the xml:lang of the entry
	Title, Summary, Content *Prose
	Links                   []Link
	Authors, Contributors   []Person
	Categories              []Category
	Published, Updated      string // as written
	Rights                  *Prose
	Source                  *Feed // from which the entry was copied
	Feed                    *Feed // of the document with the entry
	// Extensions are the elements that are no field, such as those of Media RSS, which are valid anywhere.
	Extensions Extensions
	// Deleted reports that this is a tombstone.
	Deleted bool
	// XML is the entry if that is not well-formed. Then there are no other fields.
	XML       string
	permalink string // the guid of an item, if it is a page
	standIns  []standIn
	// contentBase and textBase are the bases of content and of other HTML that have an xml:base of their own.
	contentBase, textBase string
	// room is how many bytes resolved references and namespaces of extensions may take. Beyond it,
	// references are not resolved and extensions are left out: a long base or namespace name
	// could be repeated for each of many small elements.
	room int
}

// roomFor returns the room for an entry of that size.
func roomFor(size int) int { return 2*size + 1<<10 }

// resolve returns an absolute URL, if there is room for it.
func (a *Entry) resolve(base, ref string) string {
	if a.room <= 0 {
		return ref
	}
	to := ResolveURL(base, ref)
	a.room -= max(0, len(to)-len(ref))
	return to
}

// longestBase is how long a base may be, in bytes. A longer one is ignored, because each reference is
// resolved against it.
const longestBase = 2 << 10

// rebase returns the base of an element in which an xml:base is.
func (a *Entry) rebase(base, at string) string {
	if len(at) > longestBase {
		return base
	}
	if to := a.resolve(base, at); len(to) <= longestBase {
		return to
	}
	return base
}

// Prose is text, or HTML.
type Prose struct {
	Text   string
	IsHTML bool
}

// HTML returns the prose as HTML.
func (p *Prose) HTML() string {
	if p.IsHTML {
		return p.Text
	}
	return html.EscapeString(p.Text)
}

func (p *Prose) IsBlank() bool { return p == nil || strings.TrimSpace(p.Text) == "" }

// Link is a link of an entry.
type Link struct {
	Rel      string `json:"rel"`
	Href     string `json:"href"`
	Type     string `json:"type,omitempty"`
	Length   string `json:"length,omitempty"`
	Title    string `json:"title,omitempty"`
	HrefLang string `json:"hreflang,omitempty"`
	// Attributes are the others, with the names that an [Element] has.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Person is an author or a contributor.
type Person struct {
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
	URI   string `json:"url,omitempty"`
	// Avatar is the URL of a picture, which only JSON Feed has.
	Avatar string `json:"avatar,omitempty"`
	// Extensions are the elements of a person of Atom that are no field.
	Extensions Extensions `json:"extensions,omitempty"`
}

// Category is a category of an entry.
type Category struct {
	Term   string `json:"term"`
	Scheme string `json:"scheme,omitempty"`
	Label  string `json:"label,omitempty"`
}

// Feed describes the feed of an entry.
type Feed struct {
	ID           string   `json:"id,omitempty"`
	Title        string   `json:"title,omitempty"`
	TitleHTML    string   `json:"title_html,omitempty"`
	URL          string   `json:"url,omitempty"`
	HomePageURL  string   `json:"home_page_url,omitempty"`
	DateModified string   `json:"date_modified,omitempty"`
	Authors      []Person `json:"authors,omitempty"`
	// Extensions are the elements of an atom:source that are no field.
	Extensions Extensions `json:"extensions,omitempty"`
}

// FindLink returns the first link of a relation.
func (a *Entry) FindLink(rel string) (l Link, ok bool) {
	i := slices.IndexFunc(a.Links, func(l Link) bool { return l.Rel == rel })
	if i < 0 {
		return Link{}, false
	}
	return a.Links[i], true
}

// isEntry and isItem report whether a root element is an article that can be read.
func isEntry(t *xmlcopy.Tag) bool {
	return t.Local == "entry" && (t.Space == AtomSpace || t.Space == atom03Space)
}

// Documents of RSS 2.0 may have any default namespace.
func isItem(t *xmlcopy.Tag) bool { return t.Local == "item" }

// Read parses doc as an article, whose relative references start from base. It
// reports false if doc has another root element or is not well-formed.
func Read(doc []byte, base string) (*Entry, bool) {
	s, ok := xmlcopy.Open(doc)
	deleted := s != nil && s.Tag.Space == TombstoneSpace && s.Tag.Local == "deleted-entry"
	if !ok || !deleted && !isEntry(&s.Tag) && !isItem(&s.Tag) {
		return nil, false
	}
	own := cmp.Or(s.Tag.Space, noSpace)
	a := &Entry{Deleted: deleted, Language: s.Tag.AttrIn(xmlcopy.XMLSpace, "lang"), room: roomFor(len(doc))}
	if isEntry(&s.Tag) {
		own = atomOnly
	}
	if deleted {
		own = "" // all children are extensions
		a.ID, a.Updated = strings.TrimSpace(firstOf(s.Tag.AttrIn(ExtraSpace, "id"), s.Tag.Attr("ref"))), strings.TrimSpace(s.Tag.Attr("when"))
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
			if err := a.readStandIns(); err != nil {
				return nil, false
			}
			a.addFromExtensions()
			a.addPermalink()
			if base := firstOf(a.contentBase, a.textBase); base != "" && (a.contentBase != "" || a.Content == nil) {
				a.Base, a.BaseURL = base, base
			}
			return a, s.AtEnd()
		}
		if err := a.readChild(s, own, base); err != nil {
			return nil, false
		}
	}
}

// readChild reads a child whose start tag was read last. own is the namespace of the
// article's own elements.
func (a *Entry) readChild(s *xmlcopy.Scanner, own, base string) error {
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

// keepDate sets a date that was not set before. A text that is no date is an extension.
func (a *Entry) keepDate(at *string, t *xmlcopy.Tag, value string) {
	if _, ok := FormatTime(value); ok {
		setIfEmpty(at, value)
	} else if value != "" {
		a.addExtension(t.Space, t.Local, Element{Prefix: t.Prefix, Text: value})
	}
}

// ResolveURL returns a reference relative to a base as an absolute URL; as it is if
// that is not possible.
func ResolveURL(base, ref string) string {
	ref = strings.TrimSpace(ref)
	to, err := url.Parse(ref)
	if base == "" || err != nil || to.IsAbs() {
		return ref
	}
	from, err := url.Parse(base)
	if err != nil || !from.IsAbs() {
		return ref
	}
	return from.ResolveReference(to).String()
}

func setIfEmpty(at *string, value string) {
	if *at == "" {
		*at = value
	}
}
