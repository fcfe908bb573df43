package entry

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Each item becomes JSON in which nothing is lost, and which any program can read.
func TestReadItem(t *testing.T) {
	const base = "http://x.example/feed.json"
	for _, c := range []struct{ name, item, want string }{
		{
			"all fields", `{"id":"a","url":"/1","external_url":"http://y.example/2","title":"T","content_html":"<p>","content_text":"x","summary":"s","image":"i.png",
			"date_published":"2026-01-01T00:00:00.5+01:00","date_modified":"2026-01-02T00:00:00Z","language":"de","authors":[{"name":"A","url":"u","avatar":"v"}],
			"tags":["b","c"],"attachments":[{"url":"a.mp3","mime_type":"audio/mpeg","title":"L","size_in_bytes":7,"duration_in_seconds":1.5}]}`,
			`{"id":"a","url":"http://x.example/1","title":"T","content_html":"<p>","content_text":"x","summary":"s","image":"http://x.example/i.png",
			"date_published":"2026-01-01T00:00:00.5+01:00","date_modified":"2026-01-02T00:00:00Z","language":"de","authors":[{"name":"A","url":"u","avatar":"v"}],
			"tags":["b","c"],"attachments":[{"url":"http://x.example/a.mp3","mime_type":"audio/mpeg","title":"L","size_in_bytes":7,"duration_in_seconds":1.5}],
			"links":[{"rel":"alternate","href":"http://x.example/1"},{"rel":"related","href":"http://y.example/2"}]}`,
		},
		{"case 22: version 1", `{"id":"a","author":{"name":"A"}}`, `{"id":"a","authors":[{"name":"A"}]}`},
		{"case 22: both", `{"id":"a","author":{"name":"A"},"authors":[{"name":"B"}]}`, `{"id":"a","authors":[{"name":"B"}],"extensions":{"JF":{"author":[{"value":{"name":"A"}}]}}}`},
		{"case 23: empty and null", `{"id":"a","title":"","summary":null,"content_text":"x"}`, `{"id":"a","content_text":"x"}`},
		{"case 24: no RFC 3339", `{"id":"a","date_published":"Thu, 01 Jan 2026 00:00:00 GMT","date_modified":"soon"}`, `{"id":"a","date_published":"2026-01-01T00:00:00Z","extensions":{"JF":{"date_modified":[{"value":"soon"}]}}}`},
		{
			"case 25: sizes as strings", `{"id":"a","attachments":[{"url":"u:1","size_in_bytes":"12"},{"url":"u:2","duration_in_seconds":"3"}]}`,
			`{"id":"a","attachments":[{"url":"u:1","size_in_bytes":12},{"url":"u:2","duration_in_seconds":3}]}`,
		},
		{
			"case 25: negative", `{"id":"a","attachments":[{"url":"u:1","size_in_bytes":-1}]}`,
			`{"id":"a","attachments":[{"url":"u:1"}],"extensions":{"JF":{"attachments":[{"value":[{"url":"u:1","size_in_bytes":-1}]}]}}}`,
		},
		{"case 26: custom objects", `{"id":"a","_x":{"b":[1,null]},"banner_image":"b"}`, `{"id":"a","extensions":{"JF":{"_x":[{"value":{"b":[1,null]}}],"banner_image":[{"value":"b"}]}}}`},
		{"case 28: 1e309", `{"id":"a","_x":{"n":1e309}}`, `{"id":"a","extensions":{"JF":{"_x":[{"text":"{\"n\":1e309}"}]}}}`},
		{"case 28: lone surrogates", `{"id":"a","title":"\ud800x","_x":"\udfff"}`, `{"id":"a","title":"` + "\uFFFD" + `x","extensions":{"JF":{"_x":[{"value":"\udfff"}]}}}`},
		{"other types", `{"id":7,"title":["x"],"tags":"a"}`, `{"id":"","extensions":{"JF":{"id":[{"value":7}],"tags":[{"value":"a"}],"title":[{"value":["x"]}]}}}`},
	} {
		var got, want any
		b := ReadItem([]byte(c.item), base).Marshal()
		must.Succeed(t, json.Unmarshal(b, &got))
		must.Succeed(t, json.Unmarshal([]byte(strings.ReplaceAll(c.want, `"JF"`, `"`+JSONFeed+`"`)), &want))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got): %s", c.name, diff)
		}
	}
	if d := ReadItem([]byte("7"), base); d != nil {
		t.Errorf("a number is %v", d)
	}
}
