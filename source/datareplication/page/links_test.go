package page

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func mustURL(tb testing.TB, s string) *url.URL {
	tb.Helper()
	u, err := url.Parse(s)
	must.Succeed(tb, err)
	return u
}

const (
	p1 = "https://x.example/feed/1"
	p2 = "https://x.example/feed/2"
	p3 = "https://x.example/feed/3"
)

func TestParseLinks(t *testing.T) {
	t.Parallel()
	all := Links{Self: p2, Prev: p1, Next: p3}
	tests := []struct {
		name   string
		fields []string
		want   Links
	}{
		{"case 33: a line for each link", []string{"<" + p2 + ">; rel=self", "<" + p1 + ">; rel=prev", "<" + p3 + ">; rel=next"}, all},
		{"case 34: only self", []string{"<" + p2 + ">; rel=self"}, Links{Self: p2}},
		{"case 35: one line, self first", []string{"<" + p2 + ">; rel=self, <" + p1 + ">; rel=prev, <" + p3 + ">; rel=next"}, all},
		{"case 35: one line, self last", []string{"<" + p3 + ">; rel=next, <" + p1 + ">; rel=prev, <" + p2 + ">; rel=self"}, all},
		{"case 35: one line, self between", []string{"<" + p1 + ">;rel=prev,<" + p2 + ">;rel=self,<" + p3 + ">;rel=next"}, all},
		{"case 35: a list with empty elements", []string{", ,<" + p2 + ">; rel=self,,<" + p1 + ">; rel=prev ,"}, Links{Self: p2, Prev: p1}},
		{"case 36: no angle brackets", []string{p2 + ";rel=self", p1 + " ; rel=\"prev\"", p3 + ";rel=next"}, all},
		{"case 36: no angle brackets, one line", []string{p2 + ";rel=self, " + p1 + ";rel=prev," + p3 + ";rel=next"}, all},
		{"case 37: quotes", []string{"<" + p2 + `>; rel="self"`}, Links{Self: p2}},
		{"case 37: name in upper case", []string{"<" + p2 + `>; REL=self`}, Links{Self: p2}},
		{"case 37: relation in upper case", []string{"<" + p2 + `>; rel=SELF`}, Links{Self: p2}},
		{"case 37: several relations", []string{"<" + p1 + `>; rel="prev  x"`, "<" + p2 + `>; rel="Next last self"`}, Links{Prev: p1, Self: p2, Next: p2}},
		{"case 37: blanks around the equals sign", []string{"<" + p2 + `> ;rel = "self"`}, Links{Self: p2}},
		{"case 37: a backslash in quotes", []string{"<" + p2 + `>; rel="s\elf"`}, Links{Self: p2}},
		{"case 38: semicolon in the URL", []string{"<" + p2 + ";v=1>; rel=self"}, Links{Self: p2 + ";v=1"}},
		{"case 38: comma in the URL", []string{"<" + p1 + "?a=1,2>; rel=prev, <" + p2 + "?a=3,4;5>; rel=self"}, Links{Prev: p1 + "?a=1,2", Self: p2 + "?a=3,4;5"}},
		{"case 38: percent-encoding", []string{"<" + p2 + "%2C%252C?q=a%20b+c&d=%22>; rel=self"}, Links{Self: p2 + "%2C%252C?q=a%20b+c&d=%22"}},
		{"case 38: comma and semicolon in a title", []string{"<" + p1 + `>; title="a, b; rel=next \" c"; rel=prev, <` + p2 + ">; rel=self"}, Links{Prev: p1, Self: p2}},
		{"case 39: preload with a parameter without a value", []string{"</a.css>; rel=preload; as=style; nopush", "<" + p2 + ">; rel=self"}, Links{Self: p2}},
		{"case 39: semicolon at the end", []string{"</a.css>; rel=preload;", "<" + p2 + ">; rel=self;", "<" + p1 + ">;; rel=prev ; ;"}, Links{Self: p2, Prev: p1}},
		{"case 39: preload in the same line", []string{"</_next/a.css>; rel=preload; nopush, <" + p2 + ">; rel=self, <https://cdn.example>; rel=preconnect; crossorigin"}, Links{Self: p2}},
		{"case 39: unreadable, but nothing of ours", []string{"<a.css; rel=preload", `<b>; rel="preload`, "c d e", "</f>; title=a b c", "</next>b; rel=x", "https://x.example/next; rel=a b", "<" + p2 + ">; rel=self"}, Links{Self: p2}},
		{"case 39: a target that is no URL", []string{"<:>; rel=preload", "<" + p2 + ">; rel=self"}, Links{Self: p2}},
		{"case 39: relations that only look like ours", []string{"<" + p1 + `>; rel="prev-archive https://x.example/rel/next selfie"`, "<" + p2 + ">; rel=self"}, Links{Self: p2}},
		{"case 39: our words in other parameters", []string{"<" + p1 + `>; rel=alternate; title=next; x="rel=prev"`, "<" + p2 + ">; rel=self"}, Links{Self: p2}},
		{"case 40: relative targets", []string{"<2>; rel=self", "<../feed/1?x>; rel=prev", "<//y.example/3>; rel=next"}, Links{Self: p2, Prev: p1 + "?x", Next: "https://y.example/3"}},
		{"case 40: an absolute path", []string{"</2>; rel=self"}, Links{Self: "https://x.example/2"}},
		{"case 42: no target", []string{"; rel=self", " ;rel=next"}, Links{}},
		{"case 42: a blank target", []string{"<>; rel=self", "< >; rel=prev"}, Links{}},
		{"a second rel parameter does not count", []string{"<" + p2 + ">; rel=self; rel=next"}, Links{Self: p2}},
		{"nor does one without a value", []string{"<" + p2 + ">; rel=self;rel", "<" + p3 + ">; rel=next; REL="}, Links{Self: p2, Next: p3}},
		{"blanks within the angle brackets", []string{"< " + p2 + " >; rel=self"}, Links{Self: p2}},
		{"user info and fragments are dropped", []string{"<https://u:p@x.example/feed/2#f>; rel=self", "<1>; rel=prev"}, Links{Self: p2, Prev: p1}},
		{"no links", nil, Links{}},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			got, violations, err := ParseLinks(tt.fields, mustURL(t, "https://me:secret@x.example/feed/latest"))
			must.Succeed(t, err)
			if got != tt.want {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
			if violations != nil {
				t.Errorf("got violations %v", violations)
			}
		})
	}

	parallel.Run(t, "case 43: two self links", func(t *testing.T) {
		got, violations, err := ParseLinks([]string{"<" + p2 + ">; rel=self, <" + p1 + ">; rel=self", "<" + p3 + ">; rel=self"}, mustURL(t, p2))
		if err != nil || got.Self != p2 {
			t.Errorf("got %+v, %v", got, err)
		}
		if kinds := kindsOf(violations); !slices.Equal(kinds, []string{kindRepeatedLink, kindRepeatedLink}) {
			t.Errorf("got violations %v", violations)
		}
	})
}

