package link

import (
	"slices"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// next is the link of the readable values below.
var next = Link{Target: "a", Relations: []string{"next"}}

// none is a value without a target.
var none = Link{}

func TestRead(t *testing.T) {
	t.Parallel()
	to := func(target string) Link { return Link{Target: target, Relations: []string{"next"}} }
	rel := func(relations ...string) Link { return Link{Target: "a", Relations: relations} }
	typed := func(mediaType string) Link { return Link{Target: "a", Relations: []string{"next"}, Type: mediaType} }
	anchored := Link{Target: "a", Relations: []string{"next"}, Anchored: true}
	for _, tt := range []struct {
		field string
		want  []Link
	}{
		{"", nil},
		{" ,\t, ", nil},
		{"<a>; rel=next", []Link{next}},
		{"\t<a>\t;\trel\t=\tnext\t", []Link{next}},
		{`<a>;ReL="NEXT"`, []Link{next}},
		{"<a>;; rel=next; ;", []Link{next}},
		{"<a>; nopush; rel=next; crossorigin=", []Link{next}},
		{"<a>; rel=next,<a>; rel=next", []Link{next, next}},
		{", <a>; rel=next ,,", []Link{next}},

		// linkheader splits at a comma or a semicolon in brackets and in quotes.
		{"<a,b;c>; rel=next, <a>; rel=next", []Link{to("a,b;c"), next}},
		{"<a?b=c; rel=x>; rel=next", []Link{{Malformed: true, Parameters: "<a?b=c; rel=x>; rel=next"}}},
		{"<a?b=c;rel=x,>; rel=next", []Link{to("a?b=c;rel=x,")}},
		{`<a>; title="b, <c>; rel=x"; rel=next`, []Link{next}},
		{`<a>; title="b \", <c>; rel=x"; rel=next`, []Link{next}},
		{`<a>; title="b \\"; rel=next, <a>; rel=next`, []Link{next, next}},
		{`<a>; title="<"; rel=next, <a>; rel=next`, []Link{next, next}},
		{`<a">; rel=next, <a>; rel=next`, []Link{{Malformed: true, Parameters: `<a">; rel=next`}, next}},
		// It knows no backslash, and strips all quotes.
		{`<a>; rel="\"ne\x\\t,;"`, []Link{rel(`"nex\t,;`)}},
		{`<a\b>; rel=next`, []Link{to(`a\b`)}},
		{`<a>; rel=ne\xt`, []Link{rel(`ne\xt`)}},
		// It has a blank in a name, and of two parameters it takes the last.
		{`<a>; rel = "next"`, []Link{next}},
		{"<a>; rel=next; rel=prev; REL=x", []Link{next}},
		{"<a>; rel=next;rel", []Link{next}},
		{"<a>; rel; rel=next", []Link{rel()}},
		{"<a>; rel=; rel=next", []Link{rel()}},
		{"<a>; type=b; Rel=next; TYPE=c", []Link{typed("b")}},
		{"<a>; rel==next", []Link{rel("=next")}},
		{"<a>; rel=next=b", []Link{rel("next=b")}},
		{`<a>; rel="next" ; title = "a = b"`, []Link{next}},
		// It drops a value whose target is empty.
		{"<>; rel=next, < >; rel=next, <\t>", []Link{none, none, none}},
		{"; rel=next, ;, ;;a", []Link{none, none, none}},

		{"<a>; rel=\"next  prev\thttps://b/Rel\"", []Link{rel("next", "prev", "https://b/rel")}},
		{"<a>; rel=\"\", <a>", []Link{rel(), rel()}},
		{`<a>; rel=next; type="text/html; charset=utf-8"`, []Link{typed("text/html; charset=utf-8")}},
		{`<a>; rel=next; anchor="#b", <a>; ANCHOR; rel=next`, []Link{anchored, anchored}},
		{`<a>; rel*=UTF-8''x; type*=y; rel=next`, []Link{next}},
		{"<a>; rel=ne'xt, <a>; rel=\xff\u00e9", []Link{rel("ne'xt"), rel("\ufffd\u00e9")}},
		{"< a >; rel=next", []Link{next}},

		// A URL without brackets.
		{"https://a;rel=next", []Link{to("https://a")}},
		{`HTTP://a?b=c ; REL = "next"; nopush, https://b; rel=next`, []Link{to("HTTP://a?b=c"), to("https://b")}},
		{"https://a", []Link{{Target: "https://a"}}},
		{"https://a;b; rel=next", []Link{{Malformed: true, Parameters: "https://a;b; rel=next"}}},
		{"https://a; type=b; rel=next", []Link{{Malformed: true, Parameters: "https://a; type=b; rel=next"}}},
		{"https://a b; rel=next", []Link{{Malformed: true, Parameters: "https://a b; rel=next"}}},
		{"https://a>; rel=next", []Link{{Malformed: true, Parameters: "https://a>; rel=next"}}},
		{"https://a; rel=b c", []Link{{Malformed: true, Parameters: "; rel=b c"}}},
		{"ftp://a; rel=next", []Link{{Malformed: true, Parameters: "ftp://a; rel=next"}}},
		{"/a; rel=next", []Link{{Malformed: true, Parameters: "/a; rel=next"}}},

		// An unclosed target or string extends to the end of the field.
		{"<a; rel=next, <b", []Link{{Malformed: true, Parameters: "<a; rel=next, <b"}}},
		{"<a; rel=x, <b>; rel=next", []Link{{Malformed: true, Parameters: "<a; rel=x, <b>; rel=next"}}},
		{`<a>; title="b, <a>; rel=next`, []Link{{Malformed: true, Parameters: `; title="b, <a>; rel=next`}}},
		{`<a>; title="b, <a>; rel=next\`, []Link{{Malformed: true, Parameters: `; title="b, <a>; rel=next\`}}},
		{`<a>; title="b, <a>; rel=next\"`, []Link{{Malformed: true, Parameters: `; title="b, <a>; rel=next\"`}}},

		// These are not guessed.
		{"<a> rel=next", []Link{{Malformed: true, Parameters: " rel=next"}}},
		{"<a>b; rel=next", []Link{{Malformed: true, Parameters: "b; rel=next"}}},
		{"<a>>; rel=next", []Link{{Malformed: true, Parameters: ">; rel=next"}}},
		{"<<a>; rel=next", []Link{{Malformed: true, Parameters: "<<a>; rel=next"}}},
		{"<a b>; rel=next", []Link{{Malformed: true, Parameters: "<a b>; rel=next"}}},
		{"<a>; rel next", []Link{{Malformed: true, Parameters: "; rel next"}}},
		{"<a>; rel: next", []Link{{Malformed: true, Parameters: "; rel: next"}}},
		{"<a>; =next", []Link{{Malformed: true, Parameters: "; =next"}}},
		{"<a>; rel=next prev", []Link{{Malformed: true, Parameters: "; rel=next prev"}}},
		{`<a>; rel=next"`, []Link{{Malformed: true, Parameters: `; rel=next"`}}},
		{`<a>; rel="next"b`, []Link{{Malformed: true, Parameters: `; rel="next"b`}}},
		{`<a>; rel="ne""xt"`, []Link{{Malformed: true, Parameters: `; rel="ne""xt"`}}},
		{"<a>; rel=<next>", []Link{{Malformed: true, Parameters: "; rel=<next>"}}},
		{"<a>; rel=next <b>; rel=x", []Link{{Malformed: true, Parameters: "; rel=next <b>; rel=x"}}},
		{`<a>; title=5" disk; rel=next, <b>; title=6" disk`, []Link{{Malformed: true, Parameters: `; title=5" disk; rel=next, <b>; title=6" disk`}}},
		{"b <a>; rel=next", []Link{{Malformed: true, Parameters: "b <a>; rel=next"}}},
		{`"<a>; rel=next`, []Link{{Malformed: true, Parameters: `"<a>; rel=next`}}},

		// No server can send control characters, some of which stand for others here.
		{"<a\x01b>; rel=next, <a>; rel=\x02, <a>; \x03=b", []Link{
			{Malformed: true, Parameters: "<a\x01b>; rel=next"}, {Malformed: true, Parameters: "; rel=\x02"}, {Malformed: true, Parameters: "; \x03=b"},
		}},
		{"<a>; rel=\"n\x04\x05\"", []Link{rel("n\x7f\x7f")}},
		{"<a>\nb; rel=next, <a>; title=\"\\\n,\"; rel=next", []Link{{Malformed: true, Parameters: "\nb; rel=next"}, next}},
		{"<a\x06b>; rel=next, <a>; rel=\x7f", []Link{{Malformed: true, Parameters: "<a\x06b>; rel=next"}, {Malformed: true, Parameters: "; rel=\x7f"}}},
	} {
		parallel.Run(t, tt.field, func(t *testing.T) {
			got := slices.Collect(Read(tt.field))
			for i := range got {
				got[i].Value = ""
				if !got[i].Malformed {
					got[i].Parameters = ""
				}
				if len(got[i].Relations) == 0 {
					got[i].Relations = nil
				}
			}
			must.Match(t, tt.field, tt.want, got)
		})
	}
}

// Value and Parameters are as written.
func TestReadKeepsTheText(t *testing.T) {
	t.Parallel()
	var got []string
	for l := range Read("\t<a,b;c> ; rel = \"n\\ext\\\"\";\ttitle=\"\x01,\" ,, https://a\t;rel=self,;b, c d ,< \xff>\\;e") {
		got = append(got, l.Value, l.Parameters)
	}
	want := []string{
		"<a,b;c> ; rel = \"n\\ext\\\"\";\ttitle=\"\x01,\"", " ; rel = \"n\\ext\\\"\";\ttitle=\"\x01,\"",
		"https://a\t;rel=self", ";rel=self", ";b", ";b", "c d", "c d", "< \xff>\\;e", "\\;e",
	}
	must.Match(t, "values", want, got)
}

func TestReadStops(t *testing.T) {
	t.Parallel()
	n := 0
	for range Read("<a>, <b>") {
		n++
		break
	}
	if n != 1 {
		t.Errorf("got %d links", n)
	}
}
