package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
	"unicode"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

// FuzzTail prints messages that others wrote. Each is one line of JSON without control characters, with the
// body as it is, or without the white space of JSON.
func FuzzTail(f *testing.F) {
	f.Add("Content-ID", "1@x", "http-equiv=PUT", "Thu, 5 Oct 2023 03:00:13 GMT", []byte("key"), []byte("body"), false)
	f.Add("Operation-Type", "\x1b[2J\n", "", "9999-12-31T23:59:60Z", []byte(nil), []byte("\u2028\xff\x00"), true)
	f.Add("Content-Type", "application/json", "", "", []byte(nil), []byte("{\"a\": [\"\u009b\",\n1.0]}"), false)
	f.Add("Feedbridge-Dead-Length", "9", "", "", []byte(nil), []byte("{}"), false)
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, name, value, op, modified string, key, body []byte, tombstone bool) {
		print := func(value string, body []byte) {
			var out bytes.Buffer
			w := &messageWriter{lines: newEntityWriter(&out)}
			r := feed.Record{Position: 1, Time: time.Unix(0, 0).UTC(), Key: key, Body: body, Tombstone: tombstone, Header: feed.Header{
				{Name: name, Value: value}, {Name: "Operation-Type", Value: op}, {Name: "Last-Modified", Value: modified},
			}}
			must.Succeed(t, w.write(newMessageLine(&r, 0)))
			line, isLine := bytes.CutSuffix(out.Bytes(), []byte("\n"))
			var got tailedLine
			if err := json.Unmarshal(line, &got); err != nil || !isLine || bytes.ContainsFunc(line, unicode.IsControl) {
				t.Fatalf("%q: %v", out.Bytes(), err)
			}
			var compact bytes.Buffer
			switch {
			case tombstone && got.Body == nil, got.text() == string(body), got.Body == nil && bytes.Equal(got.Base64, body):
			case json.Compact(&compact, body) == nil && bytes.Equal(got.Body, safetext.JSON(compact.Bytes())):
			default:
				t.Fatalf("the body %q is %s", body, line)
			}
		}
		print(value, body)
		cputime.CheckRepeated(t, value, func(text string) { print(text, body) })
		cputime.CheckRepeated(t, string(body), func(text string) { print(value, []byte(text)) })
	}))
}
