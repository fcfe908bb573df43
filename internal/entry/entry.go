// Package entry reads the fields of the entries of Atom and the items of RSS, and encodes them as JSON.
package entry

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

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
	// room is how many bytes resolved references and namespaces of extensions may take. Beyond it,
	// references are not resolved and extensions are left out: a long base or namespace name
	// could be repeated for each of many small elements.
	room int
}

// roomFor returns the room for an entry of that size.
func roomFor(doc []byte) int { return 2*len(doc) + 1<<10 }

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
}

// Person is an author or a contributor.
type Person struct {
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
	URI   string `json:"url,omitempty"`
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
	URL          string   `json:"url,omitempty"`
	HomePageURL  string   `json:"home_page_url,omitempty"`
	DateModified string   `json:"date_modified,omitempty"`
	Authors      []Person `json:"authors,omitempty"`
	// Extensions are the elements of an atom:source that are no field.
	Extensions Extensions `json:"extensions,omitempty"`
}

// Extensions are elements by namespace and name.
type Extensions map[string]map[string][]Element

// Element is an element of an extension. If it has text and elements, its children have both.
type Element struct {
	// Name is that of a child; "" for text. Namespace is nil if it is that of the parent.
	Name      string  `json:"name,omitempty"`
	Namespace *string `json:"namespace,omitempty"`
	Prefix    string  `json:"prefix,omitempty"`
	// Attributes have the names of the document, or {namespace}name if they have a namespace other than that of
	// the prefix xml.
	Attributes map[string]string `json:"attributes,omitempty"`
	Text       string            `json:"text,omitempty"`
	Children   []Element         `json:"children,omitempty"`
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
	a := &Entry{Deleted: deleted, Language: s.Tag.AttrIn(xmlcopy.XMLSpace, "lang"), room: roomFor(doc)}
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
			a.addPermalink()
			return a, s.AtEnd()
		}
		if err := a.readChild(s, own, base); err != nil {
			return nil, false
		}
	}
}

// addPermalink adds the guid as a link, if it is a page: as that of the item, or as its bookmark if it has another.
func (a *Entry) addPermalink() {
	switch l, ok := a.FindLink("alternate"); {
	case a.permalink == "" || l.Href == a.permalink:
	case ok:
		a.Links = append(a.Links, Link{Rel: "bookmark", Href: a.permalink})
	default:
		a.Links = append(a.Links, Link{Rel: "alternate", Href: a.permalink})
	}
}

// readChild reads a child whose start tag was read last. own is the namespace of the
// article's own elements.
func (a *Entry) readChild(s *xmlcopy.Scanner, own, base string) error {
	t := s.Tag
	if at := t.AttrIn(xmlcopy.XMLSpace, "base"); at != "" {
		base = a.rebase(base, at)
	}
	switch space := cmp.Or(t.Space, noSpace); {
	case own == "":
	case space == own && rssFields[t.Local] && t.Attr("href") == "":
		return a.readRSS(s, &t, t.Local, base)
	case space == AtomSpace && isAtomField(&t), space == atom03Space && isAtomField(&t):
		return a.readAtom(s, &t, base)
	case rssFields[modules[space]+t.Local] && modules[space] != "" && !a.has(modules[space]+t.Local):
		return a.readRSS(s, &t, modules[space]+t.Local, base)
	}
	return a.readExtension(s)
}

// modules are the prefixes of the modules of RSS whose elements are fields.
var modules = map[string]string{DCSpace: "dc:", dctermsSpace: "dcterms:", ContentSpace: "content:", strings.TrimSuffix(ContentSpace, "/"): "content:"}

// rssFields are the elements of RSS that are fields.
var rssFields = map[string]bool{
	"title": true, "dc:title": true, "description": true, "dc:description": true, "content:encoded": true, "dc:rights": true,
	"enclosure": true, "link": true, "guid": true, "comments": true, "author": true, "dc:creator": true, "dc:contributor": true,
	"category": true, "dc:subject": true, "pubDate": true, "dcterms:issued": true, "dcterms:created": true, "dc:date": true,
	"dcterms:modified": true, "source": true,
}

