package feedxml

import (
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestDeclaredEntities(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		subset, id, body string
		undefined        string
	}{
		"text":                          {`<!ENTITY a "b">`, `x&a;y`, `<id>xby</id>`, ""},
		"in single quotes":              {`<!ENTITY a 'b"c'>`, `&a;`, `<id>b"c</id>`, ""},
		"a number":                      {`<!ENTITY a "1&#x33;2">`, `&a;`, `<id>132</id>`, ""},
		"of an entity":                  {`<!ENTITY a "1&b;2"><!ENTITY b "3">`, `&a;`, `<id>&a;</id>`, "a"},
		"of XML's own entities":         {`<!ENTITY a "Ben &amp; &#38;lt;Co">`, `&a;`, `<id>Ben &amp; &lt;Co</id>`, ""},
		"of one of XML's own in two":    {`<!ENTITY a "&#38;&amp;amp;">`, `&a;`, `<id>&a;</id>`, "a"},
		"XML's own stay":                {`<!ENTITY lt "x"><!ENTITY a "1">`, `&lt;&a;`, `<id>&lt;1</id>`, ""},
		"markup":                        {`<!ENTITY a "<b>1</b>">`, `&a;`, `<id>&a;</id>`, "a"},
		"markup as a number":            {`<!ENTITY a "&#60;b>">`, `&a;`, `<id>&a;</id>`, "a"},
		"the first of two counts":       {`<!ENTITY a "1"><!ENTITY a "2">`, `&a;`, `<id>1</id>`, ""},
		"not in a CDATA section":        {`<!ENTITY a "1">`, `<![CDATA[&a;]]>&a;`, `<id><![CDATA[&a;]]>1</id>`, ""},
		"not in a comment":              {`<!-- <!ENTITY a "1"> -->`, `&a;`, `<id>&a;</id>`, "a"},
		"not in an instruction":         {`<?x <!ENTITY a "1"> ?>`, `&a;`, `<id>&a;</id>`, "a"},
		"that is elsewhere":             {`<!ENTITY a SYSTEM "http://x.invalid/">`, `&a;`, `<id>&a;</id>`, "a"},
		"of a parameter":                {`<!ENTITY % a "1">`, `&a;`, `<id>&a;</id>`, "a"},
		"that is too long":              {`<!ENTITY a "` + strings.Repeat("x", longestEntity+1) + `">`, `&a;`, `<id>&a;</id>`, "a"},
		"that HTML has":                 {`<!ENTITY nbsp "n">`, `&nbsp;`, `<id>n</id>`, ""},
		"one that is declared, and one": {`<!ENTITY a "1">`, `&b;&a;`, `<id>&b;1</id>`, "b"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			doc := `<!DOCTYPE feed [` + tt.subset + `]><feed xmlns="http://www.w3.org/2005/Atom"><entry><id>` + tt.id + `</id></entry></feed>`
			entries, err := readEveryWay(t, doc, Options{})
			must.Succeed(t, err)
			if e := entries[0]; string(e.Body) != `<entry xmlns="http://www.w3.org/2005/Atom">`+tt.body+`</entry>` || e.Undefined != tt.undefined {
				t.Errorf("got %s, undefined %q", e.Body, e.Undefined)
			}
		})
	}
	parallel.Run(t, "in namespaces, attributes and heads", func(t *testing.T) {
		doc := `<!DOCTYPE x [<!ENTITY atom "http://www.w3.org/2005/Atom"><!ENTITY q '"&#39;'>]><feed xmlns="&atom;" a="&q;">` +
			`<title>&q;&amp;</title><link rel="next" type="&q;" href="http://x/?a&amp;b"/><entry a='&q;'><id>1</id></entry></feed>`
		doc = strings.Replace(doc, "<title>&q;", "<title>&#34;", 1)
		r := NewReader(strings.NewReader(doc), Options{})
		entries, err := read(r)
		must.Succeed(t, err)
		next, _ := r.Meta().Link("next")
		if next.Type != `"'` || r.Meta().Title != `"&` || string(entries[0].Body) != `<entry xmlns="http://www.w3.org/2005/Atom" a='&quot;&apos;'><id>1</id></entry>` {
			t.Errorf("got %+v, %q, %s", next, r.Meta().Title, entries[0].Body)
		}
	})
	parallel.Run(t, "more than is allowed", func(t *testing.T) {
		value := strings.Repeat("x", 4000)
		doc := `<!DOCTYPE x [<!ENTITY a "` + value + `">]><feed xmlns="http://www.w3.org/2005/Atom">` + strings.Repeat(`<entry><id>&a;</id></entry>`, 100) + `</feed>`
		entries, _, odd := mustRead(t, doc)
		if n := len(odd); entries[0].ID != value || entries[99].ID != "&a;" || n != 100-mostExpanded/4000 {
			t.Errorf("got %.20s, %.20s, %d violations", entries[0].ID, entries[99].ID, n)
		}
	})
}
