package serve

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The namespaces of documents. All but Atom's are declared where they are used: a
// reader that takes an entry out of a document would have to carry those along
// that the document declares.
const (
	atomSpace      = "http://www.w3.org/2005/Atom"
	historySpace   = "http://purl.org/syndication/history/1.0"
	tombstoneSpace = "http://purl.org/atompub/tombstones/1.0"
)

// stamp is when an entry that we make was updated: when the bus took its message,
// with the position in the digits behind the millisecond. So one that comes later
// is newer, also where the bus counts in milliseconds.
func (e *entity) stamp() time.Time {
	return e.taken.Truncate(time.Millisecond).Add(time.Duration(e.position % 1e6))
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

var hasScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:[^ <>"{}|\\^` + "`" + `]+$`)

// iri is an ID as Atom wants it. What is no IRI becomes that of a Content-ID
// (RFC 2392).
func iri(id string) string {
	if hasScheme.MatchString(id) {
		return id
	}
	return "cid:" + url.PathEscape(strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">"))
}

// element returns the one element of a document that can stand in another, and
// its name. It is not ok if the document is not well-formed: that would make the
// other one unreadable. [xml.Decoder] takes more than others do, so what it lets
// through is looked at again.
func element(doc []byte) (el []byte, root xml.Name, ok bool) {
	doc = bytes.TrimPrefix(doc, []byte("\ufeff"))
	d := xml.NewDecoder(bytes.NewReader(doc))
	depth, start, end := 0, int64(-1), int64(-1)
	tagEnd := int64(0)
	declared := false // the root says what the default namespace is
	bare := false     // an element has no namespace
	for {
		at := d.InputOffset()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, xml.Name{}, false
		}
		switch token := token.(type) {
		case xml.StartElement:
			if depth == 0 {
				if start >= 0 {
					return nil, xml.Name{}, false
				}
				start, root = at, token.Name
				tagEnd = d.InputOffset()
			}
			depth++
			bare = bare || token.Name.Space == ""
			if depth > deepest || !isDeclared(token.Name) || token.Name.Space == "xmlns" || !isTag(doc[at:d.InputOffset()]) {
				return nil, xml.Name{}, false
			}
			for i, a := range token.Attr {
				twice := slices.ContainsFunc(token.Attr[:i], func(b xml.Attr) bool { return b.Name == a.Name })
				if twice || !isDeclared(a.Name) || !declares(a) {
					return nil, xml.Name{}, false
				}
				if depth == 1 && a.Name == (xml.Name{Local: "xmlns"}) {
					declared = true
				}
			}
		case xml.EndElement:
			if depth--; depth == 0 {
				end = d.InputOffset()
			}
		case xml.Directive:
			return nil, xml.Name{}, false
		case xml.ProcInst:
			// Within an element, that of XML itself is none.
			if (depth == 0) != (token.Target == "xml") || depth > 0 && strings.EqualFold(token.Target, "xml") || strings.Contains(token.Target, ":") {
				return nil, xml.Name{}, false
			}
		case xml.CharData:
			if depth == 0 && len(bytes.TrimSpace(token)) > 0 {
				return nil, xml.Name{}, false
			}
		}
	}
	if start < 0 || end < 0 || !isText(doc) || surrogates.Match(doc) {
		return nil, xml.Name{}, false
	}
	el = doc[start:end]
	if bare && !declared {
		// The default namespace of the document around it is not its own.
		name := nameEnd(el[:tagEnd-start])
		el = bytes.Join([][]byte{el[:name], []byte(` xmlns=""`), el[name:]}, nil)
	}
	return el, root, true
}

// deepest is how deep elements may lie in each other. Many readers take 256, with
// what is around ours.
const deepest = 200

// surrogates are references to what is no character.
var surrogates = regexp.MustCompile(`&#(x0*[dD][89a-fA-F][0-9a-fA-F]{2}|0*(5529[6-9]|55[3-9]\d\d|5[67]\d{3}));`)

const (
	xmlSpace   = "http://www.w3.org/XML/1998/namespace"
	xmlnsSpace = "http://www.w3.org/2000/xmlns/"
)

// declares says whether an attribute that declares a namespace may do so (Namespaces
// in XML 1.0, sections 3 and 5).
func declares(a xml.Attr) bool {
	prefix := a.Name.Local
	switch {
	case a.Name == xml.Name{Local: "xmlns"}:
		prefix = ""
	case a.Name.Space != "xmlns":
		return true
	case a.Value == "" || prefix == "xmlns":
		return false
	}
	return a.Value != xmlnsSpace && (a.Value == xmlSpace) == (prefix == "xml")
}

// isTag says whether a start tag that [xml.Decoder] takes has names with one prefix at
// most, and blanks between attributes.
func isTag(tag []byte) bool {
	end := nameEnd(tag)
	if !isQualified(tag[1:end]) {
		return false
	}
	for tag = tag[end:]; ; {
		rest := bytes.TrimLeft(tag, " \t\r\n")
		if rest[0] == '>' || rest[0] == '/' {
			return true
		}
		name, value, ok := bytes.Cut(rest, []byte("="))
		if len(rest) == len(tag) || !ok || !isQualified(bytes.TrimRight(name, " \t\r\n")) {
			return false
		}
		value = bytes.TrimLeft(value, " \t\r\n")
		end := bytes.IndexByte(value[1:], value[0])
		if end < 0 {
			return false
		}
		tag = value[1+end+1:]
	}
}

// isQualified says whether a name is one that may have a prefix.
func isQualified(name []byte) bool {
	prefix, local, ok := bytes.Cut(name, []byte(":"))
	if !ok {
		return true
	}
	first, _ := utf8.DecodeRune(local)
	return len(prefix) > 0 && !bytes.Contains(local, []byte(":")) && (first == '_' || unicode.In(first, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Lo))
}

func nameEnd(tag []byte) int {
	if i := bytes.IndexAny(tag, " \t\r\n/>"); i > 0 {
		return i
	}
	return len(tag)
}

// identified returns an element as it is if it has a child with a name that says
// something, and with one that says id if not: readers cannot tell apart what has
// no ID.
func identified(el []byte, name xml.Name, attributes, id string) []byte {
	d := xml.NewDecoder(bytes.NewReader(el))
	var tagEnd, start int64 // of the element, and of a child that says nothing yet
	var blank [2]int64      // where there is such a child
	depth := 0
	for {
		at := d.InputOffset()
		token, err := d.Token()
		if err != nil {
			break
		}
		switch token := token.(type) {
		case xml.StartElement:
			if depth++; depth == 1 {
				tagEnd = d.InputOffset()
			}
			if depth == 2 && token.Name == name {
				start = at
			}
		case xml.CharData:
			if start > 0 && len(bytes.TrimSpace(token)) > 0 {
				return el
			}
		case xml.EndElement:
			if depth--; depth == 1 && start > 0 {
				blank, start = [2]int64{start, d.InputOffset()}, 0
			}
		}
	}
	child := fmt.Appendf(nil, "<%s%s>%s</%[1]s>", name.Local, attributes, escaped(id))
	switch {
	case blank[1] > 0:
		return bytes.Join([][]byte{el[:blank[0]], child, el[blank[1]:]}, nil)
	case bytes.HasSuffix(el[:tagEnd], []byte("/>")):
		return bytes.Join([][]byte{el[:tagEnd-2], []byte(">"), child, []byte("</"), el[1:nameEnd(el)], []byte(">")}, nil)
	}
	return bytes.Join([][]byte{el[:tagEnd], child, el[tagEnd:]}, nil)
}

// isDeclared says whether a name's prefix is declared. [xml.Decoder] leaves one
// that is not in place of the namespace, and no prefix has a colon.
func isDeclared(n xml.Name) bool {
	return n.Space == "" || n.Space == "xmlns" || strings.Contains(n.Space, ":")
}

// escaped is text for an element or an attribute.
func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // which a builder takes
	return b.String()
}

