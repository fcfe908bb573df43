package feedxml

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// atomFeed is an Atom document with what feeds usually declare.
func atomFeed(content string) string {
	return `<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:fh="http://purl.org/syndication/history/1.0" xmlns:at="http://purl.org/atompub/tombstones/1.0">
` + content + "\n</feed>\n"
}

// rssFeed is an RSS document with what feeds usually declare.
func rssFeed(content string) string {
	return `<?xml version="1.0"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom" xmlns:fh="http://purl.org/syndication/history/1.0" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/" xmlns:at="http://purl.org/atompub/tombstones/1.0">
<channel>` + content + "</channel>\n</rss>\n"
}

const docURL = "http://x.example/a/feed"

// mustRead reads a whole document that has nothing wrong with it.
func mustRead(t *testing.T, doc string) ([]Entry, *Meta, []feed.Violation) {
	t.Helper()
	r := NewReader(strings.NewReader(doc), Options{URL: docURL})
	entries, err := read(r)
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return entries, r.Meta(), r.Violations()
}

func kinds(violations []feed.Violation) []string {
	var list []string
	for _, v := range violations {
		list = append(list, v.Kind)
	}
	return list
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, doc string
		ids       []string
		from      IDSource // of all
		odd       []string
	}{
		{"atom:id", atomFeed(`<entry><id>urn:1</id></entry><entry><id>urn:2</id></entry>`), []string{"urn:1", "urn:2"}, FromID, nil},
		{
			"case 121: ids that a URL library would take for one",
			atomFeed(`<entry><id>HTTP://EX/a b/%7Efoo</id></entry><entry><id>http://ex/a%20b/~foo</id></entry>`),
			[]string{"HTTP://EX/a b/%7Efoo", "http://ex/a%20b/~foo"},
			FromID, nil,
		},
		{"case 121: xml:base does not change an id", strings.Replace(atomFeed(`<entry xml:base="http://y/"><id>a</id></entry>`), "<feed ", `<feed xml:base="http://x/" `, 1), []string{"a"}, FromID, nil},
		{"case 122: white space around an id", atomFeed("<entry><id>\n\turn:1\n</id></entry>"), []string{"urn:1"}, FromID, nil},
		{"a blank that is none of XML's", atomFeed("<entry><id>\u00a0urn:1</id></entry>"), []string{"\u00a0urn:1"}, FromID, nil},
		{"an id with a comment, a CDATA section and references", atomFeed(`<entry><id>u<!-- x -->r<![CDATA[n:&]]>&#x31;&amp;</id></entry>`), []string{"urn:&1&"}, FromID, nil},
		{"the first of two counts", atomFeed(`<entry><id/><id>1</id><id>2</id></entry>`), []string{"1"}, FromID, nil},
		{"case 120: an id of another namespace", atomFeed(`<entry><x:id xmlns:x="urn:x">7</x:id><id>8</id><id xmlns="">9</id></entry>`), []string{"8"}, FromID, nil},
		{"the id of a source", atomFeed(`<entry><source><id>urn:s</id></source><id>urn:1</id></entry>`), []string{"urn:1"}, FromID, nil},
		{"an id with a prefix of its own", atomFeed(`<a:entry xmlns:a="http://www.w3.org/2005/Atom"><b:id xmlns:b="http://www.w3.org/2005/Atom">1</b:id></a:entry>`), []string{"1"}, FromID, nil},
		{"an attribute, as in PaceFeedState", atomFeed(`<entry id=" 1 "/>`), []string{"1"}, FromAttribute, []string{kindWeakID}},
		{"an attribute beside an element", atomFeed(`<entry id="1"><id>2</id></entry>`), []string{"2"}, FromID, nil},
		{"a link, if there is nothing else", atomFeed(`<entry><id> </id><link rel="self" href="no"/><link href="1?a&amp;b"/></entry>`), []string{"http://x.example/a/1?a&b"}, FromLink, []string{kindWeakID}},

		{"case 21: guid", rssFeed(`<item><guid isPermaLink="false">1</guid><link>http://x/1</link></item>`), []string{"1"}, FromGUID, nil},
		{"case 66: no guid", rssFeed(`<item><link> http://x/1 </link></item>`), []string{"http://x/1"}, FromLink, []string{kindWeakID}},
		{"case 66: an empty guid", rssFeed(`<item><guid/><link>http://x/1</link></item><item><guid> </guid><link>http://x/2</link></item>`), []string{"http://x/1", "http://x/2"}, FromLink, []string{kindWeakID, kindWeakID}},
		{"case 67: one guid for all", rssFeed(`<item><guid>1</guid></item><item><guid>1</guid></item>`), []string{"1", "1"}, FromGUID, nil},
		{"case 68: a CDATA section and references", rssFeed(`<item><guid><![CDATA[http://x/?a&b]]></guid></item><item><guid>http&#58;//x/?a&#x26;b</guid></item>`), []string{"http://x/?a&b", "http://x/?a&b"}, FromGUID, nil},
		{"the link of RSS in the namespace of Atom", `<rss version="2.0" xmlns="http://www.w3.org/2005/Atom"><channel><item><link>http://x/1</link></item></channel></rss>`, []string{"http://x/1"}, FromLink, []string{kindWeakID}},
		{"an embedded atom:id", rssFeed(`<item><atom:id>1</atom:id><link>http://x/1</link></item>`), []string{"1"}, FromID, nil},
		{"guid before atom:id", rssFeed(`<item><atom:id>1</atom:id><guid>2</guid></item>`), []string{"2"}, FromGUID, nil},
		{
			"title, description and date, if there is nothing else",
			rssFeed(`<item><title>t</title><description><![CDATA[d]]></description><pubDate>p</pubDate></item><item><description>d</description><pubDate>p</pubDate><title> t </title></item>`),
			[]string{"", ""},
			FromHash,
			[]string{kindBadDate, kindWeakID, kindBadDate, kindWeakID},
		},
		{
			"case 130: rdf:about", `<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"><channel r:about="c"/><item r:about=" http://x/1 "><link>http://x/2</link></item></r:RDF>`,
			[]string{"http://x/1"},
			FromAbout, nil,
		},
		{
			"an about of no namespace", `<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"><channel/><item about="http://x/1"><link>http://x/2</link></item></r:RDF>`,
			[]string{"http://x/2"},
			FromLink,
			[]string{kindWeakID},
		},
		{"line ends within an id", atomFeed("<entry><id>a\r\nb\rc\nd</id></entry>"), []string{"a\nb\nc\nd"}, FromID, nil},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			entries, _, odd := mustRead(t, tt.doc)
			for i, e := range entries {
				if tt.from == FromHash {
					if len(e.ID) != 64 || e.ID != entries[0].ID {
						t.Errorf("got %q and %q", e.ID, entries[0].ID)
					}
					tt.ids[i] = e.ID
				}
				if e.IDFrom != tt.from || e.IDFrom.Weak() != (tt.from == FromLink || tt.from == FromHash || tt.from == FromAttribute) {
					t.Errorf("%q is from %q", e.ID, e.IDFrom)
				}
			}
			must.Match(t, "", tt.ids, ids(entries))
			must.Match(t, "", tt.odd, kinds(odd))
		})
	}
}

