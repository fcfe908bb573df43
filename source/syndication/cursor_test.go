package syndication

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

var update = flag.Bool("update", false, "write the golden files")

// sameCursor compares the groups of fields of a cursor.
var sameCursor = cmp.AllowUnexported(cursor{})

// goldenCursor is the file with the stored form of fullCursor.
var goldenCursor = filepath.Join("testdata", "cursor.v1.json")

// fullCursor has something in every field.
func fullCursor() cursor {
	cur := cursor{
		Version: 1, startPosition: startPosition{Start: "now", Since: 7}, detected: detected{Archived, feedxml.Atom, feedxml.NewestFirst, "json"},
		redirect: redirect{
			URL: "https://feed.example/new", From: hashOf("https://feed.example/feed"),
			Moved: &moved{To: "https://feed.example/newer", Since: 1, Times: 2},
		},
		lastDocument: lastDocument{
			At: hashOf("https://feed.example/new"), ETag: `W/"x"`, Modified: "Tue, 05 Oct 1999 03:00:00 GMT", Body: "0f", Full: 3,
			Hints: feedxml.Hints{Period: 60, SkipHours: 3, SkipDays: 1, Expired: true},
		},
		olderDocuments: olderDocuments{
			Newest: "https://feed.example/a2", Walked: 4, Gaps: []gap{{URL: "https://feed.example/a1", Kind: kindArchiveGone, Retry: 6, Times: 1}},
			Awaited: &awaited{URL: hashOf("https://feed.example/a0"), Since: 9},
		},
		unfinished: unfinished{
			Parts: 8, Doc: &progress{URL: "u", Hash: "h", Order: feedxml.Mixed, Key: publishOrder{1, -2}, Live: 4},
			Held: &hold{Deletes: "h", Vanished: 9, Of: 10, Since: 11, Until: 12},
		},
		Tail: "https://feed.example/tail",
	}
	cur.addArchive("https://feed.example/a2")
	cur.Seen = seenKey("id", [16]byte{1})
	cur.TitleHashes = titleHashes("title/id")
	cur.Shared.setHolder(hashKey("id"), 1, 2)
	return cur
}

