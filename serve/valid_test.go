package serve

import (
	"encoding/xml"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/conformance"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication"
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

// linksOf returns the links of the document at a URL by their relation. Each is there once.
func linksOf(t tester, at string, n *node) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, l := range n.all(entry.AtomSpace, "link") {
		rel := l.attrs["rel"]
		if found[rel] != "" {
			t.Fatalf("two links %s in the document at %s", rel, at)
		}
		found[rel] = entry.ResolveURL(at, l.attrs["href"])
	}
	return found
}

// roundTrip is a transport that asks a served feed.
type roundTrip func(r *http.Request) got

func (ask roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	g := ask(r)
	return &http.Response{StatusCode: g.status, Header: g.header, Body: io.NopCloser(strings.NewReader(g.body)), Request: r}, nil
}

// The W3C's validator is not available as a package. The documents meet the rules of 'feedbridge conformance', and their
// links are those of an archived feed.
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
			checked, report := conformance.NewDocuments(), conformance.NewReport(latest, string(format))
			report.Dialect = syndication.Archived
			reader := http.Client{Transport: checked.Wrap(roundTrip(func(r *http.Request) got { return s.ask(t, r.Method, r.URL.String()) }))}
			entries, documents := 0, 0
			for at, newer := latest, ""; at != ""; documents++ {
				answer, err := reader.Get(at)
				must.Succeed(t, err)
				body, err := io.ReadAll(answer.Body)
				must.Succeed(t, errors.Join(err, answer.Body.Close()))
				report.AddEntity(&feed.Entity{ID: at, Page: at})
				doc := channel(parsed(t, string(body)))
				ids[doc.says(entry.AtomSpace, "id")] = true
				links := linksOf(t, at, doc)
				if links["self"] != at || links["current"] != latest || links["next-archive"] != newer {
					t.Errorf("%s: the links are %v", at, links)
				}
				if archive := len(doc.all(historySpace, "archive")); archive != 0 == (at == latest) || archive > 1 {
					t.Errorf("%s: it has %d marks of an archive", at, archive)
				}
				if media, params, err := mime.ParseMediaType(answer.Header.Get("Content-Type")); err != nil || media != "application/"+string(format)+"+xml" || params["charset"] != "utf-8" {
					t.Errorf("%s: it is of the type %s", at, answer.Header.Get("Content-Type"))
				}
				if documents > 0 {
					entries += len(doc.all(entry.AtomSpace, "entry")) + len(doc.all("", "item")) + len(doc.all(entry.TombstoneSpace, "deleted-entry"))
				}
				if at != latest {
					newer = at
				}
				at = links["prev-archive"]
			}
			report.Complete = true
			report.Evaluate(checked.Results(report))
			for _, broken := range report.Failures(true) {
				t.Errorf("%s: %s: %v", broken.ID, broken.Rule, broken.Evidence)
			}
			if passed := report.Count("MUST", conformance.Passed); passed < 9 {
				t.Errorf("%d rules were checked", passed)
			}
			if n := len(bodies) + 4; documents != n/3+1 || entries != n/3*3 || len(ids) != 1 {
				t.Errorf("%d entries in %d documents with the ids %v, of %d messages", entries, documents, ids, n)
			}
		})
	}
}
