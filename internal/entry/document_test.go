package entry_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

const atom = `<entry xmlns="http://www.w3.org/2005/Atom" xmlns:m="urn:m" xml:lang="de" xml:base="http://x.example/a/">
<id>urn:1</id><title type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">A <b>B</b> &amp; C</div></title><title>second</title>
<updated>2026-03-01T12:00:00.5+01:00</updated><published>2026-01-01T00:00:00Z</published>
<link href="b" hreflang="en"/><link rel="enclosure" href="c.mp3" type="audio/mpeg" length="7"/><category term="t" scheme="s" label="L"/>
<author><name>N</name><email>n@x.example</email><uri>http://n.example</uri></author><summary>S &lt; T</summary><content type="html">&lt;p>C</content><rights>R</rights>
<source><id>urn:s</id><title>Source</title><link rel="self" href="http://s.example/"/><link rel="hub" href="h"/><rights>SR</rights></source>
<m:a m:x="1" y="2" xml:lang="en">t<m:b>u</m:b><c xmlns="">v</c></m:a></entry>`

const rss = `<item><title>A &amp;amp; B</title><link>/1</link><guid isPermaLink="false">g</guid><pubDate>Sun, 01 Mar 2026 12:00:00 GMT</pubDate>
<description>&lt;p>D &lt;b>e&lt;/b>.&lt;br>f</description><category>c</category><author>a@x.example (A)</author><dc:title xmlns:dc="http://purl.org/dc/elements/1.1/">other</dc:title><unknown/></item>`

// schema is that of the documentation.
var schema = sync.OnceValue(func() *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(docs.EntrySchema))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("entry.json", doc); err != nil {
		panic(err)
	}
	return c.MustCompile("entry.json")
})

// validate checks JSON with the schema.
func validate(t testing.TB, text []byte) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must.Succeed(t, err)
	if err := schema().Validate(doc); err != nil {
		t.Fatalf("%.500s: %v", text, err)
	}
}

// encode returns an entry as JSON, which it checks with the schema, and as Go has it.
func encode(t testing.TB, doc string) (text []byte, fields map[string]any) {
	t.Helper()
	a, ok := entry.Read([]byte(doc), "http://x.example/feed")
	if !ok {
		t.Fatalf("%.200s is not read", doc)
	}
	text = a.Encode("id")
	validate(t, text)
	must.Succeed(t, json.Unmarshal(text, &fields))
	return text, fields
}

