package jsonpage

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

// readAll returns the items of a document and the error that ends it; nil for io.EOF.
func readAll(r *Reader) (items []string, err error) {
	for {
		it, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return items, nil
		case err != nil:
			return items, err
		case it.Err != nil:
			return items, it.Err
		}
		items = append(items, string(it.Raw))
	}
}

var feedOptions = Options{List: "items", Item: 40, Head: 60}

func TestReaderReturnsItems(t *testing.T) {
	for _, c := range []struct {
		name, doc string
		opts      Options
		items     []string
		err       error
		text      string
	}{
		{name: "batch", doc: ` [ {"a":[1,"]"]} , 2,"x\"]", null ]` + "\n", opts: Options{Item: 40}, items: []string{`{"a":[1,"]"]}`, "2", `"x\"]"`, "null"}},
		{name: "empty batch", doc: "[]", opts: Options{Item: 40}},
		{name: "feed", doc: `{"version":"1","items":[{"id":1},{"id":2}],"next_url":"x"}`, opts: feedOptions, items: []string{`{"id":1}`, `{"id":2}`}},
		{name: "escaped name of the list", doc: `{"\u0069tems":[1]}`, opts: feedOptions, items: []string{"1"}},
		{name: "breaks off behind an item", doc: `[{"a":1},{"a":2}`, opts: Options{Item: 40}, items: []string{`{"a":1}`, `{"a":2}`}, err: ErrTruncated},
		{name: "breaks off behind a comma", doc: `[{"a":1},`, opts: Options{Item: 40}, items: []string{`{"a":1}`}, err: ErrTruncated},
		{name: "breaks off in an item", doc: `[{"a":1},{"a":"]}`, opts: Options{Item: 40}, items: []string{`{"a":1}`}, err: ErrTruncated},
		{name: "breaks off in a number", doc: `[1, 23`, opts: Options{Item: 40}, items: []string{"1"}, err: ErrTruncated},
		{name: "breaks off behind the list", doc: `{"items":[1]`, opts: feedOptions, items: []string{"1"}, err: ErrTruncated},
		{name: "empty", doc: " \n", opts: Options{Item: 40}, err: ErrTruncated},
		{name: "object for a list", doc: `{"error":"x"}`, opts: Options{Item: 40}, err: ErrNotPage, text: "begins with '{', and not as a list"},
		{name: "html", doc: "<html>", opts: feedOptions, err: ErrNotPage, text: "begins with '<'"},
		{name: "no list", doc: `{"a":1}`, opts: feedOptions, err: ErrNotPage, text: `no list "items"`},
		{name: "list is an object", doc: `{"items":{}}`, opts: feedOptions, err: ErrNotPage, text: "not one list"},
		{name: "two lists", doc: `{"items":[1],"items":[2]}`, opts: feedOptions, items: []string{"1"}, err: ErrNotPage, text: "not one list"},
		{name: "trailing comma", doc: `[1,]`, opts: Options{Item: 40}, items: []string{"1"}, err: ErrMalformed, text: "line 1, column 4: there is a comma in front of ']'"},
		{name: "trailing comma of the object", doc: `{"items":[],}`, opts: feedOptions, err: ErrMalformed, text: "comma in front of '}'"},
		{name: "no comma", doc: `[1 2]`, opts: Options{Item: 40}, items: []string{"1"}, err: ErrMalformed},
		{name: "comment", doc: "[1,\n// x\n2]", opts: Options{Item: 40}, items: []string{"1"}, err: ErrMalformed, text: "line 2, column"},
		{name: "missing item", doc: `[,1]`, opts: Options{Item: 40}, err: ErrMalformed},
		{name: "something follows", doc: `[1] x`, opts: Options{Item: 40}, items: []string{"1"}, err: ErrMalformed, text: "something follows"},
		{name: "control character", doc: "[\"\x00\"]", opts: Options{Item: 40}, err: ErrMalformed},
		{name: "number beyond all", doc: `[1e309]`, opts: Options{Item: 40}, items: []string{"1e309"}},
		{name: "wrong brackets", doc: `[{"a":1]]`, opts: Options{Item: 40}, err: ErrMalformed},
		{name: "name that is no string", doc: `{1:2}`, opts: feedOptions, err: ErrMalformed},
		{name: "no colon", doc: `{"a",1}`, opts: feedOptions, err: ErrMalformed, text: "colon"},
		{name: "invalid member", doc: `{"a":tru,"items":[]}`, opts: feedOptions, err: ErrMalformed, text: `value of "a"`},
		{name: "large head", doc: `{"a":"` + strings.Repeat("x", 60) + `","items":[]}`, opts: feedOptions, err: ErrTooLarge, text: "more than 60 bytes"},
		{name: "large name", doc: `{"` + strings.Repeat("x", 60) + `":1,"items":[]}`, opts: feedOptions, err: ErrTooLarge, text: "more than 60 bytes"},
		{name: "deep", doc: "[" + strings.Repeat("[", 1001), opts: Options{Item: 4000}, err: ErrTooLarge, text: "deeper than 1000: the document is above a limit that no key changes; report this to the provider"},
	} {
		for _, split := range []bool{false, true} {
			var in io.Reader = strings.NewReader(c.doc)
			if split {
				in = iotest.OneByteReader(in)
			}
			items, err := readAll(NewReader(in, c.opts))
			if diff := cmp.Diff(c.items, items); diff != "" {
				t.Errorf("%s: items (-want +got):\n%s", c.name, diff)
			}
			if !errors.Is(err, c.err) || c.err == nil && err != nil || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: error %v, want %v with %q", c.name, err, c.err, c.text)
			}
		}
	}
}

