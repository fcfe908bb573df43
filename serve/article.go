package serve

import (
	"cmp"
	"encoding/base64"
	"encoding/xml"
	"html"
	"regexp"
	"slices"
	"strings"
)

// The namespaces of feeds.
const (
	atom03Space  = "http://purl.org/atom/ns#"
	rss1Space    = "http://purl.org/rss/1.0/"
	rss090Space  = "http://my.netscape.com/rdf/simple/0.9/"
	dcSpace      = "http://purl.org/dc/elements/1.1/"
	dctermsSpace = "http://purl.org/dc/terms/"
	contentSpace = "http://purl.org/rss/1.0/modules/content/"
	rdfSpace     = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
	xhtmlSpace   = "http://www.w3.org/1999/xhtml"
)

// noSpace is the key of elements without a namespace.
const noSpace = "rss"

// extraSpace is the namespace of attributes for the values that an element of RSS cannot hold:
// the label of a category, and the mail address and URI of a person; and for an ID that is no IRI,
// which an element of Atom cannot hold. Package feedxml reads that. Other readers ignore it.
const extraSpace = "https://github.com/feedbridge/feedbridge/extra"

// article is an entry of Atom 1.0 or 0.3 or an item of any RSS, as far as the other
// format can say it too.
type article struct {
	id                      string
	base                    string // of relative references in HTML; "" if it is not known
	title, summary, content *prose
	links                   []link
	authors, contributors   []person
	categories              []category
	published, updated      string // as written
	rights                  *prose
	inherited               []person // the authors of its source
	// others are the elements of other namespaces, such as those of Media RSS, which
	// are valid anywhere.
	others []byte
	// room is how many bytes resolved references and others may take. Beyond it,
	// references are not resolved and others are left out: a long base or namespace name
	// could be repeated for each of many small elements.
	room int
}

// resolve returns an absolute URL, if there is room for it.
func (a *article) resolve(base, ref string) string {
	if a.room <= 0 {
		return ref
	}
	to := resolveURL(base, ref)
	a.room -= max(0, len(to)-len(ref))
	return to
}

// prose is text, or HTML.
type prose struct {
	text   string
	isHTML bool
}

// asHTML returns the prose as HTML.
func (p *prose) asHTML() string {
	if p.isHTML {
		return p.text
	}
	return html.EscapeString(p.text)
}

func (p *prose) hasNoText() bool { return p == nil || strings.TrimSpace(p.text) == "" }

type link struct{ rel, href, kind, length, title string }

type person struct{ name, email, uri string }

type category struct{ term, scheme, label string }

// findLink returns the first link of a relation.
func (a *article) findLink(rel string) (l link, ok bool) {
	i := slices.IndexFunc(a.links, func(l link) bool { return l.rel == rel })
	if i < 0 {
		return link{}, false
	}
	return a.links[i], true
}

// isEntry and isItem report whether a root element is an article that can be read.
func isEntry(t *tag) bool {
	return t.local == "entry" && (t.space == atomSpace || t.space == atom03Space)
}

func isItem(t *tag) bool {
	if t.local != "item" {
		return false
	}
	// Documents of RSS 2.0 may have any of several default namespaces.
	return t.space == "" || t.space == rss1Space || t.space == rss090Space ||
		strings.Contains(t.space, "userland.com/rss") || strings.Contains(t.space, "netscape.com/rss") || strings.Contains(t.space, "backend.userland")
}

// readArticle parses doc as an article, whose relative references start from base. It
// reports false if doc has another root element or is not well-formed.
func readArticle(doc []byte, base string) (*article, bool) {
	s, ok := openDocument(doc)
	if !ok || !isEntry(&s.tag) && !isItem(&s.tag) {
		return nil, false
	}
	own := cmp.Or(s.tag.space, noSpace)
	a := &article{room: 2*len(doc) + 1<<10}
	if own == rss1Space || own == rss090Space {
		a.id = s.tag.attrIn(rdfSpace, "about")
	}
	base = resolveURL(base, s.tag.attrIn(xmlSpace, "base"))
	a.base = base
	for {
		found, err := s.nextChild()
		switch {
		case err != nil:
			return nil, false
		case !found:
			return a, s.atEnd()
		}
		if err := a.readChild(s, own, base); err != nil {
			return nil, false
		}
	}
}

// readChild reads a child whose start tag was read last. own is the namespace of the
// article's own elements.
func (a *article) readChild(s *scanner, own, base string) error {
	t := s.tag
	if at := t.attrIn(xmlSpace, "base"); at != "" {
		base = resolveURL(base, at)
	}
	switch space := cmp.Or(t.space, noSpace); space {
	case atomSpace, atom03Space:
		return a.readAtom(s, &t, base)
	case own:
		return a.readRSS(s, &t, t.local, base)
	case dcSpace:
		return a.readRSS(s, &t, "dc:"+t.local, base)
	case dctermsSpace:
		return a.readRSS(s, &t, "dcterms:"+t.local, base)
	case contentSpace:
		return a.readRSS(s, &t, "content:"+t.local, base)
	}
	return a.copyOther(s)
}