// Each of these may have been meant for a link of ours. Taking it for nothing
// would end the feed early without a word.
func TestParseLinksLosesNone(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, field string }{
		{"no closing bracket", "<" + p3 + "; rel=next"},
		{"no opening bracket", p3 + ">; rel=next"},
		{"no closing bracket in the link before", "<" + p1 + "; rel=x, <" + p3 + ">; rel=next"},
		{"no semicolon", "<" + p3 + "> rel=next"},
		{"no equals sign", "<" + p3 + `>; rel "next"`},
		{"a colon for the equals sign", "<" + p3 + ">; rel: next"},
		{"no closing quote", "<" + p3 + `>; rel="next`},
		{"no opening quote", "<" + p3 + `>; rel=next"`},
		{"single quotes", "<" + p3 + `>; rel='next'`},
		{"relations without quotes", "<" + p3 + ">; rel=last next"},
		{"relations with commas", "<" + p3 + `>; rel="last,next"`},
		{"no closing quote in a title", "<" + p3 + `>; title="a; rel=next`},
		{"no closing quote in the link before", "<" + p1 + `>; rel=x; title="a, <` + p3 + ">; rel=next"},
		{"inches in the link before and behind", "<" + p1 + `>; rel=x; title=5" disk, <` + p3 + ">; rel=next; title=6\" disk"},
		{"no comma", "<" + p2 + ">; rel=self <" + p3 + ">; rel=next"},
		{"a semicolon for the comma", "<" + p2 + ">; rel=self; <" + p3 + ">; rel=next"},
		{"a link in a parameter", "<" + p1 + ">; rel=x; title=<" + p3 + ">; rel=next"},
		{"a backslash within the word", "<" + p3 + `> rel="n\ext"`},
		{"no angle brackets and a comma in the URL", "https://x.example/a,b;rel=next"},
		{"no angle brackets and a semicolon in the URL", "https://x.example/a;v=1;rel=next"},
		{"no angle brackets and a relative URL", "/feed/3;rel=next"},
		{"a blank in the URL", "<https://x.example/a b>; rel=next"},
		{"a port that is none", "<https://x.example:port/3>; rel=next"},
		{"bytes that are not text", "<https://x.example/3?q=\xff>; rel=next"},
		{"not http", "<ftp://x.example/3>; rel=next"},
		{"no host", "<https:///3>; rel=next"},
		{"in the parameters of another", "<" + p1 + ">; rel=x; =y; rel=next"},
		{"the link of another page", "<" + p3 + `>; rel=next; anchor="` + p1 + `"`},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			got, _, err := ParseLinks([]string{"<" + p2 + ">; rel=self", tt.field}, mustURL(t, p2))
			if kindOf(err) != kindBadLink {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestParseLinksLosesNoneToAByte(t *testing.T) {
	t.Parallel()
	for _, field := range []string{
		"<" + p2 + `>; rel=self, </a.css>; rel="preload"; nopush; title="a, b\"", <` + p3 + `>; title="c"; rel="next"`,
		p2 + "; rel=self, " + p3 + `; rel="next"`,
	} {
		for at := range strings.LastIndex(field, intactNext) {
			for _, char := range []byte("<>\"',;=:/\\ rx1*\x00\x7f") {
				loseNext(t, field, at, char)
			}
		}
	}
}

func TestLinkErrorsHideUserInfo(t *testing.T) {
	t.Parallel()
	_, _, err := ParseLinks([]string{"<https://me:secret@x.example/3>; rel=next'"}, mustURL(t, "https://me:secret@x.example/feed"))
	if kindOf(err) != kindBadLink || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}