func TestTimesOfEntries(t *testing.T) {
	t.Parallel()
	day := func(d int) time.Time { return time.Date(2026, 1, d, 0, 0, 0, 0, time.UTC) }
	date := func(d int, raw, from string) Date { return Date{Time: day(d), Raw: raw, From: from} }
	tests := []struct {
		name, doc string
		updated   Date
		published Date
		odd       []string
	}{
		{"atom", atomFeed(`<entry><id>1</id><published>2026-01-01</published><updated>2026-01-02</updated></entry>`), date(2, "2026-01-02", "updated"), date(1, "2026-01-01", "published"), nil},
		{
			"atom 0.3", `<feed version="0.3" xmlns="http://purl.org/atom/ns#"><entry><id>1</id><created>2026-01-01</created><issued>2026-01-02</issued><modified>2026-01-03</modified></entry></feed>`,
			date(3, "2026-01-03", "modified"), date(2, "2026-01-02", "issued"), nil,
		},
		{"case 65: RSS has no update time", rssFeed(`<item><guid>1</guid><pubDate>Thu, 01 Jan 2026 00:00:00 GMT</pubDate></item>`), Date{}, date(1, "Thu, 01 Jan 2026 00:00:00 GMT", "pubDate"), nil},
		{"RSS with what others have", rssFeed(`<item><guid>1</guid><dc:date>2026-01-01</dc:date><dcterms:modified>2026-01-02</dcterms:modified><atom:updated>2026-01-03</atom:updated></item>`), date(3, "2026-01-03", "updated"), Date{}, nil},
		{"the same the other way round", rssFeed(`<item><guid>1</guid><atom:updated>2026-01-03</atom:updated><dcterms:modified>2026-01-02</dcterms:modified><dc:date>2026-01-01</dc:date></item>`), date(3, "2026-01-03", "updated"), Date{}, nil},
		{"case 130: dc:date", rssFeed(`<item><guid>1</guid><dc:date> 2026-01-01T00:00:00Z
</dc:date></item>`), date(1, "2026-01-01T00:00:00Z", "date"), Date{}, nil},
		{"a date that cannot be read", atomFeed(`<entry><id>1</id><updated>today</updated></entry>`), Date{Raw: "today", From: "updated"}, Date{}, []string{kindBadDate}},
		{"a worse date for one that cannot be read", rssFeed(`<item><guid>1</guid><atom:updated>today</atom:updated><dc:date>2026-01-01</dc:date></item>`), date(1, "2026-01-01", "date"), Date{}, []string{kindBadDate}},
		{"an empty date", atomFeed(`<entry><id>1</id><updated> </updated></entry>`), Date{}, Date{}, nil},
		{"the date of a source", atomFeed(`<entry><id>1</id><source><updated>2026-01-01</updated></source></entry>`), Date{}, Date{}, nil},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			entries, _, odd := mustRead(t, tt.doc)
			must.Match(t, "", tt.updated, entries[0].Updated)
			must.Match(t, "", tt.published, entries[0].Published)
			must.Match(t, "", tt.odd, kinds(odd))
		})
	}
}