// isText says whether XML can carry b as text.
func isText(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	})
}

func mediaType(contentType string) string {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || !strings.Contains(media, "/") {
		return "application/octet-stream"
	}
	return media
}

func isXML(media string) bool {
	return strings.HasSuffix(media, "/xml") || strings.HasSuffix(media, "+xml")
}

// tombstone says that the entry with an ID was deleted (RFC 6721).
func tombstone(b []byte, e *entity, id string) []byte {
	if el, root, ok := element(e.body); ok && root == (xml.Name{Space: tombstoneSpace, Local: "deleted-entry"}) {
		return append(append(b, el...), '\n')
	}
	return fmt.Appendf(b, `<at:deleted-entry xmlns:at="%s" ref="%s" when="%s"/>`+"\n", tombstoneSpace, escaped(id), rfc3339(e.stamp()))
}

// item is an item of RSS, as far as it can be said in Atom.
type item struct {
	Title       string `xml:"title"`
	Link        string `xml:"link"`
	Description string `xml:"description"`
	Content     string `xml:"http://purl.org/rss/1.0/modules/content/ encoded"`
	PubDate     string `xml:"pubDate"`
}

// entry is an entry of Atom, as far as it can be said in RSS.
type entry struct {
	Title     string `xml:"http://www.w3.org/2005/Atom title"`
	Published string `xml:"http://www.w3.org/2005/Atom published"`
	Summary   string `xml:"http://www.w3.org/2005/Atom summary"`
	Content   string `xml:"http://www.w3.org/2005/Atom content"`
	Links     []struct {
		Href string `xml:"href,attr"`
		Rel  string `xml:"rel,attr"`
	} `xml:"http://www.w3.org/2005/Atom link"`
}

