package config

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/text/encoding/charmap"
)

// inUTF16 returns a text with a byte order mark.
func inUTF16(text string, bigEndian bool) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		low, high := byte(unit), byte(unit>>8)
		if bigEndian {
			low, high = high, low
		}
		b.Write([]byte{low, high})
	}
	return b.String()
}

// TestListEncodings reads lists as old programs export them.
func TestListEncodings(t *testing.T) {
	t.Parallel()
	opml := func(encoding string) string {
		return "<?xml version=\"1.0\" encoding=\"" + encoding + "\"?>\n<opml><body><outline text=\"Bücher – €\" xmlUrl=\"https://a.example.com/ü\"/></body></opml>"
	}
	windows, err := charmap.Windows1252.NewEncoder().String(opml("windows-1252"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"windows-1252":                 windows,
		"ISO-8859-1":                   strings.Replace(windows, "windows-1252", "ISO-8859-1", 1),
		"UTF-16LE":                     inUTF16(opml("UTF-16"), false),
		"UTF-16BE":                     inUTF16(opml("UTF-16"), true),
		"UTF-16 in name only":          opml("UTF-16"),
		"UTF-8 that is declared ASCII": opml("us-ascii"),
	} {
		got, err := ParseList([]byte(text))
		if err != nil || len(got) != 1 || got[0] != (Entry{URL: "https://a.example.com/ü", Line: 2, Title: "Bücher – €"}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, order := range map[string]bool{"UTF-16LE": false, "UTF-16BE": true} {
		got, err := ParseList([]byte(inUTF16("- https://a.example.com/ü\n", order)))
		if err != nil || len(got) != 1 || got[0].URL != "https://a.example.com/ü" {
			t.Errorf("YAML in %s: %+v, %v", name, got, err)
		}
	}
}

// TestBadLists reads documents that no list should be. Those with an error have one with its cure, in bounded memory.
func TestBadLists(t *testing.T) {
	t.Parallel()
	lol := "<!DOCTYPE opml [<!ENTITY l0 'http://a/'>"
	for n := range 20 {
		lol += fmt.Sprintf("<!ENTITY l%d '%s'>", n+1, strings.Repeat(fmt.Sprintf("&l%d;", n), 10))
	}
	nested := func(chains, depth int) string {
		return "<opml><body>" + strings.Repeat(strings.Repeat("<outline xmlUrl='http://a/'>", depth)+strings.Repeat("</outline>", depth), chains) + "</body></opml>"
	}
	const noEntities = `line 1: not OPML: invalid character entity &%s;: write its text in its place, since entities that a list declares are not read`
	for _, test := range []struct {
		name, text string
		entries    int
		err        string
	}{
		{"50 MB", "<opml>" + strings.Repeat(" ", 50<<20) + "</opml>", 0, "the list has more than 16777216 bytes; divide it into several"},
		{"small in its encoding, and large in UTF-8", "<?xml version='1.0' encoding='windows-1252'?><opml>" + strings.Repeat("\x80", MaxList/2), 0, "the list has more than 16777216 bytes; divide it into several"},
		{"100,000 outlines, 1,000 deep", nested(100, 1_000), 100_000, ""},
		{"100,000 outlines, 1,001 deep", nested(100, 1_001), 0, "line 1: outlines are nested more than 1000 deep; write the feeds side by side"},
		{"an internal entity", "<!DOCTYPE opml [<!ENTITY e 'http://a/'>]><opml><outline xmlUrl='&e;'/></opml>", 0, fmt.Sprintf(noEntities, "e")},
		{"an external entity", "<!DOCTYPE opml [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><opml><outline xmlUrl='&e;'/></opml>", 0, fmt.Sprintf(noEntities, "e")},
		{"an external document type", "<!DOCTYPE opml SYSTEM 'http://127.0.0.1/opml.dtd'><opml><outline xmlUrl='http://a/'/></opml>", 1, ""},
		{"a billion laughs", lol + "]><opml><outline xmlUrl='&l20;'/></opml>", 0, fmt.Sprintf(noEntities, "l20")},
		{"a billion laughs that nobody hears", lol + "]><opml><outline xmlUrl='http://a/'/></opml>", 1, ""},
		{"aliases in YAML", "- &a [x, x]\n- &b [*a, *a]\n- [*b, *b]\n", 3, ""}, // entries without a URL
		{"no declared encoding", "<opml><outline text='\xfc' xmlUrl='http://a/'/></opml>", 0, `line 1: not OPML: invalid UTF-8: declare its encoding, as by <?xml version="1.0" encoding="windows-1252"?>`},
		{"an unknown encoding", "<?xml version='1.0' encoding='klingon'?><opml/>", 0, `the list's encoding is "klingon", as its XML declaration says: this encoding is not known; write it in UTF-8`},
		{"UTF-32", "\xff\xfe\x00\x00<\x00\x00\x00", 0, `this encoding is not known to feedbridge; write it in UTF-8`},
		{"HTML in UTF-16", inUTF16("<!DOCTYPE html><html><br></html>", false), 0, "this is an HTML page, not a list; want the URL of its OPML document"},
	} {
		got, err := ParseList([]byte(test.text))
		if len(got) != test.entries || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %d entries, want %d; error %v, want %s", test.name, len(got), test.entries, err, test.err)
		}
	}

	base, err := Load(Options{File: "testdata/feeds_from.good.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	same, err := ParseList([]byte(strings.Repeat("- https://a.example.com/feed\n", 50)))
	if err != nil {
		t.Fatal(err)
	}
	got, refused := base.WithLists(map[string][]Entry{"blogs": same}, nil)
	const last = "feeds_from.blogs:50: another entry, of this list or another one, has this URL too; the entry that was used before stays, or else the first is used"
	if len(got.Feeds) != len(base.Feeds)+1 || len(refused) != 49 || refused[48].Error() != last {
		t.Errorf("one URL 50 times: %d feeds, %v", len(got.Feeds), refused)
	}
}
