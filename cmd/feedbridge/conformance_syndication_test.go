package main

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/conformance"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

const (
	atomHead  = `<id>f</id><title>t</title><updated>2020-01-01T00:00:00Z</updated>`
	atomEntry = `<entry><id>%s</id><title>t</title><updated>2020-01-01T00:00:00Z</updated>%s</entry>`
	author    = `<author><name>a</name></author>`
)

// atom returns a feed of Atom.
func atom(parts ...any) string {
	return `<feed xmlns="http://www.w3.org/2005/Atom" xmlns:fh="http://purl.org/syndication/history/1.0">` + fmt.Sprint(parts...) + `</feed>`
}

// chain returns a feed with two archives.
func chain(older string) map[string]string {
	entry := func(id string) string { return fmt.Sprintf(atomEntry, id, author) }
	return map[string]string{
		"/":  atom(atomHead, `<link rel="prev-archive" href="/2"/>`, entry("3")),
		"/2": atom(atomHead, `<fh:archive/><link rel="current" href="/"/><link rel="prev-archive" href="/1"/>`, entry("2")),
		"/1": older,
	}
}

func TestConformanceOfDocuments(t *testing.T) {
	const rss, media = `<rss version="2.0"><channel><title>t</title><link>http://h/</link><description>d</description>%s</channel></rss>`, "application/atom+xml"
	entry := fmt.Sprintf(atomEntry, "1", author)
	page := func(s string) map[string]string { return map[string]string{"/": s} }
	testProducers(t, map[string]producer{
		"case 141: a link without href":          {media, page(atom(atomHead, `<link rel="self"/>`, entry)), "syndication/141", conformance.Failed, "no href", exitFailed, ""},
		"case 142: an entry without title":       {media, page(atom(atomHead, `<entry><id>1</id><updated>2020-01-01T00:00:00Z</updated></entry>`)), "syndication/142", conformance.Failed, `the atom:entry "1" has 0 elements atom:title`, exitFailed, ""},
		"case 142: an archive without ID":        {media, chain(atom(`<fh:archive/>`, entry)), "syndication/142", conformance.Failed, "atom:feed has 0 elements atom:id", exitFailed, ""},
		"case 142: two IDs":                      {media, page(atom(atomHead, `<id>g</id>`, entry)), "syndication/142", conformance.Failed, "has 2 elements atom:id", exitFailed, ""},
		"what Atom requires":                     {media, page(atom(atomHead, entry)), "syndication/142", conformance.Passed, "", exitDone, ""},
		"case 143: two alternate links":          {media, page(atom(atomHead, `<link href="/a"/><link href="/b"/>`, entry)), "syndication/143", conformance.Failed, "2 alternate links", exitFailed, ""},
		"case 143: a relation of another name":   {media, page(atom(atomHead, `<link href="/a"/><link xmlns:x="urn:x" rel="related" href="/b" x:rel="alternate"/>`, entry)), "syndication/143", conformance.Passed, "", exitDone, ""},
		"case 142: a feed in the content":        {media, page(atom(atomHead, fmt.Sprintf(atomEntry, "1", author+`<content type="application/xml"><feed><entry/></feed></content>`))), "syndication/142", conformance.Passed, "", exitDone, ""},
		"case 66: RSS without guid":              {"application/rss+xml", page(strings.Replace(fmt.Sprintf(rss, `<item><title>1</title></item>`), "2.0", "0.91", 1)), "syndication/66", conformance.NotTested, "", exitDone, ""},
		"case 66: RSS 2.0 without guid":          {"application/rss+xml", page(fmt.Sprintf(rss, `<item><title>1</title></item>`)), "syndication/66", conformance.Failed, "", exitDone, ""},
		"case 144: a date that is none":          {media, page(atom(atomHead, `<entry><id>1</id><title>t</title><updated>now</updated>`+author+`</entry>`)), "syndication/144", conformance.Failed, "now", exitFailed, ""},
		"case 144: a day":                        {media, page(atom(atomHead, `<entry><id>1</id><title>t</title><updated>2020-01-01</updated>`+author+`</entry>`)), "syndication/144", conformance.Failed, `atom:updated "2020-01-01"`, exitFailed, ""},
		"case 144: an empty date":                {media, page(atom(atomHead, `<entry><id>1</id><title>t</title><updated></updated>`+author+`</entry>`)), "syndication/144", conformance.Failed, `atom:updated ""`, exitFailed, ""},
		"case 144: another fraction and zone":    {media, page(atom(atomHead, `<entry><id>1</id><title>t</title><updated> 2016-12-31T23:59:60.5-01:30 </updated>`+author+`</entry>`)), "syndication/144", conformance.Passed, "", exitDone, ""},
		"case 144: an Atom date in RSS":          {"application/rss+xml", page(fmt.Sprintf(rss, `<item><title>1</title><pubDate>2020-01-01T00:00:00Z</pubDate></item>`)), "syndication/144", conformance.Failed, "2020-01-01T00:00:00Z", exitFailed, ""},
		"case 144: dates of RSS":                 {"application/rss+xml", page(fmt.Sprintf(rss, `<lastBuildDate>1 Jan 20 00:00 UT</lastBuildDate><item><title>1</title><pubDate>Wed, 01 Jan 2020 00:00:00 Z</pubDate></item>`)), "syndication/144", conformance.Passed, "", exitDone, ""},
		"case 141: a href that is no IRI":        {media, page(atom(atomHead, `<link rel="related" href="http://[bad"/>`, entry)), "syndication/141", conformance.Failed, "http://[bad", exitFailed, ""},
		"case 141: a relative href":              {media, page(atom(atomHead, `<link rel="related" href="/ä?b=c#d"/>`, entry)), "syndication/141", conformance.Passed, "", exitDone, ""},
		"case 149: an invalid polling hint":      {"application/rss+xml", page(fmt.Sprintf(rss, `<ttl>soon</ttl><item><title>1</title></item>`)), "syndication/149", conformance.Failed, "soon", exitFailed, ""},
		"no polling hints":                       {"application/rss+xml", page(fmt.Sprintf(rss, `<item><title>1</title></item>`)), "syndication/149", conformance.NotTested, "no polling hints", exitDone, ""},
		"case 151: nobody wrote it":              {media, page(atom(atomHead, fmt.Sprintf(atomEntry, "1", ""))), "syndication/151", conformance.Failed, "neither the feed", exitFailed, ""},
		"case 151: the author of the feed":       {media, page(atom(atomHead, author, fmt.Sprintf(atomEntry, "1", ""))), "syndication/151", conformance.Passed, "", exitDone, ""},
		"case 152: a channel without title":      {"application/rss+xml", page(`<rss version="2.0"><channel><item><title>1</title></item></channel></rss>`), "syndication/152", conformance.Failed, "channel has 0 elements title", exitFailed, ""},
		"case 152: an item without title":        {"application/rss+xml", page(fmt.Sprintf(rss, `<item><guid>1</guid></item>`)), "syndication/152", conformance.Failed, `the item "1" has neither`, exitFailed, ""},
		"an archive that needs credentials":      {media, chain("401"), "syndication/142", conformance.NotTested, "", exitFailed, "for credentials, add the feed"},
		"an archive that is gone":                {media, chain("404"), "syndication/142", conformance.NotTested, "", exitFailed, "not read to its end"},
		"an archive that breaks off":             {media, chain("<feed xmlns='http://www.w3.org/2005/Atom'><id>"), "syndication/124b", conformance.Failed, "/1", exitFailed, "/1"},
		"an archive that is not well-formed":     {media, chain("<feed xmlns='http://www.w3.org/2005/Atom'><a>&</a></feed>" + strings.Repeat(" ", 1<<18)), "syndication/124b", conformance.Failed, "/1", exitFailed, "/1"},
		"IDs that are there twice, in no window": {media, page(atom(atomHead, `<fh:complete/>`, entry, entry)), "syndication/64", conformance.NotTested, "archived", exitDone, ""},
	})
}

