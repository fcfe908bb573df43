package entry_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Whatever an entry has is in its JSON, in whatever order, also if its field is elsewhere or taken.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	const (
		dc     = ` xmlns:dc="http://purl.org/dc/elements/1.1/"`
		terms  = ` xmlns:t="http://purl.org/dc/terms/"`
		itunes = ` xmlns:i="http://www.itunes.com/dtds/podcast-1.0.dtd"`
		media  = ` xmlns:m="http://search.yahoo.com/mrss/"`
	)
	for name, c := range map[string]struct{ doc, want string }{
		"a module's element before the field": {
			`<item` + dc + `><dc:title x="1">b</dc:title><dc:description>c</dc:description><title>a</title></item>`,
			`{"title":"a","summary":"c","summary_html":"c","extensions":{"http://purl.org/dc/elements/1.1/":{"title":[{"prefix":"dc","attributes":{"x":"1"},"text":"b"}]}}}`,
		},
		"a module's element in place of the field": {`<item` + dc + `><dc:title>b</dc:title><dc:title>c</dc:title></item>`, `{"title":"b","extensions":{"http://purl.org/dc/elements/1.1/":{"title":[{"prefix":"dc","text":"c"}]}}}`},
		"dates by what they mean": {
			`<item` + terms + `><t:created>2026-01-01</t:created><t:issued>2026-01-02</t:issued></item>`,
			`{"date_published":"2026-01-02T00:00:00Z","extensions":{"http://purl.org/dc/terms/":{"created":[{"prefix":"t","text":"2026-01-01"}]}}}`,
		},
		"created in Atom 0.3": {
			`<entry xmlns="http://purl.org/atom/ns#"><created>2026-01-01T00:00:00Z</created><issued>2026-01-02T00:00:00Z</issued></entry>`,
			`{"date_published":"2026-01-02T00:00:00Z","extensions":{"http://purl.org/atom/ns#":{"created":[{"text":"2026-01-01T00:00:00Z"}]}}}`,
		},
		"created only": {`<entry xmlns="http://purl.org/atom/ns#"><created>2026-01-01T00:00:00Z</created></entry>`, `{"date_published":"2026-01-01T00:00:00Z"}`},
		"attributes of a link": {
			`<entry xmlns="http://www.w3.org/2005/Atom" xmlns:thr="urn:thr"><link rel="replies" href="r" thr:count="3" y="z"/></entry>`,
			`{"links":[{"rel":"replies","href":"http://x.example/r","attributes":{"y":"z","{urn:thr}count":"3"}}]}`,
		},
		"elements of a person": {
			`<entry xmlns="http://www.w3.org/2005/Atom" xmlns:g="urn:g"><author><name>A</name><g:image src="s"/></author></entry>`,
			`{"authors":[{"name":"A","extensions":{"urn:g":{"image":[{"prefix":"g","attributes":{"src":"s"}}]}}}]}`,
		},
		"HTML of a title of a source": {
			`<entry xmlns="http://www.w3.org/2005/Atom"><source><title type="html">a &lt;b>c&lt;/b></title></source></entry>`,
			`{"source":{"title":"a c","title_html":"a <b>c</b>"}}`,
		},
		"a category in text":        {`<entry xmlns="http://www.w3.org/2005/Atom"><category>c</category></entry>`, `{"tags":["c"]}`},
		"a permalink is relative":   {`<item><guid isPermaLink="true">a/1</guid></item>`, `{"original_id":"a/1","url":"http://x.example/a/1"}`},
		"a base of the content":     {`<entry xmlns="http://www.w3.org/2005/Atom"><title type="html" xml:base="http://t/">t</title><content type="html" xml:base="http://c/">&lt;a href='x'></content><link href="l"/></entry>`, `{"url":"http://x.example/l","title":"t","title_html":"t","content_html":"<a href='x'>","base_url":"http://c/"}`},
		"a base of the description": {`<item xml:base="/a/"><description xml:base="b/">&lt;a href='x'></description></item>`, `{"summary_html":"<a href='x'>","base_url":"http://x.example/a/b/"}`},
		"a blank between elements": {
			"<item><p>a <b>c</b> <i>d</i></p><q><b>c</b> <i>d</i></q><r>\n <b>c</b>\n</r></item>",
			`{"extensions":{"":{"p":[{"children":[{"text":"a "},{"name":"b","text":"c"},{"text":" "},{"name":"i","text":"d"}]}],
				"q":[{"children":[{"name":"b","text":"c"},{"text":" "},{"name":"i","text":"d"}]}],"r":[{"children":[{"name":"b","text":"c"}]}]}}}`,
		},
		"base64 that is none": {`<entry xmlns="http://purl.org/atom/ns#"><content mode="base64">?</content></entry>`, `{"content_text":"?"}`},
		"references of SVG":   {`<item><body xmlns="http://www.w3.org/1999/xhtml" xmlns:l="http://www.w3.org/1999/xlink"><svg><use l:href="#a"/></svg></body></item>`, `{"content_html":"<svg><use xlink:href=\"#a\"></use></svg>"}`},
		"a podcast": {
			`<item` + itunes + `><i:author>A</i:author><i:summary>S</i:summary></item>`,
			`{"authors":[{"name":"A"}],"summary":"S","extensions":{"http://www.itunes.com/dtds/podcast-1.0.dtd":{"author":[{"prefix":"i","text":"A"}],"summary":[{"prefix":"i","text":"S"}]}}}`,
		},
		"a podcast with another spelling": {
			`<item xmlns:i="http://www.itunes.com/DTDs/Podcast-1.0.dtd"><i:keywords>k, l</i:keywords><i:category text="c"/><i:image href="i"/></item>`,
			`{"image":"i","tags":["c","k","l"],"extensions":{"http://www.itunes.com/DTDs/Podcast-1.0.dtd":{"keywords":[{"prefix":"i","text":"k, l"}],
				"category":[{"prefix":"i","attributes":{"text":"c"}}],"image":[{"prefix":"i","attributes":{"href":"i"}}]}}}`,
		},
		"content of old RSS": {`<item><fullitem>&lt;p>a</fullitem></item>`, `{"content_html":"<p>a"}`},
		"a video": {
			`<entry xmlns="http://www.w3.org/2005/Atom"` + media + `><m:group><m:description>D</m:description></m:group></entry>`,
			`{"summary":"D","extensions":{"http://search.yahoo.com/mrss/":{"group":[{"prefix":"m","children":[{"name":"description","prefix":"m","text":"D"}]}]}}}`,
		},
	} {
		text, got := encode(t, c.doc)
		want := map[string]any{"id": "id"}
		must.Succeed(t, json.Unmarshal([]byte(c.want), &want))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, text, diff)
		}
		again, ok := entry.Decode(text, "http://x.example/feed")
		if !ok || string(again.Encode("id")) != string(text) {
			t.Errorf("%s: decoded and encoded again it is %s, want %s", name, again.Encode("id"), text)
		}
	}
}