func TestEncode(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		atom: `{"id":"id","original_id":"urn:1","url":"http://x.example/a/b","title":"A B & C","title_html":"A <b>B</b> &amp; C","content_html":"<p>C",
			"summary":"S < T","date_published":"2026-01-01T00:00:00Z","date_modified":"2026-03-01T12:00:00.5+01:00","language":"de","base_url":"http://x.example/a/",
			"authors":[{"name":"N","email":"n@x.example","url":"http://n.example"}],"tags":["t"],"categories":[{"term":"t","scheme":"s","label":"L"}],
			"attachments":[{"url":"http://x.example/a/c.mp3","mime_type":"audio/mpeg","size_in_bytes":7}],
			"links":[{"rel":"alternate","href":"http://x.example/a/b","hreflang":"en"},{"rel":"enclosure","href":"http://x.example/a/c.mp3","type":"audio/mpeg","length":"7"}],
			"rights":"R","source":{"id":"urn:s","title":"Source","url":"http://s.example/",
				"extensions":{"http://www.w3.org/2005/Atom":{"link":[{"attributes":{"rel":"hub","href":"h"}}],"rights":[{"text":"SR"}]}}},
			"extensions":{"urn:m":{"a":[{"prefix":"m","attributes":{"xml:lang":"en","y":"2","{urn:m}x":"1"},"children":[{"text":"t"},{"name":"b","prefix":"m","text":"u"},{"name":"c","namespace":"","text":"v"}]}]}}}`,
		rss: `{"id":"id","original_id":"g","url":"http://x.example/1","title":"A & B","title_html":"A &amp; B","summary":"D e. f","summary_html":"<p>D <b>e</b>.<br>f","date_published":"2026-03-01T12:00:00Z",
			"authors":[{"name":"A","email":"a@x.example"}],"tags":["c"],"extensions":{"":{"unknown":[{}]},"http://purl.org/dc/elements/1.1/":{"title":[{"prefix":"dc","text":"other"}]}}}`,
		`<item><guid>http://x/g</guid><link>http://x/l</link><enclosure url="e" type="t" length="1" y="2"><a>b</a></enclosure><enclosure href="f"/></item>`: `{"id":"id",
			"original_id":"http://x/g","url":"http://x/l","attachments":[{"url":"http://x.example/e","mime_type":"t","size_in_bytes":1}],
			"links":[{"rel":"alternate","href":"http://x/l"},{"rel":"enclosure","href":"http://x.example/e","type":"t","length":"1"},{"rel":"bookmark","href":"http://x/g"}],
			"extensions":{"":{"enclosure":[{"attributes":{"y":"2"},"children":[{"name":"a","text":"b"}]},{"attributes":{"href":"f"}}]}}}`,
		`<item><guid>http://x/g</guid></item>`: `{"id":"id","original_id":"http://x/g","url":"http://x/g"}`,
		`<at:deleted-entry xmlns:at="http://purl.org/atompub/tombstones/1.0" ref="r" when="2026-01-01T00:00:00Z"><at:comment>why</at:comment></at:deleted-entry>`: `{"id":"id","original_id":"r",
			"date_modified":"2026-01-01T00:00:00Z","extensions":{"http://purl.org/atompub/tombstones/1.0":{"comment":[{"prefix":"at","text":"why"}]}}}`,
	} {
		text, got := encode(t, doc)
		var fields map[string]any
		must.Succeed(t, json.Unmarshal([]byte(want), &fields))
		if diff := cmp.Diff(fields, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		again, ok := entry.Decode(text, "http://x.example/feed")
		if !ok || !bytes.Equal(again.Encode("id"), text) {
			t.Errorf("got %v, want %s", again, text)
		}
	}
}

// Whatever an entry has, its JSON is valid and not much larger.
func TestEncodeBadEntries(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 8000)
	for name, doc := range map[string]string{
		"HTML that is broken":        `<item><title>&lt;b&gt;a &lt;/i&gt; &lt;a href="</title><description>&lt;p &lt;b&gt; &amp; &lt;script&gt;</description></item>`,
		"10 MB of text":              `<item><description>` + strings.Repeat("&lt;b>\" \n", 10<<20/9) + `</description></item>`,
		"100,000 extensions":         `<item xmlns:m="urn:m">` + strings.Repeat("<m:a/>", 100_000) + `</item>`,
		"a long namespace":           `<item xmlns:m="urn:` + long + `">` + strings.Repeat("<m:a/>", 20_000) + `</item>`,
		"a long namespace inside":    `<item xmlns:m="urn:` + long + `"><a>` + strings.Repeat("<m:a><b/></m:a>", 20_000) + `</a></item>`,
		"a long namespace in source": `<entry xmlns="http://www.w3.org/2005/Atom" xmlns:m="urn:` + long + `"><source><a>` + strings.Repeat("<m:a><b/></m:a>", 20_000) + `</a></source></entry>`,
		"a long base":                `<item xml:base="http://x/` + long + `/">` + strings.Repeat("<enclosure url='a'/>", 20_000) + `</item>`,
		"deep extensions":            `<item>` + strings.Repeat("<a>", 190) + strings.Repeat("</a>", 190) + `</item>`,
		"two titles":                 `<entry xmlns="http://www.w3.org/2005/Atom"><title>a</title><title type="html">b&lt;br></title></entry>`,
		"a title in XHTML":           `<entry xmlns="http://www.w3.org/2005/Atom"><title type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>a</p><script>b</script></div></title></entry>`,
		"a long namespace in people": `<entry xmlns="http://www.w3.org/2005/Atom" xmlns:m="urn:` + long + `">` + strings.Repeat("<author><m:a/></author>", 20_000) + `</entry>`,
		"a long namespace in links":  `<entry xmlns="http://www.w3.org/2005/Atom" xmlns:m="urn:` + long + `">` + strings.Repeat("<link href='a' m:a=''/>", 20_000) + `</entry>`,
		"many titles of a module":    `<item xmlns:m="http://purl.org/dc/elements/1.1/">` + strings.Repeat("<m:title>a</m:title>", 20_000) + `</item>`,
		"many keywords":              `<item xmlns:m="http://www.itunes.com/dtds/podcast-1.0.dtd"><m:keywords>` + strings.Repeat("a,", 100_000) + `</m:keywords></item>`,
		"a replacement character":    "<item><guid>\ufffd</guid><title>\u2028\u0085</title></item>",
		"a length that is no count":  `<item><enclosure url="a" length="-1e9"/><enclosure url="b" length="many"/></item>`,
	} {
		text, _ := encode(t, doc)
		most := 4*len(doc) + 10_000
		if name == "a long base" {
			most *= 2 // a URL is in links and in attachments
		}
		if len(text) > most {
			t.Errorf("%s: %d bytes of %d", name, len(text), len(doc))
		}
	}
}

