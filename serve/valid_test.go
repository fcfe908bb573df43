package serve

import (
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/mail"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// node is an element of a document.
type node struct {
	name     xml.Name
	attrs    map[string]string // without those of namespaces
	children []*node
	text     string // its own
}

func parsed(t tester, doc string) *node {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(doc))
	root := &node{}
	for open := []*node{root}; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return root.children[0]
		}
		if err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		in := open[len(open)-1]
		switch token := token.(type) {
		case xml.StartElement:
			n := &node{name: token.Name, attrs: map[string]string{}}
			for _, a := range token.Attr {
				if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" {
					n.attrs[a.Name.Local] = a.Value
				}
			}
			in.children, open = append(in.children, n), append(open, n)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			in.text += string(token)
		}
	}
}

func (n *node) all(space, local string) (found []*node) {
	for _, c := range n.children {
		if c.name == (xml.Name{Space: space, Local: local}) {
			found = append(found, c)
		}
	}
	return found
}

// says is the text of the one child with a name.
func (n *node) says(space, local string) string {
	if found := n.all(space, local); len(found) > 0 {
		return found[0].text
	}
	return ""
}

// wrongs collects the rules that a document breaks.
type wrongs []string

func (w *wrongs) add(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// number checks how often a child is there.
func (w *wrongs) number(n *node, space, local string, least, most int) {
	if found := len(n.all(space, local)); found < least || found > most {
		w.add("%s has %d %s", n.name.Local, found, local)
	}
}

// RFC 3339 with a T and a Z in upper case (RFC 4287, section 3.3).
var atomDate = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)

func (w *wrongs) date(what, s string) time.Time {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil || !atomDate.MatchString(s) {
		w.add("%s is %q", what, s)
	}
	return at
}

func (w *wrongs) iri(what, s string) {
	if u, err := url.Parse(s); err != nil || !u.IsAbs() || strings.TrimSpace(s) != s {
		w.add("%s is %q", what, s)
	}
}

// links are the links of the document at a URL, or of an entry, by their relation, each of which is
// there once.
func (w *wrongs) links(at string, n *node) map[string]string {
	found := map[string]string{}
	for _, l := range n.all(entry.AtomSpace, "link") {
		rel := l.attrs["rel"]
		href := entry.ResolveURL(at, l.attrs["href"])
		w.iri("the link "+rel, href)
		if found[rel] != "" {
			w.add("two links %s", rel)
		}
		found[rel] = href
	}
	return found
}

// feedOf is a feed of an archive or subscription document (RFC 4287, section
// 4.1.1, and RFC 5005, section 4).
func (w *wrongs) feedOf(n *node) {
	if n.name != (xml.Name{Space: entry.AtomSpace, Local: "feed"}) {
		w.add("the root is %v", n.name)
	}
	for _, c := range n.children {
		if c.name.Space == entry.AtomSpace && !strings.Contains(" id title updated author link entry ", " "+c.name.Local+" ") {
			w.add("there is an element %s", c.name.Local)
		}
	}
	for _, name := range []string{"id", "title", "updated"} {
		w.number(n, entry.AtomSpace, name, 1, 1)
	}
	w.number(n, entry.AtomSpace, "author", 1, 1)
	w.iri("the id", n.says(entry.AtomSpace, "id"))
	updated := w.date("updated", n.says(entry.AtomSpace, "updated"))
	for _, e := range n.all(entry.AtomSpace, "entry") {
		if at := w.entryOf(e); at.After(updated) {
			w.add("the document is of %v, and has an entry of %v", updated, at)
		}
	}
	for _, d := range n.all(entry.TombstoneSpace, "deleted-entry") {
		w.iri("ref", d.attrs["ref"])
		w.date("when", d.attrs["when"])
	}
}

// entryOf is an entry (RFC 4287, section 4.1.2 and 4.1.3).
func (w *wrongs) entryOf(n *node) time.Time {
	for _, name := range []string{"id", "title", "updated"} {
		w.number(n, entry.AtomSpace, name, 1, 1)
	}
	for _, name := range []string{"content", "published", "summary", "rights", "source"} {
		w.number(n, entry.AtomSpace, name, 0, 1)
	}
	w.iri("the id", n.says(entry.AtomSpace, "id"))
	if len(n.all(entry.AtomSpace, "published")) > 0 {
		w.date("published", n.says(entry.AtomSpace, "published"))
	}
	for _, c := range n.all(entry.AtomSpace, "category") {
		if c.attrs["term"] == "" {
			w.add("a category has no term")
		}
	}
	links := w.links("", n)
	contents := n.all(entry.AtomSpace, "content")
	if len(contents) == 0 && links["alternate"] == "" {
		w.add("entry %s has neither content nor a link", n.says(entry.AtomSpace, "id"))
	}
	for _, c := range contents {
		kind := c.attrs["type"]
		media, _, err := mime.ParseMediaType(kind)
		switch {
		case kind == "" || kind == "text" || kind == "html" || strings.HasPrefix(kind, "text/") && !isXML(kind):
			if len(c.children) > 0 {
				w.add("content of the type %q has elements", kind)
			}
		case err != nil || strings.Contains(media, "multipart") || !strings.Contains(media, "/"):
			w.add("content has the type %q", kind)
		case isXML(kind):
			if len(c.children) != 1 || strings.TrimSpace(c.text) != "" {
				w.add("content of the type %q is no document", kind)
			}
		default:
			if _, err := base64.StdEncoding.DecodeString(c.text); err != nil || len(c.children) > 0 {
				w.add("content of the type %q is not in base64", kind)
			}
			w.number(n, entry.AtomSpace, "summary", 1, 1)
		}
	}
	return w.date("updated", n.says(entry.AtomSpace, "updated"))
}