func TestTombstones(t *testing.T) {
	t.Parallel()
	when := time.Date(2005, 11, 29, 12, 11, 12, 0, time.UTC)
	whole := Entry{ID: "urn:1", IDFrom: FromID, Deleted: true, Updated: Date{Time: when, Raw: "2005-11-29T12:11:12Z", From: "when"}}
	timeless := Entry{ID: "urn:1", IDFrom: FromID, Deleted: true}
	invalid := timeless
	invalid.Updated = Date{Raw: "then", From: "when"}
	nameless := whole
	nameless.ID = ""
	precise := whole
	precise.Updated = Date{Time: when.Add(123456789), Raw: "2005-11-29T12:11:12.123456789+00:00", From: "when"}
	const usual = `<at:deleted-entry ref="urn:1" when="2005-11-29T12:11:12Z"/>`
	tests := []struct {
		name, doc string
		want      Entry
		odd       []string
	}{
		{"as in RFC 6721", atomFeed(usual), whole, nil},
		{"white space in the attributes", atomFeed(`<at:deleted-entry ref=" urn:1" when="2005-11-29T12:11:12Z "></at:deleted-entry>`), whole, nil},
		{
			"all that it can have", atomFeed(`<at:deleted-entry ref="urn:1" when="2005-11-29T12:11:12Z"><at:by><name>Jane &lt;Doe></name><email>j@x</email></at:by>` +
				`<at:comment xml:lang="la">Removed because of <![CDATA[spam]]>.</at:comment><link rel="related" href="/why"/><id>no</id><updated>2026-01-01</updated></at:deleted-entry>`),
			whole, nil,
		},
		{"case 102: no when", atomFeed(`<at:deleted-entry ref="urn:1"/>`), timeless, []string{kindBadTombstone}},
		{"case 102: a when that is no date", atomFeed(`<at:deleted-entry ref="urn:1" when="then"/>`), invalid, []string{kindBadDate}},
		{"case 103: a when with nanoseconds", atomFeed(`<at:deleted-entry ref="urn:1" when="2005-11-29T12:11:12.123456789+00:00"/>`), precise, nil},
		{"no ref", atomFeed(`<at:deleted-entry x:ref="a" xmlns:x="urn:x" when="2005-11-29T12:11:12Z"/>`), nameless, []string{kindBadTombstone}},
		{"case 104: by itself", strings.Replace(usual, " ", ` xmlns:at="http://purl.org/atompub/tombstones/1.0" `, 1), whole, nil},
		{"case 105: in a channel", rssFeed(usual), whole, nil},
		{"beside a channel", strings.Replace(rssFeed(""), "</rss>", usual+"</rss>", 1), whole, nil},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			entries, _, odd := mustRead(t, tt.doc)
			if len(entries) != 1 {
				t.Fatalf("got %d entries", len(entries))
			}
			got := entries[0]
			if !strings.Contains(string(got.Body), `xmlns:at="http://purl.org/atompub/tombstones/1.0"`) {
				t.Errorf("the body is %s", got.Body)
			}
			got.Body, got.Hash, got.Offset = nil, [32]byte{}, 0
			must.Match(t, "", tt.want, got)
			must.Match(t, "", tt.odd, kinds(odd))
		})
	}
	parallel.Run(t, "case 102: the others are read", func(t *testing.T) {
		entries, _, _ := mustRead(t, atomFeed(`<at:deleted-entry ref="1"/><entry><id>2</id></entry><at:deleted-entry ref="3" when="2026-01-01"/>`))
		must.Match(t, "", []string{"1", "2", "3"}, ids(entries))
	})
}

