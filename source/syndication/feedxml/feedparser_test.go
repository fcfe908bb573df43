package feedxml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// readWithFeedparser returns the IDs or links of the entries that feedparser finds in
// each document.
func readWithFeedparser(t *testing.T, docs [][]byte) [][]string {
	t.Helper()
	if exec.CommandContext(t.Context(), "python3", "-c", "import feedparser").Run() != nil {
		t.Skip("python3 cannot import feedparser: pip install feedparser")
	}
	const script = `
import base64, feedparser, json, sys
docs = [base64.b64decode(d) for d in json.load(sys.stdin)]
feeds = [feedparser.parse(d, response_headers={'content-type': 'application/xml', 'content-location': 'http://x.example/feed'}) for d in docs]
print(json.dumps([[e.get('id') or e.get('link') or '' for e in f.entries] for f in feeds]))`
	input, err := json.Marshal(docs)
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), "python3", "-c", script)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, problems.Bytes())
	}
	var found [][]string
	must.Succeed(t, json.Unmarshal(out.Bytes(), &found))
	return found
}

// faultyEntries are the ways in which an entry is broken, each the text of an entry
// whose id is %s, in place of a good one.
var faultyEntries = map[string]string{
	"bare ampersand":        `<title>AT&T & co</title>ID<description>a && b &; c</description>`,
	"ampersand in a link":   `<title>T</title><link>http://x.example/?a=1&b=2&copy=3</link>ID`,
	"ampersand in a value":  `<title>T</title>ID<enclosure url="http://x.example/?a=1&b=2" length="1" type="a/b"/>`,
	"HTML entities":         `<title>a&nbsp;b &eacute; &copy;</title>ID`,
	"unknown entity":        `<title>a &foo; b</title>ID`,
	"bad number":            `<title>a &#0; &#x1f; b</title>ID`,
	"control characters":    "<title>a\x01\x0b\x1f b\x00</title>ID",
	"not UTF-8":             "<title>caf\xe9 \x93quoted\x94</title>ID",
	"unclosed p":            `<title>T</title>ID<description><p>a<p>b</description>`,
	"unclosed br":           `<title>T</title><description>a<br>b<hr>c</description>ID`,
	"overlapping":           `<title>T</title><description><b><i>a</b></i></description>ID`,
	"stray end tag":         `<title>T</title></p><description>a</b></description>ID`,
	"unclosed title":        `<title>T<link>http://x.example/l</link>ID`,
	"wrong end tag":         `<title>T</titel>ID<description>a</description>`,
	"end tag in capitals":   `<title>T</TITLE>ID`,
	"less-than":             `<title>1 < 2 <3 << 4</title>ID`,
	"unquoted value":        `<title>T</title>ID<enclosure url=http://x.example/a length=1 type=a/b />`,
	"value without an end":  `<title>T</title>ID<description><a href="http://x.example/>b</a></description>`,
	"attribute alone":       `<title>T</title>ID<description><input disabled></description>`,
	"duplicate attribute":   `<title>T</title>ID<enclosure url="http://x.example/a" url="http://x.example/b"/>`,
	"dashes in a comment":   `<!-- a -- b --><title>T</title>ID`,
	"declaration":           `<title>T</title><!DOCTYPE html>ID`,
	"instruction":           `<title>T</title><?php echo 1 ?>ID`,
	"CDATA end in text":     `<title>a ]]> b</title>ID`,
	"undeclared prefix":     `<title>T</title><media:thumbnail url="http://x.example/a"/>ID`,
	"markup in a CDATA end": `<title><![CDATA[a & b <c>]]></title>ID`,
}

