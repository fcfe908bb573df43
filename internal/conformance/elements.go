package conformance

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// requiredElements lists the elements that others have, for Atom exactly once.
var requiredElements = map[string][]string{
	"atom:feed":  {"atom:id", "atom:title", "atom:updated"},
	"atom:entry": {"atom:id", "atom:title", "atom:updated"},
	"channel":    {"title", "link", "description"},
}

// dateForms has the form of the dates in elements.
var dateForms = map[string]*regexp.Regexp{
	"atom:updated": rfc3339, "atom:published": rfc3339, "pubDate": rfc822, "lastBuildDate": rfc822,
	"dc:date": regexp.MustCompile(`^\d{4}(-\d\d(-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?)?)?$`), // W3C-DTF
}

// xmlElement is an element of a document of Atom or RSS, as far as rules are about it.
type xmlElement struct {
	name, id   string         // id is the text of its atom:id or guid
	text       string         // if it is an ID or a date
	content    bool           // it is in an atom:content, which may have another feed
	children   map[string]int // how many, by name
	alternates map[string]int // links, by type and language
	authorless string         // an entry in it without author
}

const rss1 = "http://purl.org/rss/1.0/"

// elementName returns the name of an element: with a prefix for Atom and Dublin Core, without one for RSS, and empty in
// any other namespace.
func elementName(name xml.Name) string {
	switch name.Space {
	case feedxml.AtomNamespace:
		return "atom:" + name.Local
	case "http://purl.org/dc/elements/1.1/":
		return "dc:" + name.Local
	case "", rss1:
		return name.Local
	}
	return ""
}

// checkXML checks a document of Atom or RSS. whole reports whether the body has the whole document.
func (d *Documents) checkXML(url string, h http.Header, body []byte, whole bool) {
	r := feedxml.NewReader(bytes.NewReader(body), feedxml.Options{URL: url, ContentType: h.Get("Content-Type")})
	var err error
	for err == nil {
		_, err = r.Next()
	}
	d.archives[url] = *r.Meta()
	broken := errors.Is(err, feedxml.ErrMalformed) || errors.Is(err, feedxml.ErrTrailing) || whole && errors.Is(err, feedxml.ErrTruncated)
	if broken || whole && errors.Is(err, io.EOF) {
		d.checks.record(url, unless(!broken, "%v", err), nil, checkWellFormed)
	}
	decoded, err := feedxml.Decode(bytes.NewReader(body))
	if err != nil {
		return // the crawl reports it
	}
	decoder := xml.NewDecoder(decoded)
	decoder.Entity = xml.HTMLEntity
	decoder.CharsetReader = func(_ string, input io.Reader) (io.Reader, error) { return input, nil }
	open := []*xmlElement{{children: map[string]int{}}}
	for {
		token, err := decoder.Token()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				d.checks.record(url, "", errNotParsed, checkElements, checkAuthor, checkLinks, checkAlternates)
			}
			return
		}
		last := open[len(open)-1]
		switch t := token.(type) {
		case xml.StartElement:
			e := &xmlElement{name: elementName(t.Name), children: map[string]int{}, alternates: map[string]int{}}
			if e.content = last.content || last.name == "atom:content"; e.content {
				e.name = ""
			}
			if last.children[e.name]++; e.name == "atom:link" {
				d.checkLink(url, last, t.Attr)
			}
			if e.name == "item" && t.Name.Space == rss1 {
				named := slices.ContainsFunc(t.Attr, func(a xml.Attr) bool { return a.Name.Local == "about" && a.Value != "" })
				d.checks.record(url, unless(named, "item %d has no rdf:about", last.children[e.name]), nil, checkItemIDs)
			}
			open = append(open, e)
		case xml.CharData:
			if last.name == "atom:id" || last.name == "guid" || dateForms[last.name] != nil {
				last.text += string(t)
			}
		case xml.EndElement:
			open = open[:len(open)-1]
			d.checkElement(url, last, open[len(open)-1])
		}
	}
}

// checkLink checks an atom:link in an element.
func (d *Documents) checkLink(url string, in *xmlElement, attrs []xml.Attr) {
	is := map[string]string{"rel": "alternate"}
	for _, a := range attrs {
		if a.Name.Space == "" {
			is[a.Name.Local] = a.Value
		}
	}
	href, leads := is["href"]
	_, err := neturl.Parse(strings.TrimSpace(href))
	fault := unless(err == nil && !strings.ContainsAny(strings.TrimSpace(href), " <>\"{}|\\^`"), "a link %s of %s has the href %q", is["rel"], in, href)
	d.checks.record(url, cmp.Or(unless(leads, "a link %s of %s has no href", is["rel"], in), fault), nil, checkLinks)
	if feedxml.NormalRelation(is["rel"]) == "alternate" {
		in.alternates[fmt.Sprintf("type %q and hreflang %q", is["type"], is["hreflang"])]++
	}
}

// checkElement checks an element of a feed that has ended.
func (d *Documents) checkElement(url string, e, parent *xmlElement) {
	for _, child := range requiredElements[e.name] {
		n := e.children[child]
		d.checks.record(url, unless(n == 1 || n > 1 && e.name == "channel", "%s has %d elements %s", e, n, child), nil, checkElements)
	}
	text := strings.TrimSpace(e.text)
	if form := dateForms[e.name]; form != nil {
		d.checkDate(url, parent.String(), e.name, text, form)
	}
	switch e.name {
	case "atom:id", "guid":
		parent.id = text
	case "atom:feed", "atom:entry":
		for of, n := range e.alternates {
			d.checks.record(url, unless(n < 2, "%s has %d alternate links of the %s", e, n, of), nil, checkAlternates)
		}
	case "item":
		named := e.children["title"]+e.children["description"] > 0
		d.checks.record(url, unless(named, "%s has neither title nor description", e), nil, checkElements)
		if strings.HasPrefix(d.archives[url].Version, "2") { // older versions have no guid
			d.checks.record(url, unless(e.id != "", "item %d has no guid", parent.children["item"]), nil, checkItemIDs)
		}
	}
	switch {
	case e.name == "atom:entry" && e.children["atom:author"]+e.children["atom:source"] == 0:
		parent.authorless = e.String()
	case e.name == "atom:feed":
		d.checks.record(url, unless(e.authorless == "" || e.children["atom:author"] > 0, "neither the feed nor %s has an author", e.authorless), nil, checkAuthor)
	}
}

// String names the element.
func (e *xmlElement) String() string {
	if e.id == "" {
		return e.name
	}
	return fmt.Sprintf("the %s %q", e.name, e.id)
}
