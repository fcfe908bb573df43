package feedxml

import (
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestFormats(t *testing.T) {
	t.Parallel()
	const rdfRoot = `<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="`
	tests := []struct {
		name, doc string
		want      Format
		version   string
		ids       []string
	}{
		{"Atom 1.0", `<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1</id></entry></feed>`, Atom, "", []string{"1"}},
		{"Atom 1.0 with a prefix", `<a:feed xmlns:a="http://www.w3.org/2005/Atom"><a:entry><a:id>1</a:id></a:entry><entry><id>2</id></entry></a:feed>`, Atom, "", []string{"1"}},
		{"white space in a namespace", `<feed xmlns=" http://www.w3.org/2005/Atom
"><entry><id>1</id></entry></feed>`, Atom, "", []string{"1"}},
		{"Atom 0.3", `<feed version="0.3" xmlns="http://purl.org/atom/ns#"><entry><id>1</id></entry></feed>`, Atom, "", []string{"1"}},
		{"a draft of Atom", `<feed xmlns="http://purl.org/atom/ns#draft-ietf-atompub-format-09"><entry><id>1</id></entry></feed>`, Atom, "", []string{"1"}},
		{"case 92: a draft with a head", `<feed xmlns="http://purl.org/atom/ns#draft-ietf-atompub-format-01"><head><id>f</id></head><entry><id>1</id></entry></feed>`, Atom, "", []string{"1"}},
		{"an entry by itself", `<entry xmlns="http://www.w3.org/2005/Atom"><id>1</id></entry>`, Atom, "", []string{"1"}},
		{"case 104: a tombstone by itself", `<x:deleted-entry xmlns:x="http://purl.org/atompub/tombstones/1.0" ref="1" when="2026-01-01T00:00:00Z"/>`, Atom, "", []string{"1"}},
		{"RSS 2.0", `<rss version="2.0"><channel><item><guid>1</guid></item></channel></rss>`, RSS, "2.0", []string{"1"}},
		{"case 124: RSS 0.91 with its DOCTYPE", `<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN" "http://my.netscape.com/publish/formats/rss-0.91.dtd"><rss version="0.91"><channel><item><link>http://x/1</link></item></channel></rss>`, RSS, "0.91", []string{"http://x/1"}},
		{"RSS in a namespace", `<rss version="2.0" xmlns="http://backend.userland.com/rss2"><channel><item><guid>1</guid></item><item xmlns=""><guid>2</guid></item></channel></rss>`, RSS, "2.0", []string{"1"}},
		{"RSS in the namespace of Atom", `<rss version="2.0" xmlns="http://www.w3.org/2005/Atom"><channel><link rel="self" href="s"/><item><guid>1</guid><link>http://x/1</link></item></channel></rss>`, RSS, "2.0", []string{"1"}},
		{"items beside the channel of RSS", `<rss><channel/><item><guid>1</guid></item></rss>`, RSS, "", []string{"1"}},
		{"case 130: RSS 1.0", rdfRoot + `http://purl.org/rss/1.0/"><channel rdf:about="c"><items><rdf:Seq><rdf:li resource="1"/></rdf:Seq></items></channel><item rdf:about="1"/><item rdf:about="2"/><textinput/></rdf:RDF>`, RDF, "", []string{"1", "2"}},
		{"RSS 0.90", rdfRoot + `http://my.netscape.com/rdf/simple/0.9/"><channel/><item><link>1:</link></item></rdf:RDF>`, RDF, "", []string{"1:"}},
		{"an entry of Atom in RSS", `<rss><channel><entry xmlns="http://www.w3.org/2005/Atom"/><item><guid>1</guid></item></channel></rss>`, RSS, "", []string{"1"}},
		{"an entry in a head", `<feed xmlns="http://purl.org/atom/ns#"><head><entry><id>1</id></entry></head></feed>`, Atom, "", nil},
		{"an item of RSS in Atom", `<feed xmlns="http://www.w3.org/2005/Atom"><item><id>1</id></item></feed>`, Atom, "", nil},
		{"nothing in it", `<feed xmlns="http://www.w3.org/2005/Atom"/>`, Atom, "", nil},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			entries, meta, _ := mustRead(t, tt.doc)
			if meta.Format != tt.want || meta.Version != tt.version {
				t.Errorf("got %q, %q", meta.Format, meta.Version)
			}
			must.Match(t, "", tt.ids, ids(entries))
			if got, err := Detect(strings.NewReader(tt.doc), Options{}); err != nil || got != tt.want {
				t.Errorf("Detect: got %q, %v", got, err)
			}
		})
	}
}

