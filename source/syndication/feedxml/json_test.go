package feedxml

import (
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// jsonFeed returns a JSON Feed with some members of its object, and items.
func jsonFeed(members string, items ...string) string {
	return `{` + members + `"version":"https://jsonfeed.org/version/1.1","title":"T","items":[` + strings.Join(items, ",") + `]}`
}

func TestItemsOfJSON(t *testing.T) {
	long := strings.Repeat("x", 9000)
	for _, c := range []struct {
		name, item string
		id         string
		from       IDSource
		kinds      []string
	}{
		{"case 21: text", `{"id":"a b","url":"http://x.example/1"}`, "a b", FromID, nil},
		{"case 21: outer blanks", `{"id":" a ","url":"http://x.example/1"}`, " a ", FromID, nil},
		{"case 21: blanks", `{"id":" ","url":"http://x.example/1"}`, "http://x.example/1", FromLink, []string{kindWeakID}},
		{"case 21: number", `{"id":12.50,"url":"http://x.example/1"}`, "12.50", FromID, nil},
		{"case 21: bool", `{"id":true}`, "true", FromID, nil},
		{"case 21: null", `{"id":null,"url":"/1"}`, "http://x.example/1", FromLink, []string{kindWeakID}},
		{"case 21: empty", `{"id":"","url":"http://x.example/1"}`, "http://x.example/1", FromLink, []string{kindWeakID}},
		{"case 21: an object", `{"id":{},"external_url":"http://x.example/2"}`, "http://x.example/2", FromLink, []string{kindWeakID}},
		{"case 21: missing", `{"content_text":"a"}`, "", FromHash, []string{kindWeakID}},
		{"a long id", `{"id":"` + long + `"}`, "", FromID, []string{kindLongID}},
		{"case 28: twice", `{"id":"a","id":"b"}`, "b", FromID, []string{kindRepeatedMember}},
		{"case 28: lone surrogates", `{"id":"a\ud800"}`, "a%uD800", FromID, []string{kindInvalidText}},
		{"case 28: in a text", `{"id":"a","title":"\udc00\\udc00"}`, "a", FromID, []string{kindInvalidText}},
		{"case 28: 1e309", `{"id":"a","_x":1e309}`, "a", FromID, nil},
		{"case 24: no date", `{"id":"a","date_published":"soon"}`, "a", FromID, []string{kindBadDate}},
	} {
		r := NewReader(strings.NewReader(jsonFeed("", c.item)), Options{URL: "http://x.example/f"})
		entries, err := read(r)
		must.Succeed(t, err)
		e := entries[0]
		if c.id != "" && e.ID != c.id || e.IDFrom != c.from || e.ID == "" || string(e.Body) != c.item {
			t.Errorf("%s: ID %q from %s, body %s", c.name, e.ID, e.IDFrom, e.Body)
		}
		if diff := cmp.Diff(c.kinds, kinds(r.Violations())); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// The description may stand before and behind the items and what a reader has before the end does not matter.
func TestDescriptionOfJSON(t *testing.T) {
	doc := `{"items":[{"id":"a","date_modified":"2026-01-02T00:00:00Z"},{"id":"b","date_modified":"2026-01-01T00:00:00+01:00"}],
		"hubs":[{"type":"WebSub","url":"http://hub.example/"}],"author":{"name":"Old"},"authors":[{"name":"A"},{"url":"http://b.example"}],
		"home_page_url":"http://x.example/","feed_url":"http://x.example/f","next_url":"?page=2","expired":true,"title":"T","title":"U","version":"http://jsonfeed.org/version/1"}`
	entries, err := readEveryWay(t, doc, Options{URL: "http://x.example/f"})
	must.Succeed(t, err)
	if diff := cmp.Diff([]string{"a", "b"}, ids(entries)); diff != "" {
		t.Error(diff)
	}
	r := NewReader(strings.NewReader(doc), Options{URL: "http://x.example/f"})
	_, err = read(r)
	must.Succeed(t, err)
	want := &Meta{
		URL: "http://x.example/f", Format: JSON, Version: "http://jsonfeed.org/version/1", ID: "http://x.example/f", Title: "U", Authors: []string{"A", "http://b.example"},
		Links: []Link{
			{Rel: "alternate", Href: "http://x.example/", Raw: "http://x.example/"},
			{Rel: "self", Href: "http://x.example/f", Raw: "http://x.example/f"},
			{Rel: "next", Href: "http://x.example/f?page=2", Raw: "?page=2"},
		},
		Hints: Hints{Expired: true}, Order: NewestFirst,
	}
	if diff := cmp.Diff(want, r.Meta()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{kindRepeatedMember, kindHubs, kindExpired}, kinds(r.Violations())); diff != "" {
		t.Error(diff)
	}
}

func TestDetectJSON(t *testing.T) {
	for name, doc := range map[string]string{
		"case 20: first": jsonFeed(""), "case 20: blanks and BOM": "\ufeff \n" + jsonFeed(""), "case 20: behind the items": jsonFeed("", `{"id":"a"}`),
		"case 28: UTF-16": "\xfe\xff" + utf16(jsonFeed("")),
	} {
		if got, err := Detect(strings.NewReader(doc), Options{URL: docURL, ContentType: "text/plain"}); got != JSON || err != nil {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		entries, err := readEveryWay(t, doc, Options{URL: docURL})
		must.Succeed(t, err)
		_ = entries
	}
	for name, doc := range map[string]string{"an answer of an API": `{"error":"no"}`, "GeoJSON": `{"type":"FeatureCollection","items":[]}`, "a list": `[{"id":1}]`, "version 10": `{"version":"https://jsonfeed.org/version/10","items":[]}`} {
		if got, err := Detect(strings.NewReader(doc), Options{URL: docURL}); !errors.Is(err, ErrNotFeed) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func utf16(ascii string) string {
	var b strings.Builder
	for _, c := range []byte(ascii) {
		b.WriteByte(0)
		b.WriteByte(c)
	}
	return b.String()
}

// A lenient reader publishes what is whole: a fault costs at most its item.
func TestLenientJSON(t *testing.T) {
	for _, c := range []struct {
		name, doc string
		ids       []string
		faults    Faults
	}{
		{"whole", jsonFeed("", `{"id":"a"}`), []string{"a"}, Faults{}},
		{"a control character", jsonFeed("", `{"id":"a"}`, "{\"id\":\"b\n\"}", `{"id":"c"}`), []string{"a", "c"}, Faults{Count: 1, LeftOut: 1}},
		{"an item that is no object", jsonFeed("", `{"id":"a"}`, "7", `{"id":"c"}`), []string{"a", "c"}, Faults{Count: 1, LeftOut: 1}},
		{"breaks off", strings.TrimSuffix(jsonFeed("", `{"id":"a"}`, `{"id":"b"}`), `"}]}`), []string{"a"}, Faults{Count: 1, Truncated: true}},
	} {
		r := NewReader(strings.NewReader(c.doc), Options{URL: docURL, Lenient: true})
		entries, err := read(r)
		must.Succeed(t, err)
		got := *r.Faults()
		got.first = nil
		if diff := cmp.Diff(c.faults, got, cmp.AllowUnexported(Faults{})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if diff := cmp.Diff(c.ids, ids(entries)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if c.faults.Count > 0 && (r.Faults().Err() == nil || strings.Contains(r.Faults().First(), docURL) || c.faults.Truncated && !strings.HasSuffix(r.Faults().First(), ": the document breaks off before it is complete")) {
			t.Errorf("%s: error %v, fault %q", c.name, r.Faults().Err(), r.Faults().First())
		}
	}
}

// An error says once what is wrong, and has one cure.
func TestErrorsOfJSON(t *testing.T) {
	for doc, want := range map[string]string{
		`{"a":`:                                 ": line 1, column 6: " + ErrTruncated.Error(),
		jsonFeed("", strings.Repeat("[", 1001)): ": line 1, column 1068: values are nested deeper than 1000: the document is above a limit that no key changes; report this to the provider",
	} {
		if _, err := read(NewReader(strings.NewReader(doc), Options{URL: docURL})); err == nil || err.Error() != docURL+want {
			t.Errorf("got %v", err)
		}
	}
	if _, err := read(NewReader(strings.NewReader(jsonFeed("", strings.Repeat("[", 1001))), Options{URL: docURL})); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

// An item above the limit has its ID, if that is in its beginning, and the hash of all of it.
func TestLargeItemOfJSON(t *testing.T) {
	large := `{"id":"b","content_text":"` + strings.Repeat("x", 5000) + `"}`
	doc := jsonFeed("", `{"id":"a"}`, large, `{"id":"c"}`)
	opts := Options{URL: docURL, Limits: Limits{Entry: 1000}}
	if _, err := readEveryWay(t, doc, opts); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	opts.CutEntries = true
	entries, err := readEveryWay(t, doc, opts)
	must.Succeed(t, err)
	if diff := cmp.Diff([]string{"a", "b", "c"}, ids(entries)); diff != "" {
		t.Fatal(diff)
	}
	if e := entries[1]; e.Length != int64(len(large)) || string(e.Body) != large[:1000] {
		t.Errorf("length %d, body of %d", e.Length, len(e.Body))
	}
}

// ignore_changes_in names members of items.
func TestIgnoredMembers(t *testing.T) {
	item := func(views int) string { return fmt.Sprintf(`{"id":"a","_stats":{"views":%d,"x":1}}`, views) }
	hash := func(item string, names ...xml.Name) [32]byte {
		entries, err := read(NewReader(strings.NewReader(jsonFeed("", item)), Options{URL: docURL, HashWithout: names}))
		must.Succeed(t, err)
		return entries[0].Hash
	}
	if hash(item(1)) == hash(item(2)) {
		t.Error("a change is not seen")
	}
	views, other := xml.Name{Space: "*", Local: "views"}, xml.Name{Space: "*", Local: "nothing"}
	if hash(item(1), views, other) != hash(item(2), views, other) {
		t.Error("an ignored change is seen")
	}
}
