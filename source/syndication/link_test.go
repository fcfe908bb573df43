package syndication

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
			[]Link{{Rel: "enclosure", Href: "http://ex/a&b", Raw: "http://ex/a&b", Type: "audio/mpeg", Title: "a < b", Lang: "de", Length: 1337}},
			nil,
		},
		{"line ends in a title", atomFeed("<link href='http://ex/' title='a\r\nb\tc&#10;d'/>"), []Link{{Rel: "alternate", Href: "http://ex/", Raw: "http://ex/", Title: "a b c\nd"}}, nil},
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
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, meta, odd := mustRead(t, tt.doc)
			if diff := cmp.Diff(tt.want, meta.Links); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.odd, kinds(odd)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("without a URL", func(t *testing.T) {
		t.Parallel()
		r := NewReader(strings.NewReader(atomFeed(`<link rel="next" href="2"/><link rel="self" href="http://ex/1"/>`)), Options{})
		if _, err := read(r); err != nil {
			t.Fatal(err)
		}
		want := []Link{{Rel: "next", Raw: "2"}, {Rel: "self", Href: "http://ex/1", Raw: "http://ex/1"}}
		if diff := cmp.Diff(want, r.Meta().Links); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{BadHref}, kinds(r.Violations())); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("of entries", func(t *testing.T) {
		t.Parallel()
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
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, meta, _ := mustRead(t, atomFeed(tt.content))
			if got, n := meta.Link("next"); got.Href != tt.want || n != tt.count {
				t.Errorf("got %q, %d", got.Href, n)
			}
		})
	}
}

func TestDialects(t *testing.T) {
	t.Parallel()
	link := func(rels ...string) string {
		var b strings.Builder
		for _, rel := range rels {
			b.WriteString(`<link rel="` + rel + `" href="http://ex/` + rel + `"/>`)
		}
		return b.String()
	}
	tests := []struct {
		name, content string
		want          Dialect
		deletes       bool
		odd           []string
	}{
		{"complete", "<fh:complete/>", Complete, true, nil},
		{"case 14: complete with next", "<fh:complete/>" + link("next"), Complete, false, []string{MixedDialects}},
		{"case 14: complete with previous", "<fh:complete/>" + link("previous"), Complete, false, []string{MixedDialects}},
		{"case 14: complete with first", "<fh:complete/>" + link("first"), Complete, false, []string{MixedDialects}},
		{"case 14: complete with last", "<fh:complete/>" + link("last"), Complete, false, []string{MixedDialects}},
		{"case 14: complete with prev-archive", "<fh:complete/>" + link("prev-archive"), Complete, false, []string{MixedDialects}},
		{"case 14: complete with next-archive", "<fh:complete/>" + link("next-archive"), Complete, false, []string{MixedDialects}},
		{"complete archive", "<fh:complete/><fh:archive/>", Complete, true, nil},
		{"case 15: current is self", `<fh:complete/><link rel="self" href="http://ex/1"/><link rel="current" href="http://ex/1"/>`, Complete, true, nil},
		{"case 15: current is not self", `<fh:complete/><link rel="self" href="http://ex/1"/><link rel="current" href="http://ex/2"/>`, Complete, true, []string{CurrentNotSelf}},
		{"complete and incremental", "<fh:complete/><fh:incremental>true</fh:incremental>", Incremental, false, []string{MixedDialects, NoHistory}},
		{"case 78: draft 00, complete", "<fh:Stateful> 0 </fh:Stateful>", Complete, true, nil},
		{"case 84: draft 00, complete with fh:prev", "<fh:stateful>0</fh:stateful><fh:prev>http://ex/1</fh:prev>", Complete, true, []string{MixedDialects}},
		{"case 87: draft 04, complete", "<fh:incremental>false</fh:incremental>", Complete, true, nil},
		{"case 87: draft 04, incremental", "<fh:incremental>true</fh:incremental>", Incremental, false, []string{NoHistory}},
		{"case 83: a flag that is none", "<fh:stateful>maybe</fh:stateful>", Window, false, nil},
		{"archived", link("prev-archive"), Archived, false, nil},
		{"archived, the oldest", "<fh:archive/>", Archived, false, nil},
		{"case 45: an archive", "<fh:archive/>" + link("current", "next-archive"), Archived, false, nil},
		{"archived and paged", link("prev-archive", "next"), Archived, false, nil},
		{"case 86: fh:prev", "<fh:prev>http://ex/1</fh:prev>", ArchivedElement, false, nil},
		{"case 79: draft 00", "<fh:stateful>1</fh:stateful>" + link("this", "prev"), Snapshots, false, nil},
		{"PaceFeedState", link("this", "prev"), Snapshots, false, nil},
		{"case 93: prev without this", link("prev"), Paged, false, nil},
		{"paged", link("next"), Paged, false, nil},
		{"case 74: without next", link("first", "last", "previous"), Paged, false, nil},
		{"case 88: draft 05 looks paged", link("previous", "current"), Paged, false, nil},
		{"window", link("self", "alternate", "hub"), Window, false, nil},
		{"two links of a kind", link("next") + `<link rel="next" href="http://ex/b"/>`, Paged, false, []string{RepeatedLink}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, meta, _ := mustRead(t, atomFeed(tt.content))
			got, deletes, odd := meta.Dialect()
			if got != tt.want || deletes != tt.deletes {
				t.Errorf("got %s, %v", got, deletes)
			}
			if diff := cmp.Diff(tt.odd, kinds(odd)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
