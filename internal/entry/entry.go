// Package entry reads the fields of the entries of Atom and the items of RSS, and encodes them as JSON.
package entry

import (
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/message"
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
	itunesSpace    = "http://www.itunes.com/dtds/podcast-1.0.dtd"
	mediaSpace     = "http://search.yahoo.com/mrss/"
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
	XML string
}

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

// FormatTime returns a date as RFC 3339 has it; unchanged if it is such a date.
func FormatTime(text string) (string, bool) {
	if message.IsISODate(text) {
		// time.Parse accepts an hour of one digit, and a comma.
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil && at.Year() > 0 && text[len("2006-01-02T15")] == ':' && !strings.Contains(text, ",") {
			return text, true
		}
	}
	at, _, ok := message.ParseDate(text)
	if !ok || at.Year() < 1 || at.Year() > 9999 {
		return "", false
	}
	return at.UTC().Format(time.RFC3339Nano), true
}