func TestOrder(t *testing.T) {
	t.Parallel()
	entries := func(days ...string) string {
		var b strings.Builder
		for i, d := range days {
			b.WriteString("<entry><id>" + string(rune('a'+i)) + "</id>")
			if d != "" {
				b.WriteString("<updated>2026-01-" + d + "T00:00:00Z</updated>")
			}
			b.WriteString("</entry>")
		}
		return atomFeed(b.String())
	}
	tests := []struct {
		name, doc string
		want      Order
	}{
		{"case 58: newest first", entries("03", "02", "02", "01"), NewestFirst},
		{"case 57: oldest first", entries("01", "02", "02", "03"), OldestFirst},
		{"mixed", entries("01", "03", "02"), Mixed},
		{"case 60: all equal", entries("01", "01", "01"), NoOrder},
		{"one", entries("01"), NoOrder},
		{"none", entries(), NoOrder},
		{"without dates", entries("", "", ""), NoOrder},
		{"some without a date", entries("01", "", "03"), OldestFirst},
		{"tombstones do not count", strings.Replace(entries("03", "01"), "</feed>", `<at:deleted-entry ref="x" when="2026-01-05"/></feed>`, 1), NewestFirst},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			_, meta, _ := mustRead(t, tt.doc)
			if meta.Order != tt.want || meta.PublishedOrder != NoOrder {
				t.Errorf("got %q, %q", meta.Order, meta.PublishedOrder)
			}
		})
	}
	parallel.Run(t, "by publication", func(t *testing.T) {
		_, meta, _ := mustRead(t, rssFeed(`<item><guid>1</guid><pubDate>Thu, 01 Jan 2026 00:00:00 GMT</pubDate></item><item><guid>2</guid><pubDate>Fri, 02 Jan 2026 00:00:00 GMT</pubDate></item>`))
		if meta.Order != NoOrder || meta.PublishedOrder != OldestFirst {
			t.Errorf("got %q, %q", meta.Order, meta.PublishedOrder)
		}
		for days, want := range map[string]Order{"912345": OldestFirst, "918273": Mixed, "195432": NewestFirst, "165432": NewestFirst, "123321": Mixed, "333": NoOrder} {
			var b strings.Builder
			for _, day := range days {
				fmt.Fprintf(&b, "<item><guid>%d</guid><pubDate>%c Jan 2026 00:00:00 GMT</pubDate></item>", b.Len(), day)
			}
			if _, meta, _ := mustRead(t, rssFeed(b.String())); meta.PublishedOrder != want {
				t.Errorf("%s: got %q", days, meta.PublishedOrder)
			}
		}
	})
}

// feedparser reads such feeds. The entries get the namespace, so they do not change when the
// provider declares it.
func TestAtomWithoutNamespace(t *testing.T) {
	t.Parallel()
	const doc = `<feed%s><title>T</title><link rel="next" href="/2"/><entry><id>a</id><updated>2026-01-01T00:00:00Z</updated><x xmlns=""/></entry></feed>`
	want, wantMeta, _ := mustRead(t, fmt.Sprintf(doc, ` xmlns="http://www.w3.org/2005/Atom"`))
	for _, options := range []Options{{}, {Lenient: true}} {
		options.URL = docURL
		r := NewReader(strings.NewReader(fmt.Sprintf(doc, "")), options)
		got, err := read(r)
		must.Succeed(t, err)
		if got[0].Offset -= int64(len(`<feed>`)); got[0].Offset != want[0].Offset-int64(len(`<feed xmlns="http://www.w3.org/2005/Atom">`)) {
			t.Errorf("offset %d", got[0].Offset)
		}
		got[0].Offset = want[0].Offset
		must.Match(t, "entries", want, got)
		must.Match(t, "meta", wantMeta, r.Meta())
		if odd := kinds(r.Violations()); !slices.Equal(odd, []string{kindMissingNamespace}) {
			t.Errorf("violations %v", odd)
		}
	}
}