// channelOf is a document of RSS 2.0.
func (w *wrongs) channelOf(n *node) *node {
	w.number(n, "", "channel", 1, 1)
	if n.name != (xml.Name{Local: "rss"}) || n.attrs["version"] != "2.0" || len(n.children) != 1 {
		w.add("the root is %v %v", n.name, n.attrs)
	}
	channel := n.children[0]
	for _, name := range []string{"title", "link", "description", "lastBuildDate"} {
		w.number(channel, "", name, 1, 1)
	}
	w.iri("link", channel.says("", "link"))
	rfc822 := func(what, s string) {
		if _, err := mail.ParseDate(s); err != nil {
			w.add("%s is %q", what, s)
		}
	}
	rfc822("lastBuildDate", channel.says("", "lastBuildDate"))
	guids := map[string]bool{}
	for _, it := range channel.all("", "item") {
		if len(it.all("", "title"))+len(it.all("", "description")) == 0 {
			w.add("an item has neither title nor description")
		}
		for _, name := range []string{"title", "link", "description", "pubDate"} {
			w.number(it, "", name, 0, 1)
		}
		w.number(it, "", "guid", 1, 1)
		guid := it.all("", "guid")[0]
		if guids[guid.text] || guid.text == "" {
			w.add("there are two items %q", guid.text)
		}
		guids[guid.text] = true
		if guid.attrs["isPermaLink"] != "false" {
			w.iri("a guid that is a link", guid.text)
		}
		if len(it.all("", "pubDate")) > 0 {
			rfc822("pubDate", it.says("", "pubDate"))
		}
	}
	return channel
}

// The W3C's validator is not available as a package. This checks the requirements of the
// specifications for every document and for links.
func TestDocumentsAreValid(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	for _, r := range bodies {
		topic.add(r)
	}
	topic.add(syndicated("urn:x:13", feed.Delete, later(1), ""))
	topic.add(messageOf("<1@x>", feed.Delete, later(1), ""))
	topic.add(syndicated("16", feed.Put, later(1), "<item><description>no guid</description></item>", isRSS...))
	topic.add(syndicated("urn:x:17", feed.Put, later(1), strings.Replace(entryOf("urn:x:17", later(1), "no id"), "<id>urn:x:17</id>", "", 1), isAtom))
	for _, format := range []Format{Atom, RSS} {
		parallel.Run(t, "case 136: "+string(format), func(t *testing.T) {
			s := serveTopic(t, topic, as(format))
			ids := map[string]bool{}
			entries, documents := 0, 0
			for at, newer := latest, ""; at != ""; documents++ {
				g := s.get(t, at).want(t, 200)
				var w wrongs
				doc := parsed(t, g.body)
				if format == Atom {
					w.feedOf(doc)
					ids[doc.says(entry.AtomSpace, "id")] = true
				} else {
					doc = w.channelOf(doc)
				}
				links := w.links(at, doc)
				if links["self"] != at || links["current"] != latest || links["next-archive"] != newer {
					w.add("the links are %v", links)
				}
				if archive := len(doc.all(historySpace, "archive")); archive != 0 == (at == latest) || archive > 1 {
					w.add("it has %d marks of an archive", archive)
				}
				if media, params, err := mime.ParseMediaType(g.header.Get("Content-Type")); err != nil || media != "application/"+string(format)+"+xml" || params["charset"] != "utf-8" {
					w.add("it is of the type %s", g.header.Get("Content-Type"))
				}
				for _, sentence := range w {
					t.Errorf("%s: %s", at, sentence)
				}
				if documents > 0 {
					entries += len(doc.all(entry.AtomSpace, "entry")) + len(doc.all("", "item")) + len(doc.all(entry.TombstoneSpace, "deleted-entry"))
				}
				if at != latest {
					newer = at
				}
				at = links["prev-archive"]
			}
			if n := len(bodies) + 4; documents != n/3+1 || entries != n/3*3 || format == Atom && len(ids) != 1 {
				t.Errorf("%d entries in %d documents with the ids %v, of %d messages", entries, documents, ids, n)
			}
		})
	}
}
