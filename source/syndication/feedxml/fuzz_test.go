package feedxml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

// seeds are documents of every format, with what makes splitting hard.
var seeds = []string{
	`<feed xmlns="http://www.w3.org/2005/Atom"><id>f</id><entry><id>1</id></entry><entry/></feed>`,
	`<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE feed [<!ENTITY a "<entry>"><!-- ]> ' -->]><feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://x/">` +
		`<!-- <entry> --><?pi <entry>?><title type="xhtml"><entry>no</entry></title><entry a=">" b='"'><![CDATA[</entry>]]><id> &lt;1&#x20;</id ></entry ><link rel="next" href="2"/></feed><!-- end -->`,
	`<a:feed xmlns:a="http://www.w3.org/2005/Atom" xmlns:x="urn:x"><a:entry x:y="x:z"><a:id>1</a:id><b:id xmlns:b="urn:b">2</b:id><entry/></a:entry>` +
		`<at:deleted-entry xmlns:at="http://purl.org/atompub/tombstones/1.0" ref="r" when="2005-11-29T12:11:12Z"><at:comment>why</at:comment></at:deleted-entry></a:feed>`,
	`<rss version="2.0"><channel><title>t</title><item><guid>1</guid><link>http://x/1</link></item><fh:complete xmlns:fh="http://purl.org/syndication/history/1.0"/></channel></rss>`,
	`<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"><channel rdf:about="c"><items><rdf:Seq/></items></channel><item rdf:about="http://x/1"><title>1</title></item></rdf:RDF>`,
	`<feed version="0.3" xmlns="http://purl.org/atom/ns#"><head><link rel="this" href="t"/></head><entry id="x"><modified>2005-01-01</modified></entry></feed>`,
	`<entry xmlns="http://www.w3.org/2005/Atom"><id>é&eacute;</id></entry>`,
	"<feed\r\nxmlns='http://www.w3.org/2005/Atom'\r\n><entry\txml:base='a/b'><id>\r\n1\r2</id></entry></feed>\r\n",
}

// oracleSeeds are well-formed documents that readers understand in different ways: namespaces
// with blanks or of other versions, declarations, encodings, and references to white space.
var oracleSeeds = []string{
	`<?xml version='1.1'?><feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1</id></entry></feed>`,
	`<?xml version="1.0" encoding="us-ascii"?><feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1` + "\xe9" + `</id></entry></feed>`,
	`<feed xmlns="http://www.w3.org/2005/Atom"><:entry><id>1</id></:entry><entry><id>2</id></entry></feed>`,
	`<feed xmlns="http://www.w3.org/2005/Atom"><entry><id xmlns="http://purl.org/atom/ns#">1</id><id>2</id></entry></feed>`,
	`<feed xmlns="http://www.w3.org/2005/Atom" xmlns:t=" http://purl.org/atompub/tombstones/1.0"><t:deleted-entry ref="a&#10;b
c"/></feed>`,
	`<rss xmlns="http://purl.org/rss/1.0/"><channel xmlns="http://my.netscape.com/rdf/simple/0.9/"><item><guid>1</guid></item></channel></rss>`,
	`<rss xmlns="urn:x"><channel><item><guid> </guid><guid>1</guid></item><item><id xmlns="http://www.w3.org/2005/Atom">2</id></item></channel></rss>`,
	`<feed><entry></entry><entry><id>2</id></entry><entry xmlns="http://www.w3.org/2005/Atom"><a/></entry></feed>`,
	`<rss><channel xmlns=" "><item><guid>1&#13;
2</guid></item></channel></rss>`,
	"<feed xmlns='http://www.w3.org/2005/Atom\r\n'><entry xmlns:p='urn:\n'><id p:a=''>1</id></entry></feed>",
}

// FuzzDocument reads its input as a document: in chunks of any size, and cut at any byte. The
// entries of a document in which names are valid too are compared with those of encoding/xml. Whether
// other documents are refused is not compared, because encoding/xml reads many that are not
// well-formed.
func FuzzDocument(f *testing.F) {
	for i, doc := range slices.Concat(seeds, oracleSeeds) {
		f.Add(doc, uint16(i*40))
	}
	f.Fuzz(mutation.OfCorpus(30, func(t *testing.T, doc string, cut uint16) {
		if len(doc) > 1<<12 {
			return
		}
		small := Options{URL: "http://x.example/a/feed", Limits: Limits{Entry: 60, Head: 50, Depth: 5}}
		_, _ = readEveryWay(t, doc, small)
		small.CutEntries = true
		_, _ = readEveryWay(t, doc, small)
		opts := Options{URL: "http://x.example/a/feed"}
		entries, err := readEveryWay(t, doc, opts)
		if _, _, ok := xmlcopy.Standalone([]byte(doc)); ok && err == nil && isPlainXML(doc) {
			compareWithOracle(t, doc, entries)
		}
		if doc != "" && cputime.Sampled(t, doc) {
			long := strings.Repeat(doc, 40_000/len(doc))
			for _, place := range []string{"in an item", "in an item of 255", "between items"} {
				checkLooked(t, place, places[place](long), Options{Lenient: true})
			}
		}
		if err == nil {
			cutAnywhere(t, doc, opts, ids(entries), int(cut))
		}
	}))
}