func TestConformanceOfSampledArchives(t *testing.T) {
	testProducers(t, map[string]producer{
		"two of three": {"application/atom+xml", chain("404"), "syndication/30", conformance.Passed, "", exitDone, ""},
	}, "--pages", "1")
}

// TestInspectStrict checks that violations that concern only readers do not count.
func TestInspectStrict(t *testing.T) {
	t.Parallel()
	entry := fmt.Sprintf(atomEntry, "1", author)
	for name, c := range map[string]struct {
		pages map[string]string
		code  int
		says  string
	}{
		"a paged feed":            {map[string]string{"/": atom(atomHead, `<link rel="next" href="/2"/>`, entry), "/2": atom(atomHead, fmt.Sprintf(atomEntry, "2", author))}, exitDone, ""},
		"a date that is none":     {map[string]string{"/": atom(atomHead, author, `<entry><id>1</id><title>t</title><updated>now</updated></entry>`)}, exitFailed, "violates 1 requirement"},
		"nobody wrote it":         {map[string]string{"/": atom(atomHead, fmt.Sprintf(atomEntry, "1", ""))}, exitFailed, "violates 1 requirement"},
		"a link without href":     {map[string]string{"/": atom(atomHead, `<link rel="self"/>`, entry)}, exitFailed, "violates 1 requirement"},
		"archives without flag":   {chain(atom(atomHead, `<link rel="current" href="/"/><link rel="next-archive" href="/2"/>`, entry)), exitFailed, "violates 1 requirement"},
		"an archive that is gone": {chain("404"), exitFailed, "not read to its end"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			server := httptest.NewServer(producer{media: "application/atom+xml", pages: c.pages})
			t.Cleanup(server.Close)
			var out, errs bytes.Buffer
			if code := runProgram([]string{"inspect", "--strict", server.URL + "/"}, nil, nil, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.says) {
				t.Errorf("exit code %d: %s\n%s", code, &errs, &out)
			}
			if !strings.Contains(errs.String(), "violates") == strings.Contains(out.String(), "syndication/") {
				t.Errorf("the report does not name the requirement, or one too many:\n%s", &out)
			}
		})
	}
}