func TestReaderKeepsTheOtherMembers(t *testing.T) {
	r := NewReader(strings.NewReader(`{"a":1,"items":[1],"a":{"b":[2]},"c":"x"}`), feedOptions)
	if _, err := readAll(r); err != nil {
		t.Fatal(err)
	}
	want := map[string]json.RawMessage{"a": json.RawMessage(`{"b":[2]}`), "c": json.RawMessage(`"x"`)}
	if diff := cmp.Diff(want, r.Head()); diff != "" {
		t.Error(diff)
	}
	if got := r.Repeated(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("repeated %q", got)
	}
}

// An item above the limit is skipped with bounded memory, and the items behind it are read.
func TestReaderCutsLargeItems(t *testing.T) {
	large := `{"a":"` + strings.Repeat("x", 1<<20) + `]"}`
	doc := `[1,` + large + ` ,2]`
	r := NewReader(strings.NewReader(doc), Options{Item: 10})
	var items []Item
	for {
		it, err := r.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break
		}
		items = append(items, it)
	}
	if len(items) != 3 {
		t.Fatalf("%d items", len(items))
	}
	it := items[1]
	if string(it.Raw) != large[:10] || it.Length != int64(len(large)) || it.Sum != sha256.Sum256([]byte(large)) || it.Offset != 3 {
		t.Errorf("got %q, length %d, offset %d", it.Raw, it.Length, it.Offset)
	}
	if string(items[2].Raw) != "2" || items[2].Length != 0 || items[2].Offset != int64(strings.LastIndex(doc, "2")) {
		t.Errorf("behind it: %q at %d", items[2].Raw, items[2].Offset)
	}
	if cap(it.Raw) > 1000 {
		t.Errorf("the beginning has a capacity of %d", cap(it.Raw))
	}
}

// What breaks off in the network has whole items before it too.
func TestReaderReturnsItemsBeforeAnError(t *testing.T) {
	broken := errors.New("connection reset")
	items, err := readAll(NewReader(io.MultiReader(strings.NewReader(`[1,{"a":2}`), iotest.ErrReader(broken)), Options{Item: 40}))
	if !slices.Equal(items, []string{"1", `{"a":2}`}) || !errors.Is(err, broken) {
		t.Errorf("items %q, error %v", items, err)
	}
}

// A document is read if encoding/json reads it, with the same items.
func FuzzReader(f *testing.F) {
	for _, doc := range []string{`[1,{"a":[2,"]"]},"x"]`, `{"items":[{"id":"a"}],"b":null}`, `[`, `[[[]]]`, `{"items":[],"items":[]}`, "[\"\\ud800\"]", `[1e309,-0.5]`} {
		f.Add([]byte(doc), true)
		f.Add([]byte(doc), false)
	}
	f.Fuzz(mutation.OfCorpus(100, func(t *testing.T, doc []byte, object bool) {
		opts := Options{Item: 1 << 20, Head: 1 << 20}
		if object {
			opts.List = "items"
		}
		cputime.CheckRepeated(t, string(doc), func(long string) {
			for _, begin := range []string{"", "[", `["`, `[{"a":`, `{"items":[`, `{"a":`} {
				r := NewReader(strings.NewReader(begin+long), opts)
				for it, err := r.Next(); err == nil; it, err = r.Next() {
					_, _ = Members(it.Raw)
				}
			}
		})
		items, err := readAll(NewReader(bytes.NewReader(doc), opts))
		split, splitErr := readAll(NewReader(iotest.OneByteReader(bytes.NewReader(doc)), opts))
		if !slices.Equal(items, split) || (err == nil) != (splitErr == nil) {
			t.Fatalf("whole: %q, %v; byte by byte: %q, %v", items, err, split, splitErr)
		}
		for _, it := range items {
			if !json.Valid([]byte(it)) {
				t.Fatalf("item %q", it)
			}
		}
		var want []json.RawMessage
		switch {
		case errors.Is(err, ErrTooLarge) || errors.Is(err, ErrNotPage):
			return
		case (err == nil) != json.Valid(doc):
			t.Fatalf("error %v, and valid is %v", err, json.Valid(doc))
		case err != nil:
			return
		case object:
			var whole map[string]json.RawMessage
			if err := json.Unmarshal(doc, &whole); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(whole["items"], &want); err != nil {
				t.Fatal(err)
			}
		default:
			if err := json.Unmarshal(doc, &want); err != nil {
				t.Fatal(err)
			}
		}
		if len(want) != len(items) {
			t.Fatalf("%d items, want %d", len(items), len(want))
		}
		for i := range want {
			if string(want[i]) != items[i] {
				t.Fatalf("item %d is %q, want %q", i, items[i], want[i])
			}
		}
	}))
}