// visitFields calls visit for each field of a struct and of the structs in it. The path of a field
// consists of the names that lead to it.
func visitFields(v reflect.Value, path string, visit func(path string, field reflect.Value)) {
	switch kind := v.Kind(); {
	case kind == reflect.Struct:
		for i := range v.NumField() {
			visitFields(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case kind == reflect.Pointer && !v.IsNil():
		visitFields(v.Elem(), path, visit)
	case kind == reflect.Array, kind == reflect.Slice && v.Len() > 0 && v.Type().Elem().Kind() != reflect.Uint8:
		for i := range v.Len() {
			visitFields(v.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	default:
		visit(path, v)
	}
}

// A field that the full cursor does not set is neither in the golden file nor compared by the fuzz
// targets.
func TestFullCursorSetsEveryField(t *testing.T) {
	t.Parallel()
	full := fullCursor()
	visitFields(reflect.ValueOf(&full), "cursor", func(path string, field reflect.Value) {
		if field.IsZero() {
			t.Errorf("%s is not set", path)
		}
	})
}

func TestCursorIsReadForEver(t *testing.T) {
	t.Parallel()
	full := fullCursor()
	if *update {
		must.Succeed(t, os.WriteFile(goldenCursor, full.encodeCursor(), 0o644))
	}
	golden, err := os.ReadFile(goldenCursor)
	must.Succeed(t, err)
	if diff := cmp.Diff(string(golden), string(full.encodeCursor())); diff != "" {
		t.Errorf("the stored form has changed: %s", diff)
	}
	got, err := decodeCursor(golden, source.Start{})
	if diff := cmp.Diff(full, got, sameCursor); diff != "" || err != nil {
		t.Errorf("it reads as: %s; %v", diff, err)
	}
}

func TestCursorIsBounded(t *testing.T) {
	t.Parallel()
	cur := fullCursor()
	url := func(i int) string {
		return "https://feed.example/" + strings.Repeat("x", 450) + time.Duration(i).String()
	}
	for i := range 2000 {
		cur.addArchive(url(i))
		cur.Gaps = append(cur.Gaps, gap{URL: url(i)})[max(0, len(cur.Gaps)-maxGaps+1):]
	}
	cur.Seen, cur.Shared = make([]byte, maxSeen*seenBytes), make(sharedIDs, maxShared*sharedBytes)
	cur.ETag, cur.Modified = strings.Repeat("e", longestValidator), strings.Repeat("m", longestValidator)
	data := cur.encodeCursor()
	got, err := decodeCursor(data, source.Start{})
	if err != nil || len(data) > maxCursor {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if !got.hasArchive(url(1999)) || !got.hasArchive(url(1700)) || got.hasArchive(url(900)) || len(got.Gaps) != maxGaps {
		t.Errorf("it has %d archives and %d gaps", len(got.Archives)/archiveBytes, len(got.Gaps))
	}
}

// FuzzCursor reads stored bytes. A cursor that is stored and read again is the same cursor.
func FuzzCursor(f *testing.F) {
	golden, err := os.ReadFile(goldenCursor) // a seed from encodeCursor would lack the fields that encodeCursor loses
	must.Succeed(f, err)
	f.Add(golden)
	f.Add([]byte(`{"v":1}`))
	f.Add([]byte(`{"v":1,"archives":"AAAA"}`))
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, data []byte) {
		cputime.CheckRepeated(t, string(data), func(text string) { _, _ = decodeCursor([]byte(text), source.Start{}) })
		cur, err := decodeCursor(data, source.Start{})
		if err != nil {
			return
		}
		checkStoredCursor(t, cur)
		cur.addArchive("x")
		if _, err := Describe(feed.Cursor(data)); err != nil || !cur.hasArchive("x") {
			t.Errorf("%v", err)
		}
	}))
}

// FuzzCursorFields sets every field of a cursor. FuzzCursor compares cursors that were read, so it
// cannot detect that a field is not stored and not read.
func FuzzCursorFields(f *testing.F) {
	f.Add("", []byte(nil), int64(0), false)
	f.Add("https://feed.example/?a&b", []byte("<>"), int64(1), true)
	f.Add("W/\"\u2028\\\x00\"", []byte{0, 255}, int64(math.MinInt64), true)
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, text string, hashes []byte, number int64, flag bool) {
		cur, n := fullCursor(), int64(0)
		visitFields(reflect.ValueOf(&cur), "cursor", func(path string, field reflect.Value) {
			n++ // so that fields of one type differ
			switch field.Kind() {
			case reflect.String:
				s := fmt.Sprint(n, text)
				field.SetString(strings.ToValidUTF8(s[:min(len(s), 64)], ""))
			case reflect.Slice:
				whole := make([]byte, 24) // three or four hashes
				copy(whole, append([]byte{byte(n)}, hashes...))
				field.SetBytes(whole)
			case reflect.Int, reflect.Int64:
				field.SetInt(number + n)
			case reflect.Uint32:
				field.SetUint(uint64(uint32(number + n)))
			case reflect.Bool:
				field.SetBool(flag)
			default:
				t.Fatalf("%s is of type %s, for which there is no value", path, field.Type())
			}
		})
		cur.Version, cur.Start = cursorVersion, source.Start{At: time.Unix(0, number).UTC()}.String()
		checkStoredCursor(t, cur)
	}))
}

// checkStoredCursor checks that a cursor is read as it was stored. Only a cursor that is too long
// lacks something then.
func checkStoredCursor(t *testing.T, cur cursor) {
	t.Helper()
	whole, err := json.Marshal(cur)
	must.Succeed(t, err)
	opts := cmp.Options{cmpopts.EquateEmpty(), sameCursor}
	if len(whole) > maxCursor {
		opts = append(opts, cmpopts.IgnoreFields(cursor{}, "Shared"), cmpopts.IgnoreFields(lastDocument{}, "TitleHashes"),
			cmpopts.IgnoreFields(olderDocuments{}, "Archives", "Gaps"))
	}
	want := cur
	stored := cur.encodeCursor()
	got, err := decodeCursor(stored, source.Start{})
	if err != nil {
		t.Fatalf("%s: %v", stored, err)
	}
	if diff := cmp.Diff(want, got, opts); diff != "" {
		t.Fatalf("-cursor +stored and read:\n%s", diff)
	}
}