// A long namespace that JSON has once is written as XML for each element, of which there are no more than have room.
func TestDecodedExtensionsAreBounded(t *testing.T) {
	t.Parallel()
	extensions := `{"urn:` + strings.Repeat("x", 8000) + `":{"a":[{}` + strings.Repeat(",{}", 20_000) + `]}}`
	text := `{"id":"1","extensions":` + extensions + `,"source":{"extensions":` + extensions + `}}`
	a, ok := entry.Decode([]byte(text), "")
	if !ok {
		t.Fatal("it is not read")
	}
	for i, x := range []entry.Extensions{a.Extensions, a.Source.Extensions} {
		if n := len(x.AppendXML(nil)); n > 3*len(text) {
			t.Errorf("%d: %d bytes of %d", i, n, len(text))
		}
	}
}

// A date is RFC 3339, and a text that is none is kept as an extension.
func TestEncodeDates(t *testing.T) {
	t.Parallel()
	const noon = "2026-03-01T12:00:00Z"
	for date, want := range map[string]string{
		"Sun, 01 Mar 2026 12:00:00 GMT": noon, "Sun, 01 Mar 2026 12:00:00 +0000": noon, "01 Mar 2026 12:00:00 UT": noon, "Sun, 1 Mar 2026 12:00 GMT": noon,
		"Sunday, 01-Mar-26 12:00:00 GMT": noon, "Sun Mar  1 12:00:00 2026": noon, noon: noon, "2026-03-01 12:00:00": noon, "2026-03-01T12:00:00": noon,
		"2026-03-01T12:00Z": noon, "Sun, 01 Mar 2026 07:00:00 EST": noon, "Sun, 01 Mar 2026 13:00:00 +0100": noon,
		"2026-03-01T13:00:00+01:00": "2026-03-01T13:00:00+01:00", "2026-03-01T12:00:00.000Z": "2026-03-01T12:00:00.000Z",
		"Mar 1, 2026 12:00:00 GMT": "", "20260301T120000Z": "", "99999-01-01": "", "soon": "",
		"2024-01-01T9:05:00,5Z": "2024-01-01T09:05:00.5Z", "0000-01-01T00:00:00Z": "",
	} {
		_, fields := encode(t, "<item><pubDate>"+date+"</pubDate></item>")
		if got, _ := fields["date_published"].(string); got != want || (want == "") != (fields["extensions"] != nil) {
			t.Errorf("%s: got %v, want %q", date, fields, want)
		}
	}
}

