package serve

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
)

// python returns the interpreter, and skips the test where there is none or a module
// is missing. REQUIRE_PYTHON=1 makes it fail there.
func python(t *testing.T, modules string) string {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import "+modules).Run(); err != nil {
		if os.Getenv("REQUIRE_PYTHON") != "" {
			t.Fatalf("python3 cannot import %s: %v", modules, err)
		}
		t.Skipf("python3 cannot import %s", modules)
	}
	return "python3"
}

// expatErrors parses documents with expat, in the way that feedparser and Python's
// SAX do it and in that of ElementTree, and returns the error of each.
func expatErrors(t *testing.T, docs []string) (errs []string) {
	t.Helper()
	const program = `
import json, sys, xml.parsers.expat
out = []
for doc in json.load(sys.stdin):
    out.append("")
    for separator in " }":
        parser = xml.parsers.expat.ParserCreate(None, separator)
        parser.namespace_prefixes = True
        parser.StartElementHandler = lambda name, attrs: None
        try:
            parser.Parse(doc.encode("utf-8", "surrogatepass"), True)
        except Exception as e:
            out[-1] += repr(e)
json.dump(out, sys.stdout)`
	pythonSays(t, "xml.parsers.expat", program, docs, &errs)
	return errs
}

// pieces are combined into hostile and broken bodies.
var pieces = []string{
	"<?p&x?>", "<?p x?>", "<?xml version='1.0'?>", "<?XML x?>", "<?b:c x?>", "<?p?>", "<?p &#1;?>",
	"<a>", "</a>", "<a/>", "<b c='1'>", "</b>", "<b c='1'd='2'/>", "<b c='<'/>", "<b c=\"'\n\t>\"/>", "<b c='&quot;&#10;'/>", "<b c='&#0;'/>", "<b c='1' c='2'/>",
	"<x:a xmlns:x='urn:x'/>", "<x:a/>", "<x:a xmlns:x='urn:a b'/>", "<x:a xmlns:x=' http://x.example/ '/>", "<x:a xmlns:x=''/>", "<a xmlns='urn:d'><e/></a>", "<a xmlns=''/>",
	"<a xmlns='a\u00a0b'/>", "<a xmlns='urn:a}b c'/>", "<x:a xmlns:x='{\\^`|&quot;&lt;>\u0080\u00e9%'/>", "<x:a xmlns:x='a&#x2028;b'/>", "<a xmlns:b='urn:b' xmlns:c='urn:b' b:d='' c:d=''/>", "<a xmlns:xml='http://www.w3.org/XML/1998/namespace' xml:lang='&lt;'/>",
	"<a xml:foo:bar=''/>", "<:a/>", "<a:/>", "<a:1 xmlns:a='urn:a'/>", "<\u00e9/>", "<\u2070a/>", "<a\u0300/>", "<a \u00b7b=''/>", "<_/>", "<a-b.c/>", "<\U0001f600/>",
	"text", " ", "\n", "\r", "&amp;", "&lt;", "&nbsp;", "&eacute;", "&foo;", "&", "&#1;", "&#x1F600;", "&#xD800;", "&#xFFFE;", "&#x110000;", "]]>", "<![CDATA[<a>&]]>", "<![CDATA[",
	"<!-- x -->", "<!-- -- -->", "<!--\x01-->", "<!DOCTYPE a>", "<!DOCTYPE a [<!ENTITY b 'c'>]>", "<!X>", "\x01", "\x00", "\x7f", "\u0085", "\ufffe", "\ufeff", "\xff", "\xed\xa0\x80", "\u2028",
	"<title>t</title>", "<title type='xhtml'><div xmlns='http://www.w3.org/1999/xhtml'><br/>&#160;</div></title>", "<id>1</id>", "<id/>", "<guid>1</guid>", "<guid> </guid>", "<link>x</link>", "<link href='/'/>",
	"<updated>2026-01-01</updated>", "<author><name>&#9;</name></author>", "<description>&lt;p>&amp;amp;</description>", "<category term='\t'/>", "<m:b xmlns:m='urn:m'><m:c>1</m:c></m:b>", "<content type='xhtml'><x:div xmlns:x='http://www.w3.org/1999/xhtml'>1</x:div></content>",
}

