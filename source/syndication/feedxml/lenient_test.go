package feedxml

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// twoColons matches names that XML allows, and not together with namespaces.
var twoColons = regexp.MustCompile(`:[^\s<>="':]*:`)

// checkBodies checks that bodies are well-formed, but for entities that XML does not
// define and XML declarations, of which encoding/xml reads only those of its own version.
func checkBodies(t *testing.T, doc string, entries []Entry) {
	t.Helper()
	for _, e := range entries {
		body := bytes.ReplaceAll(e.Body, []byte("<?xml"), []byte("<?x"))
		d := xml.NewDecoder(bytes.NewReader(ReplaceUndefined(body)))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil && (strings.Contains(err.Error(), "unescaped ]]>") || twoColons.Match(e.Body)) {
				break
			}
			if err != nil {
				t.Fatalf("%q: the body %q is not well-formed: %v", doc, e.Body, err)
			}
		}
	}
}

// What is read of a malformed start tag of the root does not depend on the sizes of reads.
func TestMalformedRootReadEveryWay(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`<a"b:rss version="2.0"><channel><item><guid>1</guid></item></channel></rss>`,
		`<r&:rss version="2.0"><channel><item><guid>1</guid></item></channel></rss>`,
		`<é"é:rss version="2.0"><channel><item><guid>1</guid></item></channel></rss>`,
	} {
		_, _ = readEveryWay(t, doc, Options{Lenient: true})
	}
}

// What is read of markup above its limit does not depend on the sizes of reads.
func TestLargeMarkupReadEveryWay(t *testing.T) {
	t.Parallel()
	const open, end = `<rss version="2.0"><channel><item><guid>0</guid><title>`, `</channel></rss>`
	// A large item makes the buffer large.
	before := open + strings.Repeat("x", 300<<10) + `</title></item>`
	long := strings.Repeat("y", 100<<10)
	for name, tt := range map[string]struct {
		doc  string
		opts Options
	}{
		"a comment":          {before + `<!-- a -- ` + long + `-->` + end, Options{Lenient: true}},
		"an instruction":     {before + `<?1 ` + long + `?>` + end, Options{Lenient: true}},
		"an end tag":         {before + `</wrong ` + long + `>` + end, Options{Lenient: true}},
		"a trailing comment": {open + `</title></item>` + end + `<!-- ` + long[:300] + ` -->`, Options{Limits: Limits{Head: 200}}},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			_, _ = readEveryWay(t, tt.doc, tt.opts)
		})
	}
}

// A repaired root element is at its place in the document.
func TestPositionOfARepairedRoot(t *testing.T) {
	t.Parallel()
	_, err := read(NewReader(strings.NewReader("\n<entry version=2.0 x y z></entry>"), Options{Lenient: true}))
	if !errors.Is(err, ErrNotFeed) || !strings.Contains(err.Error(), "line 2, column 1:") {
		t.Errorf("got %v; want ErrNotFeed at line 2, column 1", err)
	}
}

