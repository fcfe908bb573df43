package feedxml

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
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
		{"a name", rfc, "g", "http://a/b/c/g"},
		{"a name with a dot", rfc, "./g", "http://a/b/c/g"},
		{"a directory", rfc, "g/", "http://a/b/c/g/"},
		{"from the root", rfc, "/g", "http://a/g"},
		{"another host", rfc, "//g", "http://g"},
		{"a query", rfc, "?y", "http://a/b/c/d;p?y"},
		{"a name and a query", rfc, "g?y", "http://a/b/c/g?y"},
		{"a fragment", rfc, "#s", "http://a/b/c/d;p?q#s"},
		{"a name and a fragment", rfc, "g#s", "http://a/b/c/g#s"},
		{"parameters", rfc, ";x", "http://a/b/c/;x"},
		{"nothing", rfc, "", "http://a/b/c/d;p?q"},
		{"nothing, to a base with a fragment", rfc + "#s", "", "http://a/b/c/d;p?q"},
		{"an empty query", rfc, "?", "http://a/b/c/d;p?"},
		{"here", rfc, ".", "http://a/b/c/"},
		{"up", rfc, "..", "http://a/b/"},
		{"up and down", rfc, "../g", "http://a/b/g"},
		{"up twice", rfc, "../../g", "http://a/g"},
		{"up too far", rfc, "../../../../g", "http://a/g"},
		{"from the root, up", rfc, "/../g", "http://a/g"},
		{"dots in names", rfc, "..g", "http://a/b/c/..g"},
		{"dots within", rfc, "g;x=1/../y", "http://a/b/c/y"},
		{"dots in a query", rfc, "g?y/../x", "http://a/b/c/g?y/../x"},
		{"dots in an absolute reference", rfc, "http://h/a/../b", "http://h/b"},
		{"the same scheme without a host", rfc, "http:g", "http:g"},

		{"a spelling that is kept", rfc, "HTTP://EX.org:80/%7Efoo?a=%2f#x", "HTTP://EX.org:80/%7Efoo?a=%2f#x"},
		{"a colon in a name", rfc, "./x:y", "http://a/b/c/x:y"},
		{"a time in a path", rfc, "/2003/12:30", "http://a/2003/12:30"},
		{"a number before a colon is no scheme", rfc, "1:2", "http://a/b/c/1:2"},
		{"white space around it", rfc, " \n g\t", "http://a/b/c/g"},
		{"a blank within", rfc, "a b", "http://a/b/c/a%20b"},
		{"an IRI", rfc, "/é?ü", "http://a/%C3%A9?%C3%BC"},
		{"a percent sign that is no escape", rfc, "100%", "http://a/b/c/100%"},
		{"a broken escape, which net/url refuses", rfc, "%zz", "http://a/b/c/%zz"},
		{"a base that has no path as such", "urn:a:b", "c", "urn:c"},
		{"no base", "", "g", ""},
		{"no base, and none needed", "", "http://h/g", "http://h/g"},
		{"a relative base", "/x/", "g", ""},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			got, ok := resolveReference(tt.base, tt.ref)
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
	f.Fuzz(func(t *testing.T, base, ref string) {
		base, _ = resolveReference("", base) // as every base is
		cputime.CheckRepeated(t, ref, func(ref string) { resolveReference(base, ref) })
		got, ok := resolveReference(base, ref)
		if strings.ContainsFunc(got, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Fatalf("resolve(%q, %q) = %q", base, ref, got)
		}
		if !ok {
			if schemeLength(base) > 0 {
				t.Fatalf("resolve(%q, %q) is not ok", base, ref)
			}
			return
		}
		if schemeLength(got) == 0 {
			t.Fatalf("resolve(%q, %q) = %q is not absolute", base, ref, got)
		}
		// An absolute reference is returned unchanged.
		if again, ok := resolveReference("http://x.example/", got); !ok || again != got {
			t.Fatalf("resolve(%q, %q) = %q, and that resolves to %q", base, ref, got, again)
		}
		compareWithNetURL(t, base, ref, got)
	})
}

// plainBase and plainReference match the addresses that net/url resolves as RFC 3986 does: with a
// path, without empty segments, and with characters that need no escape.
var (
	plainBase      = regexp.MustCompile(`^http://a/([a-z0-9.;=&]+(/[a-z0-9.;=&]+)*/?)?(\?[a-z0-9.;=&/]+)?$`)
	plainReference = regexp.MustCompile(`^/?([a-z0-9.;=&]+(/[a-z0-9.;=&]+)*/?)?(\?[a-z0-9.;=&/]*)?(#[a-z0-9.;=&/]+)?$`)
)

// compareWithNetURL compares with net/url.
func compareWithNetURL(t *testing.T, base, ref, got string) {
	t.Helper()
	if !plainBase.MatchString(base) || !plainReference.MatchString(ref) {
		return
	}
	b, err := url.Parse(base)
	must.Succeed(t, err)
	want, err := b.Parse(ref)
	must.Succeed(t, err)
	if got != want.String() {
		t.Fatalf("resolve(%q, %q) = %q, for net/url %q", base, ref, got, want)
	}
}