// The schema lists the fields that the code has.
func TestSchemaHasTheFieldsOfTheCode(t *testing.T) {
	t.Parallel()
	var schema any
	must.Succeed(t, json.Unmarshal(docs.EntrySchema, &schema))
	compareSchema(t, "entry", schema.(map[string]any), schema.(map[string]any), reflect.TypeFor[entry.Document](), map[reflect.Type]bool{})
}

func compareSchema(t *testing.T, path string, root, s map[string]any, typ reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	if ref, ok := s["$ref"].(string); ok {
		s = root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	want := map[reflect.Kind]string{reflect.String: "string", reflect.Slice: "array", reflect.Map: "object", reflect.Struct: "object", reflect.Int64: "integer", reflect.Float64: "number"}
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ == reflect.TypeFor[json.RawMessage]() && s["type"] == nil {
		return // any value
	}
	if s["type"] != want[typ.Kind()] {
		t.Errorf("%s: the schema has %v, and the code %s", path, s["type"], typ)
		return
	}
	switch typ.Kind() {
	case reflect.Slice:
		compareSchema(t, path+"[]", root, s["items"].(map[string]any), typ.Elem(), seen)
	case reflect.Map:
		compareSchema(t, path+".*", root, s["additionalProperties"].(map[string]any), typ.Elem(), seen)
	case reflect.Struct:
		if seen[typ] {
			return
		}
		seen[typ] = true
		properties := s["properties"].(map[string]any)
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if p, ok := properties[name].(map[string]any); ok {
				compareSchema(t, path+"."+name, root, p, typ.Field(i).Type, seen)
			} else {
				t.Errorf("%s: the schema lacks %s", path, name)
			}
		}
		if len(properties) != typ.NumField() {
			t.Errorf("%s: the schema has %d fields, and the code %d", path, len(properties), typ.NumField())
		}
	}
}

// FuzzEncode encodes entries, and decodes and encodes them again: nothing is lost. The JSON has only the fields of the
// schema and is not much larger than the entry, and encoding/xml reads its extensions as XML.
func FuzzEncode(f *testing.F) {
	for _, doc := range []string{atom, rss, "<item><a>x<b/>y</a></item>"} {
		f.Add([]byte(doc))
	}
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, doc []byte) {
		a, ok := entry.Read(doc, "http://x.example/")
		if !ok {
			return
		}
		text := a.Encode("id")
		validate(t, text)
		if len(text) > 16*len(doc)+10_000 {
			t.Fatalf("%d bytes of %d", len(text), len(doc))
		}
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		must.Succeed(t, strict.Decode(&entry.Document{}))
		must.Succeed(t, xml.Unmarshal(append(a.Extensions.AppendXML([]byte("<x>")), "</x>"...), &struct{}{}))
		again, ok := entry.Decode(text, "http://x.example/")
		if !ok {
			t.Fatalf("%s is not read", text)
		}
		if b := again.Encode("id"); !bytes.Equal(text, b) {
			t.Fatalf("got  %s\nwant %s", b, text)
		}
	}))
}

func BenchmarkEncode(b *testing.B) {
	items := make([][]byte, 500)
	size := int64(0)
	for i := range items {
		items[i] = fmt.Appendf(nil, `<item><title>Entry %d</title><link>https://x.example/%d</link><guid>https://x.example/%d</guid><pubDate>Sun, 01 Mar 2026 12:00:00 GMT</pubDate>`+
			`<category>news</category><dc:creator xmlns:dc="http://purl.org/dc/elements/1.1/">A</dc:creator><description><![CDATA[%s]]></description></item>`, i, i, i, strings.Repeat("<p>Some text of an entry, with <b>HTML</b> in it.</p>\n", 40))
		size += int64(len(items[i]))
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for _, item := range items {
			a, _ := entry.Read(item, "https://x.example/feed")
			a.Encode("id")
		}
	}
}
