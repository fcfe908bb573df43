package feedxml

import (
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	based := func(base, content string) string {
		return strings.Replace(atomFeed(content), "<feed ", `<feed xml:base="`+base+`" `, 1)
	}
	tests := []struct {
		name, doc string
		want      []Link
		odd       []string
	}{
		{
			"all that a link can have", atomFeed(`<link rel="enclosure" type="audio/mpeg" hreflang=" de " length="1337" href="http://ex/a&amp;b" title="a &lt; b"/>`),
			[]Link{{Rel: "enclosure", Href: "http://ex/a&b", Raw: "http://ex/a&b", Type: "audio/mpeg"}},
			nil,
		},
		{"line ends in an attribute", atomFeed("<link href='http://ex/' type='a\r\nb\tc&#10;d'/>"), []Link{{Rel: "alternate", Href: "http://ex/", Raw: "http://ex/", Type: "a b c\nd"}}, nil},
		{"no rel", atomFeed(`<link href="x"/>`), []Link{{Rel: "alternate", Href: "http://x.example/a/x", Raw: "x"}}, nil},
		{"no href", atomFeed(`<link rel="next"/>`), nil, nil},
		{"an empty href", atomFeed(`<link rel="self" href=""/>`), []Link{{Rel: "self", Href: docURL}}, nil},
		{"case 39: a base without a slash at its end", based("http://ex/base", `<link rel="prev-archive" href="2003/11/index.atom"/>`), []Link{{Rel: "prev-archive", Href: "http://ex/2003/11/index.atom", Raw: "2003/11/index.atom"}}, nil},
		{"case 39: a base with one", based("http://ex/base/", `<link rel="prev-archive" href="2003/11/index.atom"/>`), []Link{{Rel: "prev-archive", Href: "http://ex/base/2003/11/index.atom", Raw: "2003/11/index.atom"}}, nil},
		{"case 40: relative to where the document was found", atomFeed(`<link rel="prev-archive" href="2003/11/index.atom"/>`), []Link{{Rel: "prev-archive", Href: "http://x.example/a/2003/11/index.atom", Raw: "2003/11/index.atom"}}, nil},
		{"bases within bases", based("b/", `<link xml:base="c/" rel="next" href="d"/>`), []Link{{Rel: "next", Href: "http://x.example/a/b/c/d", Raw: "d"}}, nil},
		{"a base that starts anew", based("http://ex/", `<link xml:base="//y/" rel="next" href="d"/>`), []Link{{Rel: "next", Href: "http://y/d", Raw: "d"}}, nil},
		{"case 41: with the prefix that Atom allows", atomFeed(`<link rel="http://www.iana.org/assignments/relation/prev-archive" href="http://ex/"/>`), []Link{{Rel: "prev-archive", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"case 41: in capitals", atomFeed(`<link rel=" PREV-ARCHIVE" href="http://ex/"/>`), []Link{{Rel: "prev-archive", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"a URI keeps its case", atomFeed(`<link rel="http://ex/Rel" href="http://ex/"/>`), []Link{{Rel: "http://ex/Rel", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"several relations", atomFeed(`<link rel="self First" href="http://ex/"/>`), []Link{{Rel: "self", Href: "http://ex/", Raw: "http://ex/"}, {Rel: "first", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"several relations, with the prefix", atomFeed(`<link rel="http://www.iana.org/assignments/relation/next LAST" href="http://ex/"/>`), []Link{{Rel: "next", Href: "http://ex/", Raw: "http://ex/"}, {Rel: "last", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"a reference beside white space in rel", atomFeed(`<link rel="related &amp; via" href="http://ex/"/>`), []Link{{Rel: "related", Href: "http://ex/", Raw: "http://ex/"}, {Rel: "&", Href: "http://ex/", Raw: "http://ex/"}, {Rel: "via", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"a reference to a reference in rel", atomFeed(`<link rel="a &amp;lt;" href="http://ex/"/>`), []Link{{Rel: "a", Href: "http://ex/", Raw: "http://ex/"}, {Rel: "&lt;", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"case 42: behind the last entry", atomFeed(`<entry><id>1</id></entry><link rel="prev-archive" href="http://ex/"/>`), []Link{{Rel: "prev-archive", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"case 43: in an entry", atomFeed(`<entry><id>1</id><link rel="prev-archive" href="http://ex/"/><source><link rel="prev-archive" href="http://ex/"/></source></entry>`), nil, nil},
		{"case 43: in an element of the feed", atomFeed(`<author><link rel="prev-archive" href="http://ex/"/></author>`), nil, nil},
		{"case 44: without entries", atomFeed(`<link rel="prev-archive" href="http://ex/"/>`), []Link{{Rel: "prev-archive", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"of another namespace", atomFeed(`<link xmlns="urn:x" rel="next" href="http://ex/"/>`), nil, nil},
		{"case 61: in RSS", rssFeed(`<atom:link rel="prev-archive" href="http://ex/"/>`), []Link{{Rel: "prev-archive", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"case 61: in RSS, with another prefix", rssFeed(`<a10:link xmlns:a10="http://www.w3.org/2005/Atom" rel="prev-archive" href="http://ex/"/>`), []Link{{Rel: "prev-archive", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"case 61: in RSS, without a prefix", rssFeed(`<link xmlns="http://www.w3.org/2005/Atom" rel="prev-archive" href="http://ex/"/>`), []Link{{Rel: "prev-archive", Href: "http://ex/", Raw: "http://ex/"}}, nil},
		{"a base in RSS", strings.Replace(rssFeed(`<link>l</link>`), "<rss", `<rss xml:base="http://ex/b/"`, 1), []Link{{Rel: "alternate", Href: "http://ex/b/l", Raw: "l"}}, nil},
		{"a hub", atomFeed(`<link rel="hub" href="http://hub/"/>`), []Link{{Rel: "hub", Href: "http://hub/", Raw: "http://hub/"}}, nil},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			_, meta, odd := mustRead(t, tt.doc)
			must.Match(t, "", tt.want, meta.Links)
			must.Match(t, "", tt.odd, kinds(odd))
		})
	}
	parallel.Run(t, "without a URL", func(t *testing.T) {
		r := NewReader(strings.NewReader(atomFeed(`<link rel="next" href="2"/><link rel="self" href="http://ex/1"/>`)), Options{})
		if _, err := read(r); err != nil {
			t.Fatal(err)
		}
		want := []Link{{Rel: "next", Raw: "2"}, {Rel: "self", Href: "http://ex/1", Raw: "http://ex/1"}}
		must.Match(t, "", want, r.Meta().Links)
		must.Match(t, "", []string{kindBadHref}, kinds(r.Violations()))
	})
	parallel.Run(t, "of entries", func(t *testing.T) {
		for content, want := range map[string]string{
			`<link rel="edit" href="/2"/><link href="1"/><link href="3"/>`: "http://x.example/a/b/e/1",
			`<link href=""/><link href="3"/>`:                              "http://x.example/a/b/e/",
			`<link xml:base="f/" rel="related alternate" href="1"/>`:       "http://x.example/a/b/e/f/1",
			`<link rel=""/><link rel="" href="4"/>`:                        "http://x.example/a/b/e/4",
		} {
			entries, _, _ := mustRead(t, based("b/", `<entry xml:base="e/">`+content+`</entry>`))
			if entries[0].ID != want || entries[0].IDFrom != FromLink {
				t.Errorf("%s: got %q from %s, want %q", content, entries[0].ID, entries[0].IDFrom, want)
			}
		}
	})
}

func TestLinkOfSeveral(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, content string
		want          string
		count         int
	}{
		{"one", `<link rel="next" href="http://ex/1" type="text/html"/>`, "http://ex/1", 1},
		{"the first", `<link rel="next" href="http://ex/1"/><link rel="next" href="http://ex/2"/>`, "http://ex/1", 2},
		{"the first that can be a feed", `<link rel="next" href="http://ex/1" type="text/html"/><link rel="next" href="http://ex/2" type="application/atom+xml; type=feed"/><link rel="next" href="http://ex/3"/>`, "http://ex/2", 3},
		{"none", `<link rel="prev" href="http://ex/1"/>`, "", 0},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			_, meta, _ := mustRead(t, atomFeed(tt.content))
			if got, n := meta.Link("next"); got.Href != tt.want || n != tt.count {
				t.Errorf("got %q, %d", got.Href, n)
			}
		})
	}
}