// copyOther copies an element of another namespace to a.others, if there is room for it.
func (a *article) copyOther(s *scanner) (err error) {
	if a.room <= 0 {
		_, _, err = s.innerContent()
		return err
	}
	before := len(a.others)
	if a.others, err = s.copyElement(a.others); err != nil {
		return err
	}
	if a.room -= len(a.others) - before; a.room < 0 {
		a.others = a.others[:before]
	}
	return nil
}

// readRSS reads an element of RSS or of one of its modules. name is its local name, with
// the usual prefix of its namespace if that is a module's.
func (a *article) readRSS(s *scanner, t *tag, name, base string) error {
	text, markup, err := s.innerContent()
	if err != nil {
		return err
	}
	switch name {
	case "title", "dc:title":
		keepProse(&a.title, text, markup, looksLikeHTML(text))
	case "description", "dc:description":
		keepProse(&a.summary, text, markup, true)
	case "content:encoded":
		keepProse(&a.content, text, markup, true)
	case "dc:rights":
		keepProse(&a.rights, text, markup, false)
	case "enclosure":
		if href := t.attrValue("url"); href != "" {
			a.links = append(a.links, link{rel: "enclosure", href: a.resolve(base, href), kind: t.attrValue("type"), length: t.attrValue("length")})
		}
	default:
		if value := strings.TrimSpace(text); value != "" {
			a.addRSSValue(t, name, value, base)
		}
	}
	return nil
}

// keepProse sets an element of RSS that was not set before. markup is the content as
// HTML if there are elements in it.
func keepProse(at **prose, text, markup string, isHTML bool) {
	switch {
	case *at != nil || strings.TrimSpace(text+markup) == "":
	case markup != "":
		*at = &prose{markup, true}
	default:
		*at = &prose{text, isHTML}
	}
}

// addRSSValue adds an element of RSS that contains a short text.
func (a *article) addRSSValue(t *tag, name, value, base string) {
	switch name {
	case "link":
		a.links = append(a.links, link{rel: "alternate", href: a.resolve(base, value)})
	case "guid":
		setIfEmpty(&a.id, value)
		if t.attrValue("isPermaLink") != "false" && strings.Contains(value, "://") {
			if _, ok := a.findLink("alternate"); !ok {
				a.links = append(a.links, link{rel: "alternate", href: value})
			}
		}
	case "comments":
		a.links = append(a.links, link{rel: "replies", href: a.resolve(base, value)})
	case "author", "dc:creator":
		a.authors = append(a.authors, readPerson(value).withExtra(t))
	case "dc:contributor":
		a.contributors = append(a.contributors, readPerson(value).withExtra(t))
	case "category", "dc:subject":
		a.categories = append(a.categories, category{term: value, scheme: t.attrValue("domain"), label: t.attrIn(extraSpace, "label")})
	case "pubDate", "dcterms:issued", "dcterms:created":
		setIfEmpty(&a.published, value)
	case "dc:date", "dcterms:modified":
		setIfEmpty(&a.updated, value)
	}
}

// readAtom reads an element of Atom 1.0 or 0.3, which may be in an item of RSS.
func (a *article) readAtom(s *scanner, t *tag, base string) error {
	switch t.local {
	case "title", "summary", "content", "rights", "copyright":
		return a.readAtomProse(s, t, base)
	case "author":
		return readAtomPersonInto(s, &a.authors)
	case "contributor":
		return readAtomPersonInto(s, &a.contributors)
	case "source":
		return a.readSource(s)
	}
	text, _, err := s.innerContent()
	if err != nil {
		return err
	}
	value := strings.TrimSpace(text)
	switch t.local {
	case "id":
		setIfEmpty(&a.id, value)
	case "link":
		l := link{rel: strings.ToLower(t.attrValue("rel")), href: a.resolve(base, t.attrValue("href")), kind: t.attrValue("type"), length: t.attrValue("length"), title: t.attrValue("title")}
		if l.rel == "" {
			l.rel = "alternate"
		}
		if t.attrValue("href") != "" {
			a.links = append(a.links, l)
		}
	case "category":
		if term := t.attrValue("term"); term != "" {
			a.categories = append(a.categories, category{term, t.attrValue("scheme"), t.attrValue("label")})
		}
	case "published", "issued", "created":
		setIfEmpty(&a.published, value)
	case "updated", "modified":
		setIfEmpty(&a.updated, value)
	}
	return nil
}

// readAtomProse reads a child of an entry of Atom that has text, or content that is elsewhere.
func (a *article) readAtomProse(s *scanner, t *tag, base string) error {
	p, err := readProse(s, t)
	if err != nil {
		return err
	}
	at := map[string]**prose{"title": &a.title, "summary": &a.summary, "content": &a.content, "rights": &a.rights, "copyright": &a.rights}[t.local]
	if src := t.attrValue("src"); src != "" && t.local == "content" {
		a.links = append(a.links, link{rel: "enclosure", href: a.resolve(base, src), kind: t.attrValue("type")})
	} else if *at == nil && !p.hasNoText() {
		*at = p
	}
	return nil
}

