package feedxml

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// An entry above the limit comes with the beginning of its body, whatever it consists of, and the
// entries around it are read.
func TestLargeEntry(t *testing.T) {
	t.Parallel()
	const limit = 20_000
	text := strings.Repeat("äöü ", 4_000)
	xhtml := strings.Repeat("<div><p class='a>b'></p></div>", 1_000)
	ids := `<guid>b</guid><link>http://e/b</link><title>T</title><pubDate>Tue, 05 Oct 1999 03:00:00 GMT</pubDate>`
	for name, content := range map[string]string{
		"text":                  text,
		"text between children": "<x/>" + text + "<y>" + text + "</y>",
		"CDATA":                 "<description><![CDATA[</item><item><guid>x</guid></item>" + text + "]] ></item>]]></description>",
		"comment":               "<!-- </item><item> " + text + "-->",
		"instruction":           "<?x </item> " + text + "?>",
		"elements":              "<description>" + xhtml + "</description>",
		"attribute":             `<description><img src="data:>'` + text + `"/></description>`,
		"small children":        strings.Repeat("<x>1</x>", 3_000),
		"one child near the limit of those that are read": "<x>" + strings.Repeat("x", 16_380) + "</x><y>" + text + "</y>",
	} {
		for _, options := range []Options{{}, {Lenient: true}} {
			options.Limits.Entry, options.CutEntries = limit, true
			for _, item := range []string{"<item m:a='1'>" + ids + content + "</item>", "<item m:a='1'>" + content + ids + "</item >"} {
				if name == "small children" && strings.HasSuffix(item, ids+"</item >") {
					continue // the ID is among the children that are too many
				}
				parallel.Run(t, fmt.Sprint(name, options, item[14:20]), func(t *testing.T) {
					doc := `<rss xmlns:m="urn:m"><channel><item><guid>a</guid></item>` + item + `<item><guid>c</guid></item></channel></rss>`
					entries, err := read(NewReader(strings.NewReader(doc), options))
					slow, slowErr := read(NewReader(iotest.OneByteReader(strings.NewReader(doc)), options))
					if diff := cmp.Diff(slow, entries); diff != "" || err != nil || slowErr != nil || len(entries) != 3 {
						t.Fatalf("got %d entries, %v, %v, %s", len(entries), err, slowErr, diff)
					}
					e := entries[1]
					if e.ID != "b" || e.Published.Time.IsZero() || e.Offset != 57 || e.Length != int64(len(item)) || e.TitleHash == 0 {
						t.Errorf("got %q, %v, offset %d, length %d of %d", e.ID, e.Published, e.Offset, e.Length, len(item))
					}
					body := string(e.Body)
					if start := "<item xmlns:m=\"urn:m\" " + item[len("<item "):limit-40]; !strings.HasPrefix(body, start) || len(body) > limit+30 {
						t.Errorf("the body has %d bytes and begins with %q", len(body), body[:100])
					}
					if !utf8.Valid(e.Body) {
						t.Error("the body ends within a character")
					}
					if entries[0].ID != "a" || entries[2].ID != "c" || entries[0].Length != 0 || entries[2].Index != 2 {
						t.Errorf("around it are %+v", entries)
					}
					// A change behind the beginning is a change.
					at := strings.LastIndex(item, "</item")
					changed, err := read(NewReader(strings.NewReader(strings.Replace(doc, item, item[:at]+"<z/>"+item[at:], 1)), options))
					if err != nil || changed[1].Hash == e.Hash {
						t.Errorf("the hash is the same, %v", err)
					}
				})
			}
		}
	}
}

func TestLargeEntryThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	const open = `<rss><channel><item><guid>a</guid></item>`
	for name, tt := range map[string]struct {
		doc     string
		want    error  // of a strict reader
		lenient string // the IDs and the number of entries that are left out
	}{
		"the document breaks off": {"<item><guid>b</guid>" + strings.Repeat("x", 5000), ErrTruncated, "a 1"},
		"its end tag is missing":  {"<item><guid>b</guid>" + strings.Repeat("x", 5000) + "</channel></rss>", ErrMalformed, "a b 0"},
		"no ID, in two entries": {
			"<item><a>" + strings.Repeat("x", 5000) + "</a></item><item><a>" + strings.Repeat("y", 5000) + "</a></item></channel></rss>", nil,
			"a 69701a6306f47ad0675e49b63a3d531a86b120afad5a8397a65e8bdc39d1c82c cfe3fa4821e5014831b39b22bc3859ca038312eecb77c65ea1d456659f27e04a 0",
		},
		"another end tag":         {"<item><b></item>" + strings.Repeat("x", 5000) + "</item></channel></rss>", ErrMalformed, "a df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119 0"},
		"a start tag that large":  {"<item a='" + strings.Repeat("x", 5000) + "'/></channel></rss>", ErrTooLarge, "a 0"},
		"a fault in what is read": {"<item><guid>b & c</guid>" + strings.Repeat("x", 5000) + "</item></channel></rss>", ErrMalformed, "a b & c 0"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			options := Options{Limits: Limits{Entry: 1000}, CutEntries: true}
			entries, err := read(NewReader(strings.NewReader(open+tt.doc), options))
			if !errors.Is(err, tt.want) || entries[0].ID != "a" {
				t.Errorf("strictly: %d entries, %v", len(entries), err)
			}
			options.Lenient = true
			r := NewReader(strings.NewReader(open+tt.doc), options)
			entries, err = read(r)
			got := ""
			for _, e := range entries {
				got += e.ID + " "
			}
			if got += fmt.Sprint(r.Faults().LeftOut); got != tt.lenient || err != nil && !errors.Is(err, tt.want) {
				t.Errorf("leniently: %q, %v", got, err)
			}
		})
	}
	parallel.Run(t, "memory", func(t *testing.T) {
		for _, text := range []string{"x", "<a>", "<a/>", "<id/>", "<!-- -->", "<a b='", "&", "]]"} {
			r := NewReader(io.MultiReader(strings.NewReader(open+"<item>"), &endless{text: text, left: 32 << 20}), Options{Limits: Limits{Entry: 1 << 20}, CutEntries: true})
			if _, err := read(r); !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrMalformed) || len(r.in.buf) > 4<<20 {
				t.Errorf("%q: %v with a buffer of %d bytes", text, err, len(r.in.buf))
			}
		}
	})
}