func TestMark(t *testing.T) {
	t.Parallel()
	tests := map[string]fingerprint{
		"1;p;1700000000000000001;1700000000000000002;0102030405060708090a0b0c0d0e0f10;00000007": {
			updated: 1700000000000000001, document: 1700000000000000002,
			hash: [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, page: 7,
		},
		"1;d;;;00000000000000000000000000000000;00000000": {deleted: true},
	}
	for text, m := range tests {
		if m.String() != text {
			t.Errorf("%+v is written %s", m, m)
		}
		if got, ok := parseFingerprint(text); !ok || got != m {
			t.Errorf("%s reads as %+v", text, got)
		}
	}
	for _, text := range []string{"", "2;p;;;00000000000000000000000000000000;00000000", "1;p;;;00;00000000", "1;x;;;;", "1;p;a;;00000000000000000000000000000000;00000000"} {
		if m, ok := parseFingerprint(text); ok {
			t.Errorf("%q reads as %+v", text, m)
		}
	}
}

func FuzzMark(f *testing.F) {
	f.Add("1;p;1;2;0102030405060708090a0b0c0d0e0f10;00000007")
	f.Fuzz(mutation.OfCorpus(1000, func(t *testing.T, text string) {
		cputime.CheckRepeated(t, text, func(text string) { parseFingerprint(text) })
		m, ok := parseFingerprint(text)
		if !ok {
			return
		}
		if again, ok := parseFingerprint(m.String()); !ok || again != m {
			t.Errorf("%q, %q", text, m)
		}
	}))
}

func TestEquivalentCursors(t *testing.T) {
	t.Parallel()
	a := cursor{Version: 1, detected: detected{Format: feedxml.Atom}, lastDocument: lastDocument{ETag: `"1"`, Body: "x"}, olderDocuments: olderDocuments{Archives: []byte("12345678")}}
	for name, tt := range map[string]struct {
		change func(*cursor)
		want   bool
	}{
		"nothing":                        {func(*cursor) {}, true},
		"validators":                     {func(c *cursor) { c.ETag, c.Modified, c.Full = `"2"`, "Thu, 01 Jan 2026 00:00:00 GMT", 7 }, true},
		"hints":                          {func(c *cursor) { c.Hints = feedxml.Hints{Period: 1} }, true},
		"another document":               {func(c *cursor) { c.Body = "y" }, false},
		"an archive":                     {func(c *cursor) { c.Archives = []byte("1234567812345678") }, false},
		"the end of the start":           {func(c *cursor) { c.Start = "now" }, false},
		"a document that is half read":   {func(c *cursor) { c.Doc = &progress{} }, false},
		"deletes that are held":          {func(c *cursor) { c.Held = &hold{} }, false},
		"the URL that the feed is moved": {func(c *cursor) { c.URL = "http://x/" }, false},
	} {
		b := a
		tt.change(&b)
		if got := equivalent(a, b); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// Each dialect and each order that the configuration accepts means something.
func TestNamesOfTheConfigurationAreKnown(t *testing.T) {
	t.Parallel()
	dialects, names := DialectName("").Values(), []string{}
	for name := range profiles {
		names = append(names, string(name))
	}
	slices.Sort(dialects)
	slices.Sort(names)
	if !slices.Equal(dialects, names) {
		t.Errorf("the configuration has the dialects %v, and there are profiles for %v", dialects, names)
	}
	listed, known := OrderName("").Values(), []string{}
	for name := range orders {
		known = append(known, string(name))
	}
	slices.Sort(listed)
	slices.Sort(known)
	if !slices.Equal(listed, known) {
		t.Errorf("the configuration has the orders %v, and there are %v", listed, known)
	}
}