// brokenDocuments are documents of each format with one broken entry, or with a fault
// around the entries, and a name for each.
func brokenDocuments() (docs [][]byte, names []string) {
	add := func(name, doc string) { docs, names = append(docs, []byte(doc)), append(names, name) }
	type format struct{ name, open, entry, end string }
	for _, f := range []format{
		{"rss", `<?xml version="1.0" encoding="utf-8"?><rss version="2.0"><channel><title>F</title><link>http://x.example/</link>`, `<item>%s</item>`, `</channel></rss>`},
		{"atom", `<?xml version="1.0" encoding="utf-8"?><feed xmlns="http://www.w3.org/2005/Atom"><title>F</title><id>f</id>`, `<entry>%s</entry>`, `</feed>`},
		{"rdf", `<?xml version="1.0"?><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"><channel rdf:about="http://x.example/"><title>F</title></channel>`, `<item>%s</item>`, `</rdf:RDF>`},
	} {
		id := func(n int) string {
			switch f.name {
			case "atom":
				return fmt.Sprintf("<id>http://x.example/%d</id>", n)
			case "rdf":
				return fmt.Sprintf("<link>http://x.example/%d</link>", n)
			}
			return fmt.Sprintf("<guid>http://x.example/%d</guid>", n)
		}
		good := func(n int) string { return fmt.Sprintf(f.entry, "<title>T</title>"+id(n)) }
		for name, content := range faultyEntries {
			if f.name != "rss" {
				content = strings.NewReplacer("<link>", "<x>", "</link>", "</x>", "description>", "summary>").Replace(content)
			}
			for at := range 3 {
				doc := f.open
				for n := range 3 {
					if n == at {
						doc += fmt.Sprintf(f.entry, strings.Replace(content, "ID", id(n), 1))
					} else {
						doc += good(n)
					}
				}
				add(fmt.Sprintf("%s, %s in entry %d", f.name, name, at), doc+f.end)
			}
		}
		three := good(0) + good(1) + good(2)
		unclosed := strings.SplitAfter(f.entry, "%s")[0]
		for name, doc := range map[string]string{
			"an entry that does not end":      f.open + fmt.Sprintf(unclosed, id(0)) + good(1) + good(2) + f.end,
			"the last entry does not end":     f.open + good(0) + good(1) + fmt.Sprintf(unclosed, id(2)) + f.end,
			"end tags that are missing":       f.open + three,
			"an end tag that breaks off":      f.open + three + "</",
			"an end tag too many":             f.open + good(0) + strings.SplitAfter(f.entry, "%s")[1] + good(1) + good(2) + f.end,
			"text before the prolog":          "junk\n" + f.open + three + f.end,
			"blanks before the prolog":        "\n\n " + f.open + three + f.end,
			"markup before the prolog":        "<br />\n<b>Warning</b>: a & b<br />" + f.open + three + f.end,
			"text behind the end":             f.open + three + f.end + "\njunk & more",
			"markup behind the end":           f.open + three + f.end + "<script>a < b</script>",
			"text between entries":            f.open + good(0) + " a & b < c " + good(1) + good(2) + f.end,
			"a comment between entries":       f.open + good(0) + "<!-- a -- b -->" + good(1) + good(2) + f.end,
			"control characters between":      f.open + good(0) + "\x00\x08" + good(1) + good(2) + f.end,
			"an ampersand in the head":        strings.Replace(f.open, ">F<", ">A & B<", 1) + three + f.end,
			"an unclosed element in the head": strings.Replace(f.open, "F</title>", "F", 1) + three + f.end,
			"windows-1252 labelled UTF-8":     strings.Replace(f.open, ">F<", ">caf\xe9<", 1) + three + f.end,
			"an unknown encoding":             strings.Replace(f.open, "?><", ` standalone="yes"?><`, 1) + three + f.end,
			"an encoding of none":             strings.Replace(f.open, "utf-8", "none", 1) + three + f.end,
			"an undeclared prefix":            f.open + "<dc:date>2026</dc:date>" + three + f.end,
		} {
			add(f.name+", "+name, doc)
		}
	}
	return docs, names
}

// No fault costs an entry, be it in one or around them, and each is reported, but for
// those that the reader takes for none.
func TestNoFaultCostsAnEntry(t *testing.T) {
	t.Parallel()
	docs, names := brokenDocuments()
	want := []string{"http://x.example/0", "http://x.example/1", "http://x.example/2"}
	for i, doc := range docs {
		r := NewReader(bytes.NewReader(doc), Options{URL: "http://x.example/feed", Lenient: true})
		entries, err := read(r)
		if !slices.Equal(ids(entries), want) || err != nil && !errors.Is(err, ErrTrailing) {
			t.Errorf("%s: got %q, %v", names[i], ids(entries), err)
		}
		if _, strict := read(NewReader(bytes.NewReader(doc), Options{})); strict != nil && err == nil && r.Faults().Count == 0 {
			t.Errorf("%s: no fault is reported", names[i])
		}
		checkBodies(t, string(doc), entries)
	}
}

// Of broken documents the entries are found that feedparser finds, of nine in ten at
// least. Where they differ, feedparser takes the text behind an element that does not
// end for its content, and loses an ID with it.
func TestBrokenDocumentsAsFeedparserReadsThem(t *testing.T) {
	t.Parallel()
	docs, names := brokenDocuments()
	found := readWithFeedparser(t, docs)
	same := 0
	for i, doc := range docs {
		entries, err := read(NewReader(bytes.NewReader(doc), Options{URL: "http://x.example/feed", ContentType: "application/xml", Lenient: true}))
		if slices.Equal(ids(entries), slices.Clip(found[i])) || len(entries) == 0 && len(found[i]) == 0 {
			same++
			continue
		}
		t.Logf("%s: got %q, %v; feedparser has %q", names[i], ids(entries), err, found[i])
	}
	t.Logf("%d of %d documents have the entries that feedparser finds", same, len(docs))
	if 10*same < 9*len(docs) {
		t.Errorf("only %d of %d documents have the entries that feedparser finds", same, len(docs))
	}
}
