package entry_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/entry"
)

// A reader allocates a multiple of an entry's size, whatever it repeats. Other tests must not run beside it.
func TestReadIsBounded(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	var attributes strings.Builder
	for i := range 250 {
		fmt.Fprintf(&attributes, " m:a%d=''", i)
	}
	for name, doc := range map[string]string{
		"a long namespace of attributes": `<item xmlns:m="urn:` + long + `">` + strings.Repeat("<m:a"+attributes.String()+">", 40) + strings.Repeat("</m:a>", 40) + `</item>`,
		"a long base":                    `<item xml:base="http://x/` + long + `/">` + strings.Repeat(`<a xml:base="x"/><link href="/x"/>`, 2000) + `</item>`,
		"many sources": `<entry xmlns="http://www.w3.org/2005/Atom" xml:base="http://x/` + long + `/">` +
			strings.Repeat(`<source><link href="x"/></source>`, 2000) + `</entry>`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, ok := entry.Read([]byte(doc), "http://x.example/feed"); !ok {
			t.Errorf("%s: it is not read", name)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 100*uint64(len(doc)) {
			t.Errorf("%s: %d bytes are allocated for %d", name, n, len(doc))
		}
	}
}

// Elements keep their namespaces, with prefixes that are bound once.
func TestPrefixesOfExtensions(t *testing.T) {
	t.Parallel()
	long := "urn:" + strings.Repeat("x", 1000)
	for name, c := range map[string]struct{ doc, want string }{
		"a prefix like that of an attribute": {`<ns1:foo xmlns:ns1="urn:u" ns1:bar="x"/>`, `<xns1:foo xmlns:xns1="urn:u" xmlns:ns1="urn:u" ns1:bar="x"></xns1:foo>`},
		"below another": {
			`<a:r xmlns:a="urn:a" xmlns:ns2="urn:b" xmlns:q="urn:q"><ns2:c><ns2:g q:k="1"/></ns2:c></a:r>`,
			`<a:r xmlns:a="urn:a"><xns2:c xmlns:xns2="urn:b"><xns2:g xmlns:ns2="urn:q" ns2:k="1"></xns2:g></xns2:c></a:r>`,
		},
		"two prefixes of a namespace": {
			`<x xmlns="` + long + `" xmlns:p="` + long + `">` + strings.Repeat("<p:a/>", 3) + `</x>`,
			`<x xmlns="` + long + `">` + strings.Repeat("<a></a>", 3) + `</x>`,
		},
	} {
		a, ok := entry.Read([]byte("<item>"+c.doc+"</item>"), "")
		if !ok {
			t.Fatalf("%s: it is not read", name)
		}
		if got := string(a.Extensions.AppendXML(nil)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// The text of HTML is cut where it is too long without the blanks that it does not show.
func TestTextOfHTMLIsCut(t *testing.T) {
	t.Parallel()
	words := strings.Repeat("&lt;p>\n"+strings.Repeat(" ", 40)+"one two&lt;/p>", 30)
	for doc, want := range map[string]string{
		words:                                   strings.TrimSpace(strings.Repeat("one two ", 30)),
		strings.Repeat("word ", 200) + "&lt;b>": strings.Repeat("word ", 100) + "…",
	} {
		_, fields := encode(t, "<item><description>"+doc+"</description></item>")
		if fields["summary"] != want {
			t.Errorf("got %q, want %q", fields["summary"], want)
		}
	}
}
