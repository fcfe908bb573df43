package link

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
)

// FuzzRead reads its input as a field and behind a link, and reads a well-formed link that is made from it.
func FuzzRead(f *testing.F) {
	f.Add("</2>; rel=next, <1>; rel=\"prev self\"", "/2", "next", `a, "b"; \`)
	f.Add("https://x.example/2; rel = next;rel, <a; rel=x", "a,b;c=d", "https://x.example/rel", "")
	f.Add(`<a>;; title="a\", <b>; rel=x`, "<>", "n", "\\")
	f.Add("\t<\x01>\xff;=\"\\", "x", "Last", "\x00")
	f.Fuzz(func(t *testing.T, field, target, relation, title string) {
		if len(field)+len(target)+len(relation)+len(title) > 500 {
			return
		}
		cputime.CheckRepeated(t, field, func(field string) {
			for range Read(field) {
			}
		})
		links := slices.Collect(Read(field))
		rest := field
		for _, l := range links {
			at := strings.Index(rest, l.Value)
			if at < 0 || strings.Trim(rest[:at], " \t,") != "" || l.Value == "" || !strings.HasSuffix(l.Value, l.Parameters) {
				t.Fatalf("%q: got %+v, which is not in %q", field, l, rest)
			}
			rest = rest[at+len(l.Value):]
			if (l.Malformed || l.Target == "") && (l.Target != "" || len(l.Relations) > 0 || l.Type != "" || l.Anchored) {
				t.Fatalf("%q: got %+v", field, l)
			}
		}
		if strings.Trim(rest, " \t,") != "" {
			t.Fatalf("%q: %q was left out", field, rest)
		}

		target = strings.Map(func(r rune) rune {
			if r <= ' ' || r == 0x7f || strings.ContainsRune(`<>"`, r) {
				return -1
			}
			return r
		}, "/"+target)
		title = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return -1
			}
			return r
		}, title)
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(title) + `"`
		relations := strings.Fields(strings.ToLower(title))
		for _, before := range []struct {
			written string
			want    Link
		}{
			{"<" + target + ">; title=" + quoted + "; rel=next; type=" + quoted, Link{Target: target, Relations: []string{"next"}, Type: title}},
			{"< " + target + " >;rel = " + quoted + " ; anchor", Link{Target: target, Relations: relations, Anchored: true}},
		} {
			before.want.Value = before.written
			_, before.want.Parameters, _ = strings.Cut(before.written, ">")
			whole := before.written + "," + field
			want := fmt.Sprintf("%#v", slices.Insert(slices.Clone(links), 0, before.want))
			if got := fmt.Sprintf("%#v", slices.Collect(Read(whole))); got != want {
				t.Fatalf("%q:\ngot  %s\nwant %s", whole, got, want)
			}
		}
	})
}