// isPlainXML reports whether a document has nothing that encoding/xml leaves to its caller: an
// encoding, an XML declaration, or the declaration of an entity.
func isPlainXML(doc string) bool {
	return utf8.ValidString(doc) && charsetOf(doc) == "utf-8" && !strings.Contains(doc, "<?xml") && !strings.Contains(doc, "<!ENTITY")
}

// compareWithOracle compares the entries of a well-formed document with those that encoding/xml
// reads.
func compareWithOracle(t *testing.T, doc string, entries []Entry) {
	t.Helper()
	doc = strings.TrimPrefix(doc, "\ufeff")
	want, err := oracleEntries([]byte(doc))
	if err != nil {
		return
	}
	if len(want) != len(entries) {
		t.Fatalf("%q: got %q, encoding/xml finds %+v", doc, ids(entries), want)
	}
	for i, e := range entries {
		w := want[i]
		if int(e.Offset) != w.start {
			t.Fatalf("%q: entry %d is at %d, not at %d", doc, i, w.start, e.Offset)
		}
		id := w.ids[FromID]
		if guid := w.ids[FromGUID]; guid != "" {
			id = guid
		}
		// An entry without these elements has an ID of another source.
		if from := e.IDFrom == FromID || e.IDFrom == FromGUID; from && !sameID(e.ID, id) || !from && id != "" {
			t.Fatalf("%q: entry %d has the id %q from %s, for encoding/xml %q", doc, i, e.ID, e.IDFrom, id)
		}
		checkBody(t, e, doc[w.start:w.end], w.tree)
	}
}

// checkBody checks that a body is what stood in the document, byte for byte but
// for its start tag, and that it has the same meaning by itself.
func checkBody(t *testing.T, e Entry, raw string, tree []string) {
	t.Helper()
	got, err := treeOf(e.Body)
	if err != nil {
		t.Fatalf("%q: the body %q does not stand alone: %v", raw, e.Body, err)
	}
	if diff := cmp.Diff(tree, got); diff != "" {
		t.Fatalf("%q: the body %q says something else: %s", raw, e.Body, diff)
	}
	end := 1
	for isName[raw[end]] {
		end++
	}
	content := raw[skipToken([]byte(raw)):]
	if !strings.HasPrefix(string(e.Body), raw[:end]) || !strings.HasSuffix(string(e.Body), content) {
		t.Fatalf("%q: the body is %q", raw, e.Body)
	}
}

func charsetOf(doc string) string {
	d, err := decodeDocument(strings.NewReader(doc), "", false)
	if err != nil {
		return ""
	}
	return d.charset
}

// cutAnywhere checks that a document which is cut is known to be cut, and that
// the entries before the cut are there.
func cutAnywhere(t *testing.T, doc string, opts Options, whole []string, at int) {
	t.Helper()
	end := strings.LastIndexByte(doc, '>')
	for end > 0 {
		if _, err := read(NewReader(strings.NewReader(doc[:end]), opts)); errors.Is(err, ErrTruncated) {
			break
		}
		end-- // bytes after the root element may be lost
	}
	if end == 0 || charsetOf(doc) != "utf-8" {
		return
	}
	at %= end
	if charsetOf(doc[:at]) != "utf-8" {
		return
	}
	got, err := read(NewReader(strings.NewReader(doc[:at]), opts))
	if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrNotFeed) {
		t.Fatalf("%q: cut at %d: got %v", doc[:at], at, err)
	}
	if !slices.Equal(ids(got), whole[:len(got)]) {
		t.Fatalf("%q: got %q of %q", doc[:at], ids(got), whole)
	}
}