// has reports whether the field of an element that may occur once is set.
func (a *Entry) has(name string) bool {
	switch name {
	case "dc:title":
		return a.Title != nil
	case "dc:description":
		return a.Summary != nil
	case "content:encoded":
		return a.Content != nil
	case "dc:rights":
		return a.Rights != nil
	case "dcterms:issued", "dcterms:created":
		return a.Published != ""
	case "dc:date", "dcterms:modified":
		return a.Updated != ""
	}
	return false
}

// isAtomField reports whether an element of Atom is a field. Content that is neither text nor HTML is an
// extension.
func isAtomField(t *xmlcopy.Tag) bool {
	switch t.Local {
	case "title", "summary", "rights", "copyright", "author", "contributor", "source", "id", "link", "category",
		"published", "issued", "created", "updated", "modified":
		return true
	case "content":
		media, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(t.Attr("type"))), ";")
		return t.Space == atom03Space || t.Attr("src") != "" || media == "" || media == "html" || media == "xhtml" || media == "application/xhtml+xml" ||
			!strings.Contains(media, "/") || strings.HasPrefix(media, "text/") && media != "text/xml"
	}
	return false
}

// readExtension reads an element that is no field, if there is room for it.
func (a *Entry) readExtension(s *xmlcopy.Scanner) error {
	space, local := s.Tag.Space, s.Tag.Local
	el, err := a.readElement(s, space)
	if err == nil {
		a.addExtension(space, local, el)
	}
	return err
}

// addExtension adds an element, if there is room for its namespace.
func (a *Entry) addExtension(space, local string, el Element) {
	if a.room -= len(space); a.room < 0 {
		return
	}
	if a.Extensions == nil {
		a.Extensions = Extensions{}
	}
	if a.Extensions[space] == nil {
		a.Extensions[space] = map[string][]Element{}
	}
	a.Extensions[space][local] = append(a.Extensions[space][local], el)
}

// addExtensions adds elements, if there is room: a long namespace is written as XML for each.
func (a *Entry) addExtensions(x Extensions) {
	for space, names := range x {
		for name, elements := range names {
			for _, el := range elements {
				a.addExtension(space, name, el)
			}
		}
	}
}

// readElement reads the element whose start tag was read last, without its name. parent is the namespace around it.
func (a *Entry) readElement(s *xmlcopy.Scanner, parent string) (el Element, err error) {
	t := s.Tag
	el.Prefix = t.Prefix
	if t.Space != parent {
		el.Namespace = &t.Space
		a.room -= len(t.Space)
	}
	for _, at := range t.Attrs {
		name := at.Local
		switch {
		case at.Space == xmlcopy.XMLSpace:
			name = "xml:" + name
		case at.Space != "":
			if a.room -= len(at.Space); a.room < 0 {
				continue // the element is dropped, and long names of all around it would be held until then
			}
			name = "{" + at.Space + "}" + name
		}
		if el.Attributes == nil {
			el.Attributes = map[string]string{}
		}
		el.Attributes[name] = at.Value
	}
	var text []byte
	flush := func() {
		if len(bytes.TrimSpace(text)) > 0 {
			el.Children = append(el.Children, Element{Text: string(text)})
		}
		text = nil
	}
	for {
		kind, err := s.NextToken()
		switch {
		case err != nil:
			return el, err
		case kind == xmlcopy.TextToken:
			text = append(text, s.Text...)
		case kind == xmlcopy.EndToken && el.Children == nil:
			el.Text = string(text)
			return el, nil
		case kind == xmlcopy.EndToken:
			flush()
			return el, nil
		default:
			flush()
			local := s.Tag.Local
			child, err := a.readElement(s, t.Space)
			if err != nil {
				return el, err
			}
			if child.Name = local; a.room >= 0 {
				el.Children = append(el.Children, child)
			}
		}
	}
}