func TestMeta(t *testing.T) {
	t.Parallel()
	day := func(d int, raw, from string) Date {
		return Date{Time: time.Date(2026, 1, d, 0, 0, 0, 0, time.UTC), Raw: raw, From: from}
	}
	tests := []struct {
		name, doc string
		want      Meta // without Format, Version and URL
		odd       []string
	}{
		{
			"Atom",
			atomFeed(`<id> urn:f </id><title type="html">&lt;b>T</title><updated>2026-01-01</updated>
				<entry><id>1</id><title>no</title><updated>2026-01-05</updated></entry>`),
			Meta{ID: "urn:f", Title: "<b>T", Updated: day(1, "2026-01-01", "updated")},
			nil,
		},
		{
			"what stands behind the entries", atomFeed(`<entry><id>1</id></entry><id>f</id><fh:complete/><link href="/x" rel="next"/>`),
			Meta{ID: "f", Complete: true, Links: []Link{{Rel: "next", Href: "http://x.example/x", Raw: "/x"}}},
			nil,
		},
		{
			"RSS", rssFeed(`<title>T</title><link>http://x/</link><lastBuildDate>Thu, 01 Jan 2026 00:00:00 GMT</lastBuildDate><pubDate>Fri, 02 Jan 2026 00:00:00 GMT</pubDate>
				<image><title>no</title><link>no</link></image><item><guid>1</guid><title>no</title><link>no</link></item>`),
			Meta{
				Title: "T", Links: []Link{{Rel: "alternate", Href: "http://x/", Raw: "http://x/"}},
				Updated: day(1, "Thu, 01 Jan 2026 00:00:00 GMT", "lastBuildDate"),
			},
			nil,
		},
		{"case 63: no lastBuildDate", rssFeed(`<dc:date>2026-01-01</dc:date><pubDate>Fri, 02 Jan 2026 00:00:00 GMT</pubDate>`), Meta{Updated: day(2, "Fri, 02 Jan 2026 00:00:00 GMT", "pubDate")}, nil},
		{
			"case 130: RSS 1.0",
			`<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/">
				<image><title>no</title><link>no</link></image><channel rdf:about="urn:c"><title>T</title><dc:date>2026-01-01</dc:date></channel></rdf:RDF>`,
			Meta{ID: "urn:c", Title: "T", Updated: day(1, "2026-01-01", "date")},
			nil,
		},
		{"case 21: complete RSS", rssFeed(`<fh:complete/>`), Meta{Complete: true}, nil},
		{"case 16: a flag in an entry", atomFeed(`<entry><id>1</id><fh:complete/><fh:archive/><fh:incremental>true</fh:incremental><fh:prev>p</fh:prev></entry>`), Meta{}, nil},
		{
			"case 16: beside the channel", strings.Replace(rssFeed(`<title>T</title>`), "<channel>", `<fh:complete/><title>no</title><atom:link href="no"/><channel>`, 1),
			Meta{Title: "T"},
			nil,
		},
		{"case 16: a flag in another element", atomFeed(`<author><name>n</name><fh:complete/></author>`), Meta{Authors: []string{"n"}}, nil},
		{"authors", atomFeed(`<author><uri>http://x/</uri><email> a@b.example</email><name>A &amp; B</name></author><author><email>c@d</email></author><author/>`), Meta{Authors: []string{"A & B <a@b.example>", "c@d"}}, nil},
		{"authors of RSS", `<rss xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><managingEditor>a@b.example (A)</managingEditor><dc:creator>B</dc:creator></channel></rss>`, Meta{Authors: []string{"a@b.example (A)", "B"}}, nil},
		{"case 17: another prefix", atomFeed(`<x:complete xmlns:x="http://purl.org/syndication/history/1.0"/>`), Meta{Complete: true}, nil},
		{"case 17: the default namespace", atomFeed(`<archive xmlns="http://purl.org/syndication/history/1.0"/>`), Meta{Archive: true}, nil},
		{"case 17: the prefix for something else", atomFeed(`<fh:complete xmlns:fh="urn:x"/>`), Meta{}, nil},
		{"case 124c: a prefix that is not declared", `<feed xmlns="http://www.w3.org/2005/Atom"><fh:complete/></feed>`, Meta{}, []string{UndeclaredPrefix}},
		{"case 78: draft 00", atomFeed("<fh:Stateful> 0\n</fh:Stateful>"), Meta{Incremental: No}, nil},
		{"case 79: draft 01", atomFeed("<fh:stateful>1</fh:stateful>"), Meta{Incremental: Yes}, nil},
		{"case 87: draft 04", atomFeed("<fh:incremental>false</fh:incremental>"), Meta{Incremental: No}, nil},
		{"case 83: neither", atomFeed("<fh:stateful>maybe</fh:stateful>"), Meta{}, []string{kindBadFlag}},
		{"case 83: nothing", atomFeed("<fh:stateful/>"), Meta{}, []string{kindBadFlag}},
		{"a flag that contradicts itself", atomFeed("<fh:stateful>0</fh:stateful><fh:stateful>1</fh:stateful>"), Meta{Incremental: No}, []string{kindBadFlag}},
		{
			"case 85: fh:prev", strings.ReplaceAll(atomFeed("<fh:prev xml:base='b/'>\n <!-- x -->2005/1?a&amp;b\n</fh:prev><fh:prev>no</fh:prev>"), "fh:", "history:"),
			Meta{},
			[]string{UndeclaredPrefix, UndeclaredPrefix},
		},
		{
			"case 85: fh:prev with its prefix", strings.NewReplacer("fh:", "history:", ":fh", ":history").Replace(atomFeed("<fh:prev xml:base='b/'>\n <!-- x -->2005/1?a&amp;b\n</fh:prev><fh:prev>no</fh:prev>")),
			Meta{Prev: "http://x.example/a/b/2005/1?a&b", PrevRaw: "2005/1?a&b"},
			nil,
		},
		{
			"case 92: what stands in a head", `<feed xmlns="http://purl.org/atom/ns#draft-ietf-atompub-format-01"><head><id>f</id><title>T</title><link rel="this" href="1"/></head></feed>`,
			Meta{ID: "f", Title: "T", Links: []Link{{Rel: "this", Href: "http://x.example/a/1", Raw: "1"}}},
			nil,
		},
		{"case 19: an entity that XML does not define", atomFeed("<title>a&nbsp;b &unknown; &eacute;</title>"), Meta{Title: "a\u00a0b &unknown; é", Undefined: "nbsp"}, []string{kindUndefinedEntity}},
		{"a date that cannot be read", atomFeed("<updated>now</updated>"), Meta{Updated: Date{Raw: "now", From: "updated"}}, []string{kindBadDate}},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			_, meta, odd := mustRead(t, tt.doc)
			got := *meta
			got.Format, got.Version, got.URL, got.Order = "", "", "", NoOrder
			must.Match(t, "", tt.want, got)
			must.Match(t, "", tt.odd, kinds(odd))
		})
	}
}