// readEveryWay fails the test if it makes a difference how the bytes arrive.
func readEveryWay(t *testing.T, doc string, opts Options) ([]Entry, error) {
	t.Helper()
	first := NewReader(strings.NewReader(doc), opts)
	want, wantErr := read(first)
	wantMeta, wantOdd := *first.Meta(), first.Violations()
	for how, arriving := range map[string]func(io.Reader) io.Reader{
		"one byte at a time":  iotest.OneByteReader,
		"some bytes at once":  func(r io.Reader) io.Reader { return &sevens{r} },
		"the end with a byte": func(r io.Reader) io.Reader { return iotest.DataErrReader(iotest.OneByteReader(r)) },
	} {
		again := NewReader(strings.NewReader(doc), opts)
		// The first bytes are read together to detect the encoding, so the output of the
		// decoder is cut.
		if again.detectCharset() == nil {
			decoded, err := io.ReadAll(again.in.r)
			must.Succeed(t, err)
			again.in.r = arriving(bytes.NewReader(decoded))
		} else {
			again = NewReader(strings.NewReader(doc), opts)
		}
		got, err := read(again)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("%s: %q: got %v; at once: %v", how, doc, err, wantErr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: %q: %s", how, doc, diff)
		}
		if diff := cmp.Diff(wantMeta, *again.Meta()); diff != "" {
			t.Fatalf("%s: %q: %s", how, doc, diff)
		}
		// How far is read behind an error depends on it.
		if got, want := again.Faults().String(), first.Faults().String(); got != want && err == nil {
			t.Fatalf("%s: %q: got %s; at once: %s", how, doc, got, want)
		}
		if diff := cmp.Diff(wantOdd, again.Violations()); diff != "" {
			t.Fatalf("%s: %q: %s", how, doc, diff)
		}
	}
	return want, wantErr
}

// sevens reads seven bytes at a time.
type sevens struct{ r io.Reader }

func (s *sevens) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), 7)]) }

// FuzzJSON reads its input as a JSON Feed: in chunks of any size, cut, and leniently. The items of one that is read are
// those of encoding/json, with their IDs.
func FuzzJSON(f *testing.F) {
	for _, items := range []string{`{"id":"a","content_text":"\ud800"}`, `{"id":7,"id":true},{"url":"/x","attachments":[{"url":"y"}]}`, `{"id":"a","_x":{"y":[1e309]}},7`, "{\"id\":\"\n\"}", `{"id":" a"},{"id":"\ud800"}`, `[[]],{"title":" "}`} {
		for _, members := range []string{"", `"next_url":"?2","hubs":[{"url":"h"}],"expired":true,`, `"items":[],`, `"authors":7,"version":8,`} {
			f.Add(jsonFeed(members, items))
		}
	}
	f.Fuzz(mutation.OfCorpus(30, func(t *testing.T, doc string) {
		if len(doc) > 1<<12 || !strings.HasPrefix(doc, "{") || !utf8.ValidString(doc) || charsetOf(doc) != "utf-8" {
			return
		}
		opts := Options{URL: "http://x.example/a/feed"}
		limits := Limits{Entry: 60, Head: 100}
		_, _ = readEveryWay(t, doc, Options{URL: opts.URL, Limits: limits})
		_, _ = read(NewReader(strings.NewReader(doc), Options{URL: opts.URL, Lenient: true, CutEntries: true, Limits: limits}))
		cputime.CheckRepeated(t, doc, func(long string) {
			for _, begin := range []string{"{", jsonFeed("", "")[:60] + `","items":[`} {
				_, _ = read(NewReader(strings.NewReader(begin+long), Options{Lenient: true}))
			}
		})
		entries, err := readEveryWay(t, doc, opts)
		if err != nil {
			return
		}
		var want struct{ Items []json.RawMessage }
		must.Succeed(t, json.Unmarshal([]byte(doc), &want))
		if len(want.Items) != len(entries) {
			t.Fatalf("%q: %d items, encoding/json finds %d", doc, len(entries), len(want.Items))
		}
		for i, e := range entries {
			if string(e.Body) != string(want.Items[i]) {
				t.Fatalf("%q: item %d is %q", doc, i, e.Body)
			}
			var item map[string]any
			must.Succeed(t, json.Unmarshal(e.Body, &item))
			// encoding/json reads half a surrogate pair as U+FFFD; a Reader keeps such ids apart.
			if id, ok := item["id"].(string); ok && e.IDFrom == FromID && len(id) < 1000 && e.ID != id && !strings.Contains(id, "\ufffd") {
				t.Fatalf("%q: item %d has the ID %q", doc, i, e.ID)
			}
		}
	}))
}