// readRSS reads an element of RSS or of one of its modules. name is its local name, with
// the usual prefix of its namespace if that is a module's.
func (a *Entry) readRSS(s *xmlcopy.Scanner, t *xmlcopy.Tag, name, base string) error {
	if name == "enclosure" {
		return a.readEnclosure(s, t, base)
	}
	text, markup, err := s.InnerContent()
	if err != nil {
		return err
	}
	switch name {
	case "title", "dc:title":
		keepProse(&a.Title, text, markup, LooksLikeHTML(text))
	case "description", "dc:description":
		keepProse(&a.Summary, text, markup, true)
	case "content:encoded":
		keepProse(&a.Content, text, markup, true)
	case "dc:rights":
		keepProse(&a.Rights, text, markup, false)
	case "source":
		if title := strings.TrimSpace(text); a.Source == nil && title+t.Attr("url") != "" {
			a.Source = &Feed{Title: title, URL: a.resolve(base, t.Attr("url"))}
		}
	default:
		if value := strings.TrimSpace(text); value != "" {
			a.addRSSValue(t, name, value, base)
		}
	}
	return nil
}

// readEnclosure reads an enclosure of RSS. What a link has no field for is an extension.
func (a *Entry) readEnclosure(s *xmlcopy.Scanner, t *xmlcopy.Tag, base string) error {
	el, err := a.readElement(s, t.Space)
	if err != nil {
		return err
	}
	if href := t.Attr("url"); href != "" {
		a.Links = append(a.Links, Link{Rel: "enclosure", Href: a.resolve(base, href), Type: t.Attr("type"), Length: t.Attr("length")})
		for _, name := range []string{"url", "type", "length"} {
			delete(el.Attributes, name)
		}
	}
	if len(el.Attributes) > 0 || el.Children != nil || strings.TrimSpace(el.Text) != "" {
		a.addExtension(t.Space, t.Local, el)
	}
	return nil
}

// keepProse sets an element of RSS that was not set before. markup is the content as
// HTML if there are elements in it.
func keepProse(at **Prose, text, markup string, isHTML bool) {
	switch {
	case *at != nil || strings.TrimSpace(text+markup) == "":
	case markup != "":
		*at = &Prose{markup, true}
	default:
		*at = &Prose{text, isHTML}
	}
}

// addRSSValue adds an element of RSS that contains a short text.
func (a *Entry) addRSSValue(t *xmlcopy.Tag, name, value, base string) {
	switch name {
	case "link":
		a.Links = append(a.Links, Link{Rel: "alternate", Href: a.resolve(base, value)})
	case "guid":
		setIfEmpty(&a.ID, value)
		if t.Attr("isPermaLink") != "false" && strings.Contains(value, "://") {
			setIfEmpty(&a.permalink, value)
		}
	case "comments":
		a.Links = append(a.Links, Link{Rel: "replies", Href: a.resolve(base, value)})
	case "author", "dc:creator":
		a.Authors = append(a.Authors, ReadPerson(value).withExtra(t))
	case "dc:contributor":
		a.Contributors = append(a.Contributors, ReadPerson(value).withExtra(t))
	case "category", "dc:subject":
		a.Categories = append(a.Categories, Category{Term: value, Scheme: t.Attr("domain"), Label: t.AttrIn(ExtraSpace, "label")})
	case "pubDate", "dcterms:issued", "dcterms:created":
		a.keepDate(&a.Published, t, value)
	case "dc:date", "dcterms:modified":
		a.keepDate(&a.Updated, t, value)
	}
}