// Each document has one kind of fault, which a strict reader refuses. It costs a lenient
// reader at most the entry that contains it.
func TestBrokenDocuments(t *testing.T) {
	t.Parallel()
	const (
		open   = `<rss version="2.0"><channel><title>T</title>`
		item1  = `<item><title>A</title><guid>1</guid></item>`
		item3  = `<item><title>C</title><guid>3</guid></item>`
		end    = `</channel></rss>`
		atomIn = `<feed xmlns="http://www.w3.org/2005/Atom">`
	)
	within := func(broken string) string { return open + item1 + broken + item3 + end }
	three := []string{"1", "2", "3"}
	for name, tt := range map[string]struct {
		doc    string
		want   []string
		faults int
		body   string // of the second entry; "" for any
		says   string
	}{
		"nothing": {within(`<item><guid>2</guid></item>`), three, 0, "<item><guid>2</guid></item>", ""},
		"a bare ampersand": {
			within("<item>\n<title>AT&T & co</title><guid>2</guid></item>"), three, 2,
			"<item>\n<title>AT&amp;T &amp; co</title><guid>2</guid></item>", "line 2, column 10: there is a & that is no reference, near",
		},
		"a bare ampersand in a link":       {within(`<item><link>http://x/?a=1&b=2&c</link><guid>2</guid></item>`), three, 2, "<item><link>http://x/?a=1&amp;b=2&amp;c</link><guid>2</guid></item>", ""},
		"a bare ampersand in an attribute": {within(`<item><enclosure url="http://x/?a=1&b=2"/><guid>2</guid></item>`), three, 1, `<item><enclosure url="http://x/?a=1&amp;b=2"/><guid>2</guid></item>`, ""},
		"a bare ampersand in the head":     {`<rss version="2.0"><channel><title>A & B</title>` + item1 + end, []string{"1"}, 1, "", ""},
		"a bare ampersand between items":   {within(`& <item><guid>2</guid></item> a & b`), three, 2, "", ""},
		"an undefined entity":              {within(`<item><title>a&nbsp;b</title><guid>2</guid></item>`), three, 0, "<item><title>a&nbsp;b</title><guid>2</guid></item>", ""},
		"an entity that nobody defines":    {within(`<item><title>a&foo;b</title><guid>2</guid></item>`), three, 0, "<item><title>a&foo;b</title><guid>2</guid></item>", ""},
		"a reference to no character":      {within(`<item><title>a&#0;b&#x1f;</title><guid>2</guid></item>`), three, 2, "<item><title>ab</title><guid>2</guid></item>", ""},
		"a control character":              {within("<item><title>a\x0bb</title><guid>2</guid></item>"), three, 1, "<item><title>ab</title><guid>2</guid></item>", "line 1, column 102: there is the character U+000B"},
		"a control character in a tag":     {within("<it\x01em><guid>2</guid></item>"), three, 1, "", ""},
		"NUL bytes between items":          {within("\x00\x00<item><guid>2</guid></item>\x00"), three, 3, "", ""},
		"a byte that is no UTF-8":          {within("<item><title>caf\xe9</title><guid>2</guid></item>"), three, 1, "<item><title>café</title><guid>2</guid></item>", "windows-1252"},
		"an element that does not end":     {within(`<item><description><p>a<b>b</description><guid>2</guid></item>`), three, 1, `<item><description><p>a<b>b</b></p></description><guid>2</guid></item>`, "b ends with </description"},
		"elements that overlap":            {within(`<item><description><i><b>b</i></b></description><guid>2</guid></item>`), three, 2, `<item><description><i><b>b</b></i></description><guid>2</guid></item>`, ""},
		"an end tag too many":              {within(`<item><description>a</p></description><guid>2</guid></item>`), three, 1, `<item><description>a</description><guid>2</guid></item>`, "without a start tag"},
		"an end tag with another name":     {within(`<item><title>B</titel><guid>2</guid></item>`), three, 2, `<item><title>B</title><guid>2</guid></item>`, ""},
		"an end tag in capitals":           {within(`<item><title>B</TITLE><guid>2</guid></item>`), three, 1, `<item><title>B</title><guid>2</guid></item>`, ""},
		"a title that does not end":        {within(`<item><title>B<guid>2</guid></item>`), three, 1, `<item><title>B</title><guid>2</guid></item>`, "end tag of title is missing"},
		"a title in an item of RDF that does not end": {
			`<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"><channel/><item rdf:about="1"/><item rdf:about="2"><title>B<link>2</link></item></rdf:RDF>`,
			three[:2], 1, "", "end tag of title is missing",
		},
		"an item that does not end":                 {within(`<item><title>B</title><guid>2</guid>`), three, 1, `<item><title>B</title><guid>2</guid></item>`, "end tag of item is missing"},
		"two items that do not end":                 {open + `<item><guid>1</guid>` + `<item><guid>2</guid>` + item3 + end, three, 2, "", ""},
		"no item ends":                              {open + `<item><guid>1</guid>` + `<item><guid>2</guid>` + `<item><guid>3</guid>` + end, three, 3, "", ""},
		"the last item does not end":                {open + item1 + `<item><guid>2</guid>` + end, three[:2], 1, "", ""},
		"an entry that does not end":                {atomIn + `<entry><id>1</id><entry><id>2</id></entry><entry><id>3</id></entry></feed>`, three, 1, "", ""},
		"an end tag of an item too many":            {within(`</item><item><guid>2</guid></item></item>`), three, 2, "", ""},
		"the channel ends too early":                {open + item1 + `</channel><item><guid>2</guid></item>` + item3 + end, three, 1, "", ""},
		"the channel does not end":                  {open + item1 + item3 + `</rss>`, []string{"1", "3"}, 1, "", ""},
		"no channel":                                {`<rss version="2.0">` + item1 + item3 + `</rss>`, []string{"1", "3"}, 1, "", ""},
		"a title of the channel does not end":       {`<rss version="2.0"><channel><title>T` + item1 + item3 + end, []string{"1", "3"}, 1, "", ""},
		"a < by itself":                             {within(`<item><title>1 < 2 <3</title><guid>2</guid></item>`), three, 2, `<item><title>1 &lt; 2 &lt;3</title><guid>2</guid></item>`, ""},
		"a < between items":                         {within(`< <item><guid>2</guid></item><3`), three, 2, "", ""},
		"an attribute without quotes":               {within(`<item><enclosure url=http://x/a type=a/b/><guid>2</guid></item>`), three, 2, `<item><enclosure url="http://x/a" type="a/b"/><guid>2</guid></item>`, ""},
		"an attribute without a value":              {within(`<item><input checked/><guid>2</guid></item>`), three, 1, `<item><input checked="checked"/><guid>2</guid></item>`, ""},
		"an attribute without its last quote":       {within(`<item><a href="http://x/>b</a><guid a="c">2</guid></item>`), three, 1, `<item><a href="http://x/">b</a><guid a="c">2</guid></item>`, ""},
		"an attribute that repeats":                 {within(`<item><a b="1" b="2" c/><guid>2</guid></item>`), three, 2, `<item><a b="1" c="c"/><guid>2</guid></item>`, ""},
		"attributes without a blank":                {within(`<item><a b="1"c='2'/><guid>2</guid></item>`), three, 1, `<item><a b="1" c='2'/><guid>2</guid></item>`, ""},
		"a < in an attribute":                       {within(`<item><a b="1 < 2"/><guid>2</guid></item>`), three, 1, `<item><a b="1 &lt; 2"/><guid>2</guid></item>`, ""},
		"a tag that does not end":                   {within(`<item><a <b>x</b></a><guid>2</guid></item>`), three, 1, `<item><a><b>x</b></a><guid>2</guid></item>`, ""},
		"a faulty tag of an item":                   {within(`<item a=1 b><guid>2</guid></item>`), three, 2, `<item a="1" b="b"><guid>2</guid></item>`, ""},
		"a comment with dashes":                     {within(`<item><!-- a -- b --><guid>2</guid></item>`), three, 1, `<item><guid>2</guid></item>`, ""},
		"a comment with dashes between items":       {within(`<!-- a -- b --><item><guid>2</guid></item>`), three, 1, "", ""},
		"an instruction of PHP":                     {within(`<item><?= 1 ?><guid>2</guid></item>`), three, 1, `<item><guid>2</guid></item>`, ""},
		"a declaration":                             {within(`<item><!DOCTYPE x><guid>2</guid></item><!DOCTYPE x>`), three, 2, `<item><guid>2</guid></item>`, ""},
		"a comment that ends with another":          {within(`<!-- x <item><guid>2</guid></item><!-- y -->`), []string{"1", "3"}, 1, "", ""},
		"a comment in an item that ends in another": {within(`<item><!-- x <guid>2</guid></item><item><guid>2a</guid><!-- y --><guid>2b</guid></item>`), []string{"1", "2b", "3"}, 1, "", ""},
		"truncated in a comment with items":         {open + item1 + `<!-- x <item><guid>2</guid></item><item><guid>3</guid></item>`, three[:1], 1, "", ""},
		"truncated between items":                   {open + item1 + "\n", three[:1], 1, "", "the document ends"},
		"truncated in an item":                      {open + item1 + `<item><guid>2</guid>`, three[:1], 1, "", "1 entries left out"},
		"truncated in a CDATA section":              {open + item1 + `<item><title><![CDATA[a`, three[:1], 1, "", ""},
		"truncated in a tag":                        {open + item1 + `<item`, three[:1], 1, "", ""},
		"truncated in an end tag":                   {open + item1 + item3 + `</chan`, []string{"1", "3"}, 1, "", ""},
		"truncated in a reference":                  {open + item1 + `<item><title>a &am`, three[:1], 1, "", ""},
		"truncated in an item behind one":           {open + item1 + `<item><guid>2</guid><item><guid>3</guid>`, three[:2], 2, "", ""},
		"text before the prolog":                    {"Notice: x\n" + `<?xml version="1.0"?>` + open + item1 + end, three[:1], 1, "", "there is content before the root element"},
		"warnings of PHP before the prolog":         {"<br />\n<b>Warning</b>: x & y in <b>/a.php</b> on line <b>1</b><br />\n" + `<?xml version="1.0"?>` + open + item1 + end, three[:1], 1, "", ""},
		"a comment of a template before it":         {"-->\n" + open + item1 + end, three[:1], 1, "", ""},
		"a faulty root":                             {`<rss version=2.0 xmlns:a="urn:x&y"><channel>` + item1 + end, three[:1], 2, "", ""},
		"a faulty channel":                          {`<rss version="2.0"><channel a=b>` + item1 + end, three[:1], 1, "", ""},
		"a DOCTYPE of HTML":                         {`<!DOCTYPE html><rss version="2.0"><channel>` + item1 + end, three[:1], 0, "", ""},
		"more control characters than a buffer has": {open + item1 + strings.Repeat("\x01", 2<<20) + item3 + end, []string{"1", "3"}, 2 << 20, "", "U+0001"},
		"an encoding that nobody knows":             {`<?xml version="1.0" encoding="x-unknown"?>` + open + item1 + end, three[:1], 1, "", "x-unknown"},
		"windows-1252 labelled UTF-8":               {`<?xml version="1.0" encoding="utf-8"?>` + open + "<item><guid>\x93caf\xe9\x94</guid></item>" + end, []string{"“café”"}, 3, "", ""},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			entries, err := readEveryWay(t, tt.doc, Options{Lenient: true})
			must.Succeed(t, err)
			r := NewReader(strings.NewReader(tt.doc), Options{Lenient: true})
			if _, err := read(r); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ids(entries), tt.want) {
				t.Errorf("got %q, want %q: %s", ids(entries), tt.want, r.Faults())
			}
			if n := r.Faults().Count; n != tt.faults {
				t.Errorf("%d faults, want %d: %s", n, tt.faults, r.Faults())
			}
			if len(entries) > 1 && tt.body != "" && string(entries[1].Body) != tt.body {
				t.Errorf("the body is %s, want %s", entries[1].Body, tt.body)
			}
			if !strings.Contains(r.Faults().String(), tt.says) {
				t.Errorf("the faults are %s, without %q", r.Faults(), tt.says)
			}
			checkBodies(t, tt.doc, entries)
			_, strict := read(NewReader(strings.NewReader(tt.doc), Options{}))
			if refused := strict != nil; tt.faults > 0 && !refused {
				t.Error("a strict reader takes it too")
			} else if refused && r.Faults().Err() == nil && tt.faults > 0 {
				t.Errorf("a strict reader says %v", strict)
			}
		})
	}
}
