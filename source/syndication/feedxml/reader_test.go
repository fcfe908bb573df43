package feedxml

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestDocumentsThatAreNone(t *testing.T) {
	t.Parallel()
	const open = `<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1</id></entry>`
	one := []string{"1"}
	tests := []struct {
		name, doc string
		want      error
		says      string
		before    []string // the ids that were read before
	}{
		{"nothing", "", ErrTruncated, "empty", nil},
		{"white space", " \n", ErrTruncated, "empty", nil},
		{"case 11: HTML", "<!DOCTYPE html>\n<html><body><p>Sorry</body></html>", ErrNotFeed, "an HTML page", nil},
		{"case 11: HTML of any kind", "<!doctype HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\"><p>", ErrNotFeed, "an HTML page", nil},
		{"case 34: HTML without a declaration", "\n<HTML lang=en><p>", ErrNotFeed, "an HTML page", nil},
		{"XHTML", `<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"/>`, ErrNotFeed, "an HTML page", nil},
		{"JSON Feed without items", ` {"version": "https://jsonfeed.org/version/1.1"}`, ErrNotFeed, `JSON of another form`, nil},
		{"JSON of something else", ` {"items": [{"id": "1"}]}`, ErrNotFeed, "JSON without a version", []string{"1"}},
		{"JSON Feed of an unknown version", ` {"version": "https://jsonfeed.org/version/2", "items": []}`, ErrNotFeed, "version/2", nil},
		{"a JSON Feed that breaks off", `{"version": "https://jsonfeed.org/version/1.1", "items": [{"id": "1"}, {"id": "2`, ErrTruncated, "breaks off", []string{"1"}},
		{"JSON with a trailing comma", `{"version": "https://jsonfeed.org/version/1.1", "items": [{"id": "1"},]}`, ErrMalformed, "comma", []string{"1"}},
		{"JSON with a comment", `{"version": "https://jsonfeed.org/version/1.1", /* x */ "items": []}`, ErrMalformed, "line 1", nil},
		{"JSON with NUL", "{\"version\": \"https://jsonfeed.org/version/1.1\", \"items\": [{\"id\": \"1\x00\"}]}", ErrMalformed, "not valid", nil},
		{"JSON of a great depth", `{"version": "https://jsonfeed.org/version/1.1", "items": [` + strings.Repeat("[", 10_000), ErrTooLarge, "deeper than 1000: the document is above a limit that no key changes", nil},
		{"text", "Service unavailable", ErrNotFeed, "Service unavailable", nil},
		{"another root", `<opml version="2.0"/>`, ErrNotFeed, "opml in no namespace", nil},
		{"HTML without a root", "<head><title>T</title></head><p>", ErrNotFeed, "an HTML page", nil},
		{"a part of HTML", "\n<!-- x --><P>Service unavailable", ErrNotFeed, "an HTML page", nil},
		{"HTML that begins with a script", "<script src=x async></script>", ErrNotFeed, "an HTML page", nil},
		{"HTML behind a comment", "<!-- x --><html><p>", ErrNotFeed, "an HTML page", nil},
		{
			"HTML that announces a feed", `<!doctype html><meta charset=utf-8><link rel=stylesheet href=/x><LINK href="/feed?a=1&amp;token=s" type=application/atom+xml rel="home Alternate">`,
			ErrNotFeed, `an HTML page, which announces the feed http://shop.example/feed?a=1&token=***; set url to that`, nil,
		},
		{"HTML with another alternate", `<html><link rel="alternate" hreflang="de" href="/de"><link rel="alternate" type="application/rss+xml">`, ErrNotFeed, "an HTML page, near", nil},
		{"no entry, and no namespace", `<feed><product/></feed>`, ErrNotFeed, "feed in no namespace", nil},
		{"a feed in a namespace of its own", `<feed xmlns="http://www.w3.0rg/2005/Atom"/>`, ErrNotFeed, "http://www.w3.0rg/2005/Atom", nil},
		{"a root with an undeclared prefix", `<atom:feed/>`, ErrNotFeed, "not declared", nil},
		{"RSS without a channel", `<rss version="2.0"></rss>`, ErrNotFeed, "no channel", nil},
		{"RDF without a channel", `<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/>`, ErrNotFeed, "no channel", nil},

		{"case 10: cut in an entry", open + "<entry><id>2</id>", ErrTruncated, "", one},
		{"case 10: cut before the end tag", open, ErrTruncated, "", one},
		{"case 10: cut in the end tag", open + "</feed", ErrTruncated, "", one},
		{"cut within a character", open + "<title>\xc3", ErrTruncated, "", one},
		{"an end tag too many in an entry", open + "<entry></b></entry></feed>", ErrMalformed, "entry ends with </b", one},
		{"an element that does not end", open + "<entry><b></entry></feed>", ErrMalformed, "b ends with </entry", one},
		{"an end tag of the same length", open + "<entry></entri></feed>", ErrMalformed, "entry ends with </entri", one},
		{"attributes without a blank between them", open + `<entry a="1"b="2"/></feed>`, ErrMalformed, "has an unexpected", one},
		{"another end tag", open + "</feeds>", ErrMalformed, "feed ends with </feeds", one},
		{"an ampersand by itself", open + "<entry>AT&T</entry></feed>", ErrMalformed, "&", one},
		{"an ampersand behind a reference", open + "<entry>&lt;&T</entry></feed>", ErrMalformed, "&", one},
		{"an ampersand close to a reference", open + "<entry>&gt;a&T</entry></feed>", ErrMalformed, "&", one},
		{"a reference with a blank", open + "<entry>&a b;</entry></feed>", ErrMalformed, "&", one},
		{"a reference that begins with a digit", open + "<entry>&1;</entry></feed>", ErrMalformed, "&", one},
		{"an ampersand in a value", open + "<entry a='x&y'/></feed>", ErrMalformed, "&", one},
		{"an attribute without quotes", open + "<entry a=b/></feed>", ErrMalformed, "no quotes", one},
		{"an attribute without a value", open + "<entry a/></feed>", ErrMalformed, "no value", one},
		{"a tag in a tag", open + "<entry <a></entry></feed>", ErrMalformed, "has an unexpected", one},
		{"a < in a value", open + "<entry a='<'/></feed>", ErrMalformed, "has a <", one},
		{"a < by itself", open + "<entry>1 < 2</entry></feed>", ErrMalformed, "begins no tag", one},
		{"dashes in a comment", open + "<!-- -- --></feed>", ErrMalformed, "--", one},
		{"a DOCTYPE in the feed", open + "<!DOCTYPE feed></feed>", ErrMalformed, "declaration", one},
		{"CDATA before the root", "<![CDATA[]]><feed/>", ErrMalformed, "before the root", nil},
		{"an end tag before the root", "</feed>", ErrMalformed, "", nil},

		{"case 124b: a second root", open + "</feed>" + open + "</feed>", ErrTrailing, "", one},
		{"case 124b: text behind the root", open + "</feed>\n<!-- x -->done", ErrTrailing, "done", one},
		{"case 124b: an end tag behind the root", open + "</feed></feed>", ErrTrailing, "", one},
		{"case 124b: NUL behind the root", open + "</feed>\x00", ErrTrailing, "", one},
		{"case 124b: half a character behind the root", open + "</feed>\xc3", ErrTrailing, "", one},
		{"case 124b: half a comment behind the root", open + "</feed><!-- ", ErrTrailing, "", one},
		{"case 124b: CDATA behind the root", open + "</feed><![CDATA[]]>", ErrTrailing, "", one},
		{"comments behind the root", open + "</feed>\n<!-- x --><?pi?>\n", nil, "", one},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			options := Options{URL: "http://shop.example/a/b"}
			entries, err := readEveryWay(t, tt.doc, options)
			if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v", err)
			}
			if options.Lenient = true; strings.Contains(tt.says, "HTML") {
				if _, err := readEveryWay(t, tt.doc, options); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("leniently: got %v", err)
				}
			}
			must.Match(t, "", tt.before, ids(entries))
		})
	}
}

