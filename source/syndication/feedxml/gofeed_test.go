package feedxml

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mmcdole/gofeed"
	theirAtom "github.com/mmcdole/gofeed/atom"
	theirRSS "github.com/mmcdole/gofeed/rss"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// gofeed is a widely used reader. This package agrees with it, except where gofeed is
// wrong: it changes ids below an xml:base, resolves references in a way of its own, and
// reads documents that are not well-formed.

// BenchmarkGofeed reads what [BenchmarkDocument] does.
func BenchmarkGofeed(b *testing.B) {
	doc, entries := benchDocument(40 << 20)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		read, err := gofeed.NewParser().Parse(bytes.NewReader(doc))
		if err != nil || len(read.Items) != entries {
			b.Fatal(err)
		}
	}
}

func TestAtomAsGofeedReadsIt(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		atomFeed(`<id>f</id><title>T</title><updated>2026-01-01T00:00:00Z</updated><link rel="next" href="http://ex/2"/>
			<entry><id>1</id><updated>2026-01-02T01:02:03.5+02:00</updated><link href="http://ex/a?b&amp;c" type="text/html"/><link rel="edit" href="http://ex/e"/></entry>
			<entry><id><![CDATA[2&]]></id><updated>2026-01-01T00:00:00Z</updated></entry>`),
		`<feed version="0.3" xmlns="http://purl.org/atom/ns#"><id>f</id><title>T</title><modified>2026-01-01T00:00:00Z</modified>
			<entry><id>1</id><modified>2026-01-01T00:00:00Z</modified></entry></feed>`,
	} {
		entries, meta, _ := mustRead(t, doc)
		want, err := (&theirAtom.Parser{}).Parse(strings.NewReader(doc))
		must.Succeed(t, err)
		if meta.ID != want.ID || meta.Title != want.Title || !meta.Updated.Time.Equal(*want.UpdatedParsed) {
			t.Errorf("got %+v, gofeed has %v", meta, want)
		}
		sameLinks(t, meta.Links, want.Links)
		if len(entries) != len(want.Entries) {
			t.Fatalf("got %q, gofeed has %v", ids(entries), want)
		}
		for i, e := range entries {
			w := want.Entries[i]
			if e.ID != w.ID || !e.Updated.Time.Equal(*w.UpdatedParsed) {
				t.Errorf("got %+v, gofeed has %v", e, w)
			}
		}
	}
}

func sameLinks(t *testing.T, got []Link, want []*theirAtom.Link) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %v, gofeed has %v", got, want)
		return
	}
	for i, l := range got {
		if w := want[i]; l.Href != w.Href || l.Rel != w.Rel || l.Type != w.Type {
			t.Errorf("got %v, gofeed has %v", l, w)
		}
	}
}

func TestRSSAsGofeedReadsIt(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		rssFeed(`<title>T</title><link>http://ex/</link><lastBuildDate>Thu, 01 Jan 2026 00:00:00 GMT</lastBuildDate>
			<item><guid isPermaLink="false">1</guid><pubDate>Thu, 01 Jan 2026 00:00:00 +0100</pubDate><link>http://ex/1</link></item>
			<item><guid>&#50;</guid><pubDate>1 Jan 2026 00:00 EST</pubDate><link>http://ex/2?a&amp;b</link></item>`),
		strings.Replace(seeds[4], "<item ", "<item/><item ", 1),
	} {
		entries, meta, _ := mustRead(t, doc)
		want, err := (&theirRSS.Parser{}).Parse(strings.NewReader(doc))
		must.Succeed(t, err)
		if meta.Title != want.Title ||
			want.LastBuildDateParsed != nil && !meta.Updated.Time.Equal(*want.LastBuildDateParsed) {
			t.Errorf("got %+v, gofeed has %v", meta, want)
		}
		if len(entries) != len(want.Items) {
			t.Fatalf("got %q, gofeed has %v", ids(entries), want)
		}
		for i, e := range entries {
			w := want.Items[i]
			if w.GUID != nil && e.ID != w.GUID.Value || w.PubDateParsed != nil && !e.Published.Time.Equal(*w.PubDateParsed) {
				t.Errorf("got %+v, gofeed has %v", e, w)
			}
		}
	}
}

// gofeed finds as many entries in random documents. IDs are not compared, because gofeed changes
// those that have white space within.
func TestDocumentsAsGofeedReadsThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := writer{t: rt}
		want := 0
		for _, e := range w.document() {
			if !e.Deleted {
				want++
			}
		}
		got, err := gofeed.NewParser().Parse(strings.NewReader(w.String()))
		if err != nil {
			rt.Fatalf("%s: %v", w.String(), err)
		}
		if len(got.Items) != want {
			rt.Fatalf("%s: gofeed finds %d entries, not %d", w.String(), len(got.Items), want)
		}
	})
}