// readAtom reads an element of Atom 1.0 or 0.3, which may be in an item of RSS.
func (a *Entry) readAtom(s *xmlcopy.Scanner, t *xmlcopy.Tag, base string) error {
	switch t.Local {
	case "title", "summary", "content", "rights", "copyright":
		return a.readAtomProse(s, t, base)
	case "author":
		return readAtomPersonInto(s, &a.Authors)
	case "contributor":
		return readAtomPersonInto(s, &a.Contributors)
	case "source":
		return a.readSource(s)
	}
	text, _, err := s.InnerContent()
	if err != nil {
		return err
	}
	value := strings.TrimSpace(text)
	switch t.Local {
	case "id":
		setIfEmpty(&a.ID, firstOf(t.AttrIn(ExtraSpace, "id"), value))
	case "link":
		l := Link{Rel: strings.ToLower(t.Attr("rel")), Href: a.resolve(base, t.Attr("href")), Type: t.Attr("type"), Length: t.Attr("length"), Title: t.Attr("title"), HrefLang: t.Attr("hreflang")}
		if l.Rel == "" {
			l.Rel = "alternate"
		}
		if t.Attr("href") != "" {
			a.Links = append(a.Links, l)
		}
	case "category":
		if term := t.Attr("term"); term != "" {
			a.Categories = append(a.Categories, Category{term, t.Attr("scheme"), t.Attr("label")})
		}
	case "published", "issued", "created":
		a.keepDate(&a.Published, t, value)
	case "updated", "modified":
		a.keepDate(&a.Updated, t, value)
	}
	return nil
}

// keepDate sets a date that was not set before. A text that is no date is an extension.
func (a *Entry) keepDate(at *string, t *xmlcopy.Tag, value string) {
	if _, ok := FormatTime(value); ok {
		setIfEmpty(at, value)
	} else if value != "" {
		a.addExtension(t.Space, t.Local, Element{Prefix: t.Prefix, Text: value})
	}
}

// readAtomProse reads a child of an entry of Atom that has text, or content that is elsewhere.
func (a *Entry) readAtomProse(s *xmlcopy.Scanner, t *xmlcopy.Tag, base string) error {
	p, err := readProse(s, t)
	if err != nil {
		return err
	}
	at := map[string]**Prose{"title": &a.Title, "summary": &a.Summary, "content": &a.Content, "rights": &a.Rights, "copyright": &a.Rights}[t.Local]
	if src := t.Attr("src"); src != "" && t.Local == "content" {
		a.Links = append(a.Links, Link{Rel: "enclosure", Href: a.resolve(base, src), Type: t.Attr("type")})
	} else if *at == nil && !p.IsBlank() {
		*at = p
	}
	return nil
}

// readAtomPersonInto reads a person of an entry of Atom and appends it to people, unless it is empty.
func readAtomPersonInto(s *xmlcopy.Scanner, people *[]Person) error {
	p, err := readAtomPerson(s)
	if err == nil && p != (Person{}) {
		*people = append(*people, p)
	}
	return err
}

// readSource reads an atom:source.
func (a *Entry) readSource(s *xmlcopy.Scanner) error {
	f := Entry{room: a.room}
	for {
		found, err := s.NextChild()
		if err != nil {
			return err
		}
		if !found {
			break
		}
		if t := s.Tag; isSourceField(&t) {
			err = f.readAtom(s, &t, a.Base)
		} else {
			err = f.readExtension(s)
		}
		if err != nil {
			return err
		}
	}
	if a.room = f.room; a.Source != nil {
		return nil
	}
	a.Source = &Feed{ID: f.ID, Authors: f.Authors, Extensions: f.Extensions}
	if a.Source.Title, _ = f.Title.split(longestSummary); f.Updated != "" {
		a.Source.DateModified, _ = FormatTime(f.Updated)
	}
	if l, ok := f.FindLink("self"); ok {
		a.Source.URL = l.Href
	}
	if l, ok := f.FindLink("alternate"); ok {
		a.Source.HomePageURL = l.Href
	}
	return nil
}

// isSourceField reports whether a child of an atom:source is a field of a [Feed].
func isSourceField(t *xmlcopy.Tag) bool {
	if t.Local == "link" {
		return t.Space == AtomSpace && slices.Contains([]string{"", "alternate", "self"}, strings.ToLower(t.Attr("rel")))
	}
	return t.Space == AtomSpace && slices.Contains([]string{"id", "title", "updated", "author"}, t.Local)
}