// hostileBody returns the n-th body, and its headers.
func hostileBody(random *rand.Rand) (body string, header []feed.Field) {
	var b strings.Builder
	for range random.IntN(5) {
		b.WriteString(pieces[random.IntN(len(pieces))])
	}
	body = b.String()
	field := func(name, value string) { header = append(header, feed.Field{Name: name, Value: value}) }
	switch random.IntN(6) {
	case 0:
		body = `<entry xmlns="http://www.w3.org/2005/Atom">` + body + "</entry>"
	case 1:
		body = `<item>` + body + "</item>"
	case 2:
		body = `<a:entry xmlns:a="http://www.w3.org/2005/Atom" xmlns="urn:x">` + body + "</a:entry>"
	case 3:
		body = `<item xmlns="http://purl.org/rss/1.0/" xmlns:a="http://www.w3.org/2005/Atom" a:b="1">` + body + "</item>"
	case 4:
		body = `<entry xmlns="http://purl.org/atom/ns#" version="0.3">` + body + "</entry>"
	}
	switch random.IntN(5) {
	case 0:
		field("Content-Type", "text/html")
	case 1:
		field("Content-Type", "a/b+xml")
	case 2:
		field("Content-Type", pieces[random.IntN(len(pieces))]+"/"+pieces[random.IntN(len(pieces))])
	case 3:
		field("Content-Type", "text/"+strings.Repeat("x", 70_000))
	}
	for _, name := range []string{"Feed-Title", "Feed-Id", "Feed-Author", "Content-Location"} {
		if random.IntN(4) == 0 {
			field(name, pieces[random.IntN(len(pieces))]+pieces[random.IntN(len(pieces))])
		}
	}
	if random.IntN(50) == 0 {
		field("Feed-Title", strings.Repeat("&<", 40_000))
	}
	return body, header
}

// Whatever a message has, a served document is well-formed for a parser that is not
// Go's.
func TestServedDocumentsAreWellFormedForExpat(t *testing.T) {
	t.Parallel()
	python(t, "xml.parsers.expat")
	var docs, bodies []string
	const messages = 6000
	random := rand.New(rand.NewPCG(1, 2))
	topic := newTopic()
	for i := range messages {
		body, header := hostileBody(random)
		id := fmt.Sprintf("%d %s", i, pieces[random.IntN(len(pieces))])
		if i%997 == 0 {
			id += strings.Repeat("<&\x01", 30_000)
		}
		r := messageOf(id, []feed.Operation{feed.Put, feed.Put, feed.Patch, feed.Delete}[random.IntN(4)], noon, body, header...)
		if random.IntN(3) > 0 {
			r.Header = append(r.Header, feed.Field{Name: "Feedbridge-Mark", Value: "1"})
		}
		topic.add(r)
		bodies = append(bodies, body)
	}
	for _, format := range []Format{Atom, RSS} {
		s := serveTopic(t, topic, as(format), sized(1), func(c *Config) { c.Title = "<&\x01" })
		for i := range messages {
			docs = append(docs, s.get(t, fmt.Sprintf("/pages/e0-1-%d", i)).want(t, 200).body)
		}
	}
	// expat refuses these, and encoding/xml does not.
	for i, err := range expatErrors(t, []string{"<a><?p&x?></a>", "<x:a xmlns:x='a b'/>", "<x:a xmlns:x='a}b'/>", "<a b='<'/>"}) {
		if err == "" {
			t.Fatalf("expat takes document %d", i)
		}
	}
	bad := 0
	for i, err := range expatErrors(t, docs) {
		if err != "" && bad < 10 {
			bad++
			t.Errorf("%s\nof the body %q\nin %.3000s", err, bodies[i%messages], docs[i])
		}
	}
}