// readAtomPersonInto reads a person of an entry of Atom and appends it to people, unless it is empty.
func readAtomPersonInto(s *scanner, people *[]person) error {
	p, err := readAtomPerson(s)
	if err == nil && p != (person{}) {
		*people = append(*people, p)
	}
	return err
}

// readSource reads an atom:source, for the authors that the entry inherits.
func (a *article) readSource(s *scanner) error {
	for {
		found, err := s.nextChild()
		if err != nil || !found {
			return err
		}
		if s.tag.space != atomSpace || s.tag.local != "author" {
			if _, _, err := s.innerContent(); err != nil {
				return err
			}
			continue
		}
		p, err := readAtomPerson(s)
		if err != nil {
			return err
		}
		a.inherited = append(a.inherited, p)
	}
}

// readProse reads a text construct (RFC 4287, sections 3.1 and 4.1.3), or one of
// Atom 0.3, which has modes.
func readProse(s *scanner, t *tag) (*prose, error) {
	kind, mode := strings.ToLower(strings.TrimSpace(t.attrValue("type"))), t.attrValue("mode")
	text, markup, err := s.innerContent()
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
		return &prose{withoutDiv(markup, text), true}, nil
	case markup != "" && (mode == "xml" || t.space == atom03Space || media == "application/xhtml+xml"):
		return &prose{markup, true}, nil
	case kind == "html" || media == "text/html" || media == "application/xhtml+xml":
		if markup != "" {
			return &prose{markup, true}, nil
		}
		return &prose{text, true}, nil
	case kind == "" || kind == "text" || strings.HasPrefix(media, "text/"):
		return &prose{text: text}, nil
	case isXML(media):
		return &prose{text: text}, nil
	case t.local != "content":
		return &prose{text: text}, nil
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

func readAtomPerson(s *scanner) (p person, err error) {
	for {
		found, err := s.nextChild()
		if err != nil || !found {
			return p, err
		}
		local := s.tag.local
		text, _, err := s.innerContent()
		if err != nil {
			return p, err
		}
		value := strings.TrimSpace(text)
		switch local {
		case "name":
			setIfEmpty(&p.name, value)
		case "email":
			setIfEmpty(&p.email, value)
		case "uri", "url":
			setIfEmpty(&p.uri, value)
		}
	}
}

// feedAuthors returns the authors of the feed that the entity is from.
func feedAuthors(e *entity) (authors []person) {
	for _, f := range e.header {
		if hasName(f.Name, "Feed-Author") {
			authors = append(authors, readPerson(f.Value))
		}
	}
	return authors
}

// effectiveAuthors returns the authors of the article, or else of its source, or else of
// the feed that the entity is from.
func (a *article) effectiveAuthors(e *entity) []person {
	switch {
	case a.authors != nil:
		return a.authors
	case a.inherited != nil:
		return a.inherited
	}
	return feedAuthors(e)
}

var (
	withName  = regexp.MustCompile(`^(\S+@\S+)\s*\((.*)\)$`) // RSS: a@b.example (Name)
	withEmail = regexp.MustCompile(`^(.+?)\s*[<(]([^\s<>()]+@[^\s<>()]+)[>)]$`)
)

// readPerson reads a person in the forms that RSS has.
func readPerson(text string) person {
	if m := withName.FindStringSubmatch(text); m != nil {
		return person{name: strings.TrimSpace(m[2]), email: m[1]}
	}
	if m := withEmail.FindStringSubmatch(text); m != nil {
		return person{name: m[1], email: m[2]}
	}
	if strings.Contains(text, "@") && !strings.ContainsAny(text, " /") {
		return person{name: text, email: text}
	}
	return person{name: text}
}

// withExtra returns the person with the attributes in [extraSpace].
func (p person) withExtra(t *tag) person {
	setIfEmpty(&p.email, t.attrIn(extraSpace, "email"))
	setIfEmpty(&p.uri, t.attrIn(extraSpace, "uri"))
	return p
}

// markup is what text has that is meant as HTML.
var markup = regexp.MustCompile(`&(?:#\d+|#[xX][0-9a-fA-F]+|[a-zA-Z]+\d*);|</?[a-zA-Z][^>]*>`)

// looksLikeHTML reports whether a title of RSS, which may be text or HTML, is HTML.
func looksLikeHTML(text string) bool { return markup.MatchString(text) }

// standaloneXML returns an XML document as an element that is valid inside any other,
// and its name. It reports false if the document is not well-formed.
func standaloneXML(doc []byte) (el []byte, root xml.Name, ok bool) {
	s, ok := openDocument(doc)
	if !ok {
		return nil, xml.Name{}, false
	}
	root = xml.Name{Space: s.tag.space, Local: s.tag.local}
	el, err := s.copyElement(make([]byte, 0, len(doc)+len(doc)/8))
	if err != nil || !s.atEnd() {
		return nil, xml.Name{}, false
	}
	return el, root, true
}