// readProse reads a text construct (RFC 4287, sections 3.1 and 4.1.3), or one of
// Atom 0.3, which has modes.
func readProse(s *xmlcopy.Scanner, t *xmlcopy.Tag) (*Prose, error) {
	kind, mode := strings.ToLower(strings.TrimSpace(t.Attr("type"))), t.Attr("mode")
	text, markup, err := s.InnerContent()
	if err != nil {
		return nil, err
	}
	if mode == "base64" {
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			return nil, nil
		}
		text = string(decoded)
	}
	media, _, _ := strings.Cut(kind, ";")
	switch {
	case kind == "xhtml":
		return &Prose{withoutDiv(markup, text), true}, nil
	case markup != "" && (mode == "xml" || t.Space == atom03Space || media == "application/xhtml+xml"):
		return &Prose{markup, true}, nil
	case kind == "html" || media == "text/html" || media == "application/xhtml+xml":
		if markup != "" {
			return &Prose{markup, true}, nil
		}
		return &Prose{text, true}, nil
	case kind == "" || kind == "text" || strings.HasPrefix(media, "text/"):
		return &Prose{Text: text}, nil
	case strings.HasSuffix(media, "/xml") || strings.HasSuffix(media, "+xml"):
		return &Prose{Text: text}, nil
	case t.Local != "content":
		if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil && utf8.Valid(decoded) {
			text = string(decoded)
		}
		return &Prose{Text: text}, nil
	}
	return nil, nil // base64 of something else
}

var divs = regexp.MustCompile(`(?s)^\s*<div(?:\s[^>]*)?>(.*)</div>\s*$`)

// withoutDiv returns XHTML without the div that a text construct wraps it in.
func withoutDiv(markup, text string) string {
	if markup == "" {
		return html.EscapeString(text)
	}
	if inside := divs.FindStringSubmatch(markup); inside != nil {
		return inside[1]
	}
	return markup
}

func readAtomPerson(s *xmlcopy.Scanner) (p Person, err error) {
	for {
		found, err := s.NextChild()
		if err != nil || !found {
			return p, err
		}
		local := s.Tag.Local
		text, _, err := s.InnerContent()
		if err != nil {
			return p, err
		}
		value := strings.TrimSpace(text)
		switch local {
		case "name":
			setIfEmpty(&p.Name, value)
		case "email":
			setIfEmpty(&p.Email, value)
		case "uri", "url":
			setIfEmpty(&p.URI, value)
		}
	}
}

var (
	withName  = regexp.MustCompile(`^(\S+@\S+)\s*\((.*)\)$`) // RSS: a@b.example (Name)
	withEmail = regexp.MustCompile(`^(.+?)\s*[<(]([^\s<>()]+@[^\s<>()]+)[>)]$`)
)

// ReadPerson reads a person in the forms that RSS has.
func ReadPerson(text string) Person {
	if m := withName.FindStringSubmatch(text); m != nil {
		return Person{Name: strings.TrimSpace(m[2]), Email: m[1]}
	}
	if m := withEmail.FindStringSubmatch(text); m != nil {
		return Person{Name: m[1], Email: m[2]}
	}
	if strings.Contains(text, "@") && !strings.ContainsAny(text, " /") {
		return Person{Name: text, Email: text}
	}
	return Person{Name: text}
}

// withExtra returns the person with the attributes in [ExtraSpace].
func (p Person) withExtra(t *xmlcopy.Tag) Person {
	setIfEmpty(&p.Email, t.AttrIn(ExtraSpace, "email"))
	setIfEmpty(&p.URI, t.AttrIn(ExtraSpace, "uri"))
	return p
}

// markup is what text has that is meant as HTML.
var markup = regexp.MustCompile(`&(?:#\d+|#[xX][0-9a-fA-F]+|[a-zA-Z]+\d*);|</?[a-zA-Z][^>]*>`)

// LooksLikeHTML reports whether a title of RSS, which may be text or HTML, is HTML.
func LooksLikeHTML(text string) bool { return markup.MatchString(text) }

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
