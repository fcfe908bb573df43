package feedxml

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

// mutationTokens splits a document into the pieces that mutations work on: names,
// values, references, delimiters and words.
var mutationTokens = regexp.MustCompile(`<!\[CDATA\[|\]\]>|<!--|-->|<\?|\?>|</|/>|&#?[A-Za-z0-9]+;|[A-Za-z0-9_.:-]+|\s+|(?s:.)`)

// mutationSeeds are documents in which every construct of the formats occurs, so
// that a few mutations reach the code behind each of them.
var mutationSeeds = append([]string{
	`<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://x/b/" xml:lang="de"><title type="html">a &amp;amp; b</title>` +
		`<link rel="related via" type="text/html" hreflang="de" title="a &lt; b" length="7" href="2?a=1&amp;b=2"/>` +
		`<generator uri="g" version="1">G</generator><updated>2026-01-02T00:00:00Z</updated><entry xml:base="c/"><id>urn:1</id>` +
		`<link href="1"/><updated>2026-01-02T00:00:00Z</updated><content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>a<br/>b</p></div></content></entry></feed>`,
	`<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom" xmlns:sy="http://purl.org/rss/1.0/modules/syndication/"><channel><title>t</title><link>http://x/</link>` +
		`<atom:link rel="next prev-archive" href="2"/><ttl>60</ttl><skipHours><hour>1</hour></skipHours><skipDays><day>Monday</day></skipDays><sy:updatePeriod>daily</sy:updatePeriod>` +
		`<lastBuildDate>Thu, 01 Jan 2026 00:00:00 GMT</lastBuildDate><item><title>1 &amp; 2</title><link>http://x/1?a=1&amp;b=2</link>` +
		`<guid isPermaLink="false">1</guid><description><![CDATA[<p>a & b</p>]]></description><enclosure url="http://x/1.mp3" length="1" type="audio/mpeg"/>` +
		`<pubDate>Thu, 01 Jan 2026 00:00:00 GMT</pubDate></item><item><link>http://x/2</link><description>2&nbsp;</description></item></channel></rss>`,
	`<!-- x --><?xml version="1.0" encoding="x"?><feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1</id></entry></feed>`,
	`<rss version="2.0"><channel><item><?xml version="1.1" encoding="x"?><guid>1</guid></item></channel></rss>`,
}, seeds...)

// mutationPieces are inserted into documents.
var mutationPieces = []string{
	"&", "&amp;", "&lt;", "&amp;amp;", "&nbsp;", "&#38;", "&#0;", "&a", ";", "<", ">", "</", "/>", `"`, "'", "=", " ", "\n", ":", "#",
	"<![CDATA[", "]]>", "<!--", "-->", "--", "<?x", "?>", "<!DOCTYPE a [", "\x00", "\x0b", "\xff", "\u00e9", "\ufffe",
	"<entry>", "</entry>", "<item>", "</item>", "<b>", "</b>", "</feed>", "</channel>", "</rss>", "<id/>", "<link/>",
	" rel=\"a b\"", " href='x'", " xml:base='http://y/'", " xmlns:p='urn:p'", " xmlns=''", "p:q", "http://x/", strings.Repeat("x", 9000),
}

// mutate applies mutations to a document: each takes three bytes of the script.
func mutate(doc string, script []byte) string {
	tokens := mutationTokens.FindAllString(doc, -1)
	for ; len(script) >= 3 && len(tokens) > 0; script = script[3:] {
		at := (int(script[1])<<8 | int(script[2])) % len(tokens)
		other := (at*31 + int(script[0])) % len(tokens)
		switch op := script[0]; op % 8 {
		case 0:
			tokens = append(tokens[:at:at], tokens[at+1:]...)
		case 1:
			tokens = append(tokens[:at+1:at+1], tokens[at:]...)
		case 2:
			tokens[at], tokens[other] = tokens[other], tokens[at]
		case 3:
			tokens[at] = tokens[other]
		case 4:
			tokens = tokens[:at]
		case 5:
			end := min(at+int(op/8)+2, len(tokens))
			tokens = append(tokens[:end:end], tokens[at:]...)
		default:
			if op%8 == 6 {
				at = insideValue(tokens, at)
			}
			piece := mutationPieces[(int(op/8)+int(script[2])*7)%len(mutationPieces)]
			tokens = append(tokens[:at:at], append([]string{piece}, tokens[at:]...)...)
		}
	}
	return strings.Join(tokens, "")
}