func TestProlog(t *testing.T) {
	t.Parallel()
	const feed = `<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1</id></entry></feed>`
	tests := []struct {
		name, prolog string
		odd          []string
	}{
		{"case 124: XML 1.1", `<?xml version="1.1" encoding="UTF-8" standalone='yes'?>`, nil},
		{"case 124: a byte order mark", "\ufeff<?xml version='1.0'?>", nil},
		{"a stylesheet and comments", "<?xml version='1.0'?><?xml-stylesheet href='x'?>\n<!-- <feed> -->", nil},
		{"white space before the declaration", "\n<?xml version='1.0'?>", []string{kindLateDeclaration}},
		{"a subset with all that may confuse", `<!DOCTYPE feed [<!-- ]> " --><!ENTITY a "]>"><!ELEMENT feed ANY>]>`, nil},
		{"a subset that confuses encoding/xml", `<!DOCTYPE feed [<?pi ]>?>]>`, nil},
		{"the DTD of Netscape", `<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN" "http://my.netscape.com/publish/formats/rss-0.91.dtd">`, nil},
		{"another version", `<?xml version="2.0"?>`, nil},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			entries, _, odd := mustRead(t, tt.prolog+feed)
			must.Match(t, "", []string{"1"}, ids(entries))
			must.Match(t, "", tt.odd, kinds(odd))
		})
	}
}

func TestErrorsOfTheUnderlyingReader(t *testing.T) {
	t.Parallel()
	cut := errors.New("connection reset")
	for _, doc := range []string{"", "<", "<feed", seeds[0][:60], strings.TrimSuffix(seeds[0], "</feed>"), seeds[0], seeds[0] + "<!-- "} {
		r := NewReader(io.MultiReader(strings.NewReader(doc), iotest.ErrReader(cut)), Options{})
		_, err := read(r)
		if !errors.Is(err, cut) {
			t.Errorf("%q: got %v", doc, err)
		}
		if _, again := r.Next(); !errors.Is(again, cut) {
			t.Errorf("%q: the second time: %v", doc, again)
		}
	}
}

func TestDetect(t *testing.T) {
	t.Parallel()
	for i, doc := range seeds {
		root := doc[:strings.Index(doc, ">")+1]
		if i == 1 {
			root = doc[:strings.Index(doc, "x/\">")+4]
		}
		format, err := Detect(strings.NewReader(root), Options{})
		if err != nil {
			t.Errorf("%q: %v", root, err)
		}
		for n := range len(root) {
			if got, err := Detect(strings.NewReader(root[:n]), Options{}); got != "" || !errors.Is(err, ErrTruncated) {
				t.Fatalf("%q of %s: got %q, %v", root[:n], format, got, err)
			}
		}
	}
	if _, err := Detect(strings.NewReader("--boundary\r\n"), Options{ContentType: "multipart/mixed"}); !errors.Is(err, ErrNotFeed) {
		t.Errorf("got %v", err)
	}
}
