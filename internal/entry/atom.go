package entry

import (
	"cmp"
	"encoding/base64"
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

// isAtomField reports whether an element of Atom is a field. Content that is neither text nor HTML is an
// extension.
func isAtomField(t *xmlcopy.Tag) bool {
	switch t.Local {
	case "title", "summary", "rights", "copyright", "author", "contributor", "source", "id", "link", "category",
		"published", "issued", "updated", "modified":
		return true
	case "content":
		media, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(t.Attr("type"))), ";")
		return t.Space == atom03Space || t.Attr("src") != "" || media == "" || media == "html" || media == "xhtml" || media == "application/xhtml+xml" ||
			!strings.Contains(media, "/") || strings.HasPrefix(media, "text/") && media != "text/xml"
	}
	return false
}

// readAtom reads an element of Atom 1.0 or 0.3, which may be in an item of RSS.
func (a *fieldReader) readAtom(s *xmlcopy.Scanner, t *xmlcopy.Tag, base string) error {
	switch t.Local {
	case "title", "summary", "content", "rights", "copyright":
		return a.readAtomProse(s, t, base)
	case "author":
		return a.readAtomPerson(s, &a.Authors)
	case "contributor":
		return a.readAtomPerson(s, &a.Contributors)
	case "source":
		return a.readSource(s, base)
	}
	text, _, err := s.InnerContent()
	if err != nil {
		return err
	}
	value := strings.TrimSpace(text)
	switch t.Local {
	case "id":
		setIfEmpty(&a.ID, cmp.Or(t.AttrIn(ExtraSpace, "id"), value))
	case "link":
		l := Link{Rel: strings.ToLower(t.Attr("rel")), Href: a.resolve(base, t.Attr("href")), Type: t.Attr("type"), Length: t.Attr("length"), Title: t.Attr("title"), HrefLang: t.Attr("hreflang")}
		if l.Rel == "" {
			l.Rel = "alternate"
		}
		if t.Attr("href") != "" {
			l.Attributes = readAttributes(a.room, t, "rel", "href", "type", "length", "title", "hreflang")
			a.Links = append(a.Links, l)
		}
	case "category":
		if term := cmp.Or(t.Attr("term"), value); term != "" {
			a.Categories = append(a.Categories, Category{term, t.Attr("scheme"), t.Attr("label")})
		}
	case "published", "issued":
		a.keepDate(&a.Published, t, value)
	case "updated", "modified":
		a.keepDate(&a.Updated, t, value)
	}
	return nil
}

// readAtomProse reads a child of an entry of Atom that has text, or content that is elsewhere.
func (a *fieldReader) readAtomProse(s *xmlcopy.Scanner, t *xmlcopy.Tag, base string) error {
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

// readSource reads an atom:source.
func (a *fieldReader) readSource(s *xmlcopy.Scanner, base string) error {
	f := fieldReader{room: a.room}
	for {
		found, err := s.NextChild()
		if err != nil {
			return err
		}
		if !found {
			break
		}
		if t := s.Tag; isSourceField(&t) {
			err = f.readAtom(s, &t, base)
		} else {
			err = f.readExtension(s)
		}
		if err != nil {
			return err
		}
	}
	if a.Source != nil {
		return nil
	}
	a.Source = &Feed{ID: f.ID, Authors: f.Authors, Extensions: f.Extensions}
	if a.Source.Title, a.Source.TitleHTML = f.Title.split(longestSummary); f.Updated != "" {
		a.Source.DateModified, _ = FormatTime(f.Updated)
	}
	self, _ := f.FindLink("self")
	page, _ := f.FindLink("alternate")
	a.Source.URL, a.Source.HomePageURL = self.Href, page.Href
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
		if err != nil || !utf8.Valid(decoded) {
			return &Prose{Text: text}, nil
		}
		text = string(decoded)
	}
	media, _, _ := strings.Cut(kind, ";")
	isHTML := kind == "html" || media == "text/html" || media == "application/xhtml+xml"
	isText := kind == "" || kind == "text" || strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "/xml") || strings.HasSuffix(media, "+xml")
	switch {
	case kind == "xhtml":
		return &Prose{withoutDiv(markup, text), true}, nil
	case markup != "" && (mode == "xml" || t.Space == atom03Space || isHTML):
		return &Prose{markup, true}, nil
	case !isHTML && !isText && t.Local != "content":
		if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil && utf8.Valid(decoded) {
			text = string(decoded)
		}
	}
	return &Prose{text, isHTML}, nil
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

// readAtomPerson reads a person of an entry of Atom and appends it to people, unless it is empty.
func (a *fieldReader) readAtomPerson(s *xmlcopy.Scanner, people *[]Person) error {
	var p Person
	for {
		found, err := s.NextChild()
		if err != nil {
			return err
		}
		if !found {
			break
		}
		var at *string
		if space := s.Tag.Space; space == AtomSpace || space == atom03Space {
			at = map[string]*string{"name": &p.Name, "email": &p.Email, "uri": &p.URI, "url": &p.URI}[s.Tag.Local]
		}
		if at == nil {
			err = p.Extensions.read(s, a.room)
		} else {
			var text string
			text, _, err = s.InnerContent()
			setIfEmpty(at, strings.TrimSpace(text))
		}
		if err != nil {
			return err
		}
	}
	if p.Name+p.Email+p.URI != "" || p.Extensions != nil {
		*people = append(*people, p)
	}
	return nil
}