// insideValue returns a place in the attribute value that is next behind at.
func insideValue(tokens []string, at int) int {
	for i := at; i < len(tokens)-1; i++ {
		if tokens[i] == "=" && (tokens[i+1] == `"` || tokens[i+1] == "'") {
			end := i + 2
			for end < len(tokens) && tokens[end] != tokens[i+1] {
				end++
			}
			return i + 2 + at%(end-i-1)
		}
	}
	return at
}

// checkMutated reads a mutated document in every way. Whatever it is, reading it
// returns entries or an error.
func checkMutated(t *testing.T, doc string) {
	t.Helper()
	if len(doc) > 1<<17 {
		return
	}
	for _, opts := range []Options{
		{URL: "http://x.example/a/feed"},
		{URL: "http://x.example/a/feed", CutEntries: true, Limits: Limits{Entry: 400, Head: 300, Depth: 5}},
	} {
		_, _ = read(NewReader(strings.NewReader(doc), opts))
	}
	checkLenient(t, doc)
}

// checkLenient reads a document leniently. Its entries are well-formed, and those of
// a document that is well-formed are the same.
func checkLenient(t *testing.T, doc string) {
	t.Helper()
	opts := Options{URL: "http://x.example/a/feed"}
	strict, strictErr := read(NewReader(strings.NewReader(doc), opts))
	opts.Lenient = true
	r := NewReader(strings.NewReader(doc), opts)
	entries, err := read(r)
	checkBodies(t, doc, entries)
	if strictErr != nil {
		return
	}
	if err != nil || r.Faults().Count > 0 || len(entries) != len(strict) {
		t.Fatalf("%q: %d entries, %v, %s; strictly there are %d", doc, len(entries), err, r.Faults(), len(strict))
	}
	for i, e := range entries {
		if e.ID != strict[i].ID || e.Hash != strict[i].Hash || string(e.Body) != string(strict[i].Body) {
			t.Fatalf("%q: got %q, %s, and strictly %q, %s", doc, e.ID, e.Body, strict[i].ID, strict[i].Body)
		}
	}
}

// FuzzMutatedDocument breaks whole documents token by token. Random bytes seldom
// get past the root element; these do.
func FuzzMutatedDocument(f *testing.F) {
	for i := range mutationSeeds {
		f.Add(uint8(i), []byte{0, 0, 9})
	}
	f.Add(uint8(0), []byte{6, 0, 60, 14, 0, 61, 22, 0, 62})
	f.Fuzz(mutation.OfCorpus(20, func(t *testing.T, seed uint8, script []byte) {
		if len(script) > 60 {
			return
		}
		doc := mutate(mutationSeeds[int(seed)%len(mutationSeeds)], script)
		checkMutated(t, doc)
		if len(doc) < 1<<12 {
			_, _ = readEveryWay(t, doc, Options{Lenient: true})
			_, _ = readEveryWay(t, doc, Options{Lenient: true, CutEntries: true, Limits: Limits{Entry: 400, Head: 300, Depth: 5}})
		}
	}))
}

// TestMutatedDocuments makes the first mutations of [FuzzMutatedDocument], which
// are the same each time.
func TestMutatedDocuments(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	documents := 10_000
	if underRace {
		documents = 1000 // one goroutine reads each
	}
	for n := range documents {
		script := make([]byte, 3*(1+random.IntN(4)))
		for i := range script {
			script[i] = byte(random.IntN(256))
		}
		checkMutated(t, mutate(mutationSeeds[n%len(mutationSeeds)], script))
	}
}
