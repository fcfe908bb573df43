package feedxml

import (
	"net/url"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	const rfc = "http://a/b/c/d;p?q" // the base of RFC 3986, section 5.4
	tests := []struct {
		name, base, ref string
		want            string // "": not ok
	}{
		{"case 39: the base has no slash at its end", "http://ex/base", "2003/11/index.atom", "http://ex/2003/11/index.atom"},
		{"case 39: the base has a slash at its end", "http://ex/base/", "2003/11/index.atom", "http://ex/base/2003/11/index.atom"},
		{"the base has no path", "http://ex", "2003", "http://ex/2003"},
		{"the base has no path, and the reference only a query", "http://ex", "?p=2", "http://ex?p=2"},

		{"another scheme", rfc, "g:h", "g:h"},
		{"up too far", rfc, "../../../../g", "http://a/g"},
		{"nothing", rfc, "", "http://a/b/c/d;p?q"},
		{"nothing, to a base with a fragment", rfc + "#s", "", "http://a/b/c/d;p?q"},
		{"a spelling that is kept", rfc, "HTTP://EX.org:80/a/../%7Efoo?a=%2f#x", "HTTP://EX.org:80/a/../%7Efoo?a=%2f#x"},
		{"the spelling of a relative one", rfc, "/%7Efoo%2f?a=%2f#x", "http://a/%7Efoo%2f?a=%2f#x"},
		{"a colon in a name", rfc, "./x:y", "http://a/b/c/x:y"},
		{"white space around it", rfc, " \n g\t", "http://a/b/c/g"},
		{"a blank within", rfc, "a b", "http://a/b/c/a%20b"},
		{"an IRI", rfc, "/é?ü", "http://a/%C3%A9?%C3%BC"},
		{"a percent sign that is no escape", rfc, "100%.xml?a=%2f", "http://a/b/c/100%25.xml?a=%2f"},
		{"the same in the base", "http://a/100%/x", "g", "http://a/100%25/g"},
		{"the same in an absolute reference, which is kept", rfc, "http://h/100%", "http://h/100%"},
		{"a colon in the first name", rfc, "2024-01-01T10:00.xml", "http://a/b/c/2024-01-01T10:00.xml"},
		{"no base", "", "g", ""},
		{"no base, and none needed", "", "http://h/g", "http://h/g"},
		{"a relative base", "/x/", "g", ""},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			got, ok := resolveLink(tt.base, tt.ref)
			if got != tt.want || ok != (tt.want != "") {
				t.Errorf("resolve(%q, %q) = %q, %v, want %q", tt.base, tt.ref, got, ok, tt.want)
			}
		})
	}
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"2003/11/index.atom", "../g?x#y", "//h/../x", "", "../../../../g", "/../g", "?", "?y", "#s", "#", "g//h", "a?b/../c#d", "./", "x/../../y;z=1&2/.", "http://h/./a", "a:b", "/.//b", "%zz", "é", "..", ";x/.."} {
		f.Add("http://a/b/c/d;p?q", s)
		f.Add("http://a", s)
	}
	f.Fuzz(mutation.OfCorpus(100, func(t *testing.T, base, ref string) {
		base, _ = resolveLink("", base) // as every base is
		cputime.CheckRepeated(t, ref, func(ref string) { resolveLink(base, ref) })
		got, ok := resolveLink(base, ref)
		if strings.ContainsFunc(got, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Fatalf("resolve(%q, %q) = %q", base, ref, got)
		}
		if !ok {
			from, err := url.Parse(base)
			_, refErr := url.Parse(percentEncode(trimSpace(ref)))
			if err == nil && from.IsAbs() && refErr == nil && len(base)+len(ref) < longestAddress/3 {
				t.Fatalf("resolve(%q, %q) is not ok", base, ref)
			}
			return
		}
		if schemeLength(got) == 0 {
			t.Fatalf("resolve(%q, %q) = %q is not absolute", base, ref, got)
		}
		// An absolute reference is returned unchanged.
		if again, ok := resolveLink("http://x.example/", got); !ok || again != got {
			t.Fatalf("resolve(%q, %q) = %q, and that resolves to %q", base, ref, got, again)
		}
	}))
}