// alternate is the link to what the entry is about.
func (e *entry) alternate() string {
	for _, l := range e.Links {
		if l.Rel == "" || l.Rel == "alternate" {
			return l.Href
		}
	}
	return ""
}

// address is an archive's or the subscription document's.
func (p *page) address() string {
	if p.kind == subscription {
		return p.base + "/latest"
	}
	return p.archive(p.id.k)
}

func (p *page) archive(k uint64) string { return p.base + "/pages/" + p.id.at(k).String() }

// relations are the links of a document, by their relation (RFC 5005).
func (p *page) relations() [][2]string {
	list := [][2]string{{"self", p.address()}, {"current", p.base + "/latest"}}
	if p.prev(p.span) {
		list = append(list, [2]string{"prev-archive", p.archive(p.before.k)})
	}
	if p.after.ok {
		list = append(list, [2]string{"next-archive", p.archive(p.after.k)})
	}
	return list
}

// updated is when a document was changed last: when it got its last entry.
func (p *page) updated() time.Time {
	if p.entities == 0 {
		return time.Unix(0, 0).UTC()
	}
	return p.modified
}

// subscription answers with the document that has the newest entries: those of
// the page that is not full, and those of the page in front of it, so that a
// client that does not know archives sees each for a while.
func (f *Feed) subscription(w http.ResponseWriter, r *http.Request, base string) error {
	for range 5 {
		span, err := f.topic.Span(r.Context())
		if err != nil {
			return err
		}
		id := pageID{epoch: span.Epoch, size: uint64(f.cfg.PageSize)}
		id.k = span.End / id.size
		p, err := f.page(r.Context(), pageKey{feed: f, id: id, base: base, kind: subscription})
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return err
		}
		defer f.memory.release(p)
		return f.send(w, r, p, base)
	}
	return errMoved
}

// inBase64 is content that XML cannot carry.
func inBase64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