// An entity between entries is the document's, and not that of the next entry.
func TestUndefinedEntitiesArePlaced(t *testing.T) {
	t.Parallel()
	entries, meta, odd := mustRead(t, atomFeed(`&nbsp;<entry><id>1</id></entry><entry><id>2</id><title>&copy;</title></entry>`))
	if meta.Undefined != "nbsp" || entries[0].Undefined != "" || entries[1].Undefined != "copy" || len(odd) != 2 {
		t.Errorf("got %q, %q, %q, %v", meta.Undefined, entries[0].Undefined, entries[1].Undefined, odd)
	}
}

func TestHints(t *testing.T) {
	t.Parallel()
	sy := func(content string) string {
		return strings.Replace(rssFeed(content), "<rss", `<rss xmlns:sy="http://purl.org/rss/1.0/modules/syndication/"`, 1)
	}
	tests := []struct {
		name, doc string
		want      Hints
		odd       []string
	}{
		{"case 111: ttl", rssFeed(`<ttl> 60 </ttl>`), Hints{Period: 3600}, nil},
		{"a ttl of years", rssFeed(`<ttl>99999999</ttl>`), Hints{Period: 366 * 24 * 3600}, nil},
		{"a ttl that is no number", rssFeed(`<ttl>-5</ttl>`), Hints{}, []string{kindBadHint}},
		{"case 111: skipHours", rssFeed(`<skipHours><hour>0</hour><hour> 23</hour></skipHours>`), Hints{SkipHours: 1 | 1<<23}, nil},
		{"hours from 1 to 24", rssFeed(`<skipHours><hour>24</hour><hour>25</hour></skipHours>`), Hints{SkipHours: 1}, nil},
		{"skipDays", rssFeed(`<skipDays><day>Sunday</day><day>saturday</day><day>Sonntag</day></skipDays>`), Hints{SkipDays: 1 | 1<<6}, []string{kindBadHint}},
		{"sy", sy(`<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>4</sy:updateFrequency>`), Hints{Period: 15 * 60}, nil},
		{"sy the other way round", sy(`<sy:updateFrequency>2</sy:updateFrequency><sy:updatePeriod>weekly</sy:updatePeriod>`), Hints{Period: 84 * 3600}, nil},
		{"sy by default", sy(`<sy:updateFrequency>2</sy:updateFrequency>`), Hints{Period: 12 * 3600}, nil},
		{"sy behind a ttl", sy(`<ttl>60</ttl><sy:updateFrequency>2</sy:updateFrequency>`), Hints{Period: 3600}, nil},
		{"sy before a ttl", sy(`<sy:updateFrequency>2</sy:updateFrequency><ttl>60</ttl>`), Hints{Period: 3600}, nil},
		{"sy with a word", sy(`<sy:updatePeriod>often</sy:updatePeriod>`), Hints{}, []string{kindBadHint}},
		{"in an item", rssFeed(`<item><guid>1</guid><ttl>60</ttl></item>`), Hints{}, nil},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			_, meta, odd := mustRead(t, tt.doc)
			must.Match(t, "", tt.want, meta.Hints)
			must.Match(t, "", tt.odd, kinds(odd))
		})
	}
}
