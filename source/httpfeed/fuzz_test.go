package httpfeed

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/internal/jsonpage"
	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
	"github.com/feedbridge/feedbridge/source"
)

// FuzzEvent reads an event. Its ID and its data are those of encoding/json, and no header can break a message.
func FuzzEvent(f *testing.F) {
	for _, event := range []string{
		`{"specversion":"1.0","id":"a","time":"2026-01-01T00:00:00Z","subject":"k","data":{"a":1}}`, `{"id":7,"data":null,"method":"delete"}`,
		`{"id":"a\n","id":"b","x":"\u0000","datacontenttype":"text/plain","data":"s"}`, `{"id":"a","data_base64":"AAE=","X-y":[]}`, `[]`, `{"id":"a","data":"x"`,
	} {
		f.Add(event)
	}
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, event string) {
		s := &Source{batch: &openBatch{resp: &source.Response{}}}
		read := func(raw string) {
			_, _, _ = s.readEvent(jsonpage.Item{Raw: []byte(raw)}, &violations{})
		}
		cputime.CheckRepeated(t, event, func(long string) {
			for _, begin := range []string{"", `{"id":"a","data":[`, `{"id":"`, `{"id":"a","data_base64":"`} {
				read(begin + long)
			}
		})
		e, asked, err := s.readEvent(jsonpage.Item{Raw: []byte(event)}, &violations{})
		if err != nil {
			return
		}
		for _, h := range e.Header {
			if strings.ContainsAny(h.Name+h.Value, "\r\n\x00") || h.Name == "" {
				t.Fatalf("%q: header %q", event, h)
			}
		}
		if !json.Valid([]byte(event)) || !utf8.ValidString(event) {
			return
		}
		var want map[string]json.RawMessage
		if json.Unmarshal([]byte(event), &want) != nil || e.ID == "" {
			t.Fatalf("%q is an event with the ID %q", event, e.ID)
		}
		var id string
		if json.Unmarshal(want["id"], &id) == nil && asked != id && !strings.ContainsRune(id, utf8.RuneError) {
			t.Fatalf("%q: the ID is %q, not %q", event, asked, id)
		}
		if data := want["data"]; len(data) > 0 && data[0] == '{' && string(e.Body) != string(data) {
			t.Fatalf("%q: the body is %q", event, e.Body)
		}
	}))
}