func TestConformanceOfRDF(t *testing.T) {
	const media = "application/rdf+xml"
	page := func(about, more string) map[string]string {
		return map[string]string{"/": `<rdf:RDF xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><channel><title>t</title><link>http://h/</link><description>d</description></channel><item` + about + `><title>1</title><link>http://h/1</link>` + more + `</item></rdf:RDF>`}
	}
	const about = ` rdf:about="http://h/1"`
	testProducers(t, map[string]producer{
		"case 130: no rdf:about":          {media, page("", ""), "syndication/130", conformance.Failed, "item 1 has no rdf:about", exitFailed, ""},
		"case 130: rdf:about":             {media, page(about, ""), "syndication/130", conformance.Passed, "", exitDone, ""},
		"case 144: a date of RFC 822":     {media, page(about, `<dc:date>Wed, 01 Jan 2020 00:00:00 GMT</dc:date>`), "syndication/144", conformance.Failed, "dc:date", exitFailed, ""},
		"case 144: a date of W3C-DTF":     {media, page(about, `<dc:date>2020-01-01T10:00+01:00</dc:date>`), "syndication/144", conformance.Passed, "", exitDone, ""},
		"case 124b: no end":               {media, page(about, `</x>`), "syndication/124b", conformance.Failed, "x", exitFailed, ""},
		"case 152: a channel and an item": {media, page(about, ""), "syndication/152", conformance.Passed, "", exitDone, ""},
	})
}
