package feedxml

import (
	"errors"
	"fmt"
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
		"of an entity":                  {`<!ENTITY a "1&b;2"><!ENTITY b "&#x33;">`, `&a;`, `<id>132</id>`, ""},
		"an escape":                     {`<!ENTITY a "AT&#38;amp;T">`, `&a;`, `<id>AT&amp;T</id>`, ""},
		"XML's own stay":                {`<!ENTITY lt "x"><!ENTITY a "&lt;">`, `&lt;&a;`, `<id>&lt;&lt;</id>`, ""},
		"markup":                        {`<!ENTITY a "<b>1</b>">`, `&a;`, `<id><b>1</b></id>`, ""},
		"the first of two counts":       {`<!ENTITY a "1"><!ENTITY a "2">`, `&a;`, `<id>1</id>`, ""},
		"not in a CDATA section":        {`<!ENTITY a "1">`, `<![CDATA[&a;]]>&a;`, `<id><![CDATA[&a;]]>1</id>`, ""},
		"not in a comment":              {`<!-- <!ENTITY a "1"> -->`, `&a;`, `<id>&a;</id>`, "a"},
		"of itself":                     {`<!ENTITY a "1&b;"><!ENTITY b "&a;">`, `&a;`, `<id>&a;</id>`, "a"},
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
		doc := `<!DOCTYPE x [<!ENTITY atom "http://www.w3.org/2005/Atom"><!ENTITY q '"&#60;'>]><feed xmlns="&atom;" a="&q;">` +
			`<title>&q;&amp;</title><link rel="next" type="&q;" href="http://x/?a&amp;b"/><entry a='&q;'><id>1</id></entry></feed>`
		doc = strings.Replace(doc, "<title>&q;", "<title>&#34;", 1)
		r := NewReader(strings.NewReader(doc), Options{})
		entries, err := read(r)
		must.Succeed(t, err)
		next, _ := r.Meta().Link("next")
		if next.Type != `"<` || r.Meta().Title != `"&` || string(entries[0].Body) != `<entry xmlns="http://www.w3.org/2005/Atom" a='&quot;&lt;'><id>1</id></entry>` {
			t.Errorf("got %+v, %q, %s", next, r.Meta().Title, entries[0].Body)
		}
	})
	// expat refuses each of these.
	for name, subset := range map[string]string{
		"that end an element":           `<!ENTITY a "</id><id>">`,
		"that begin an element":         `<!ENTITY a "<b>">`,
		"of which two are an element":   `<!ENTITY o "<b>"><!ENTITY c "</b>"><!ENTITY a "&o;x&c;">`,
		"that begin a comment":          `<!ENTITY a "<!--">`,
		"that begin a CDATA section":    `<!ENTITY a "<![CDATA[">`,
		"that are a part of a tag":      `<!ENTITY a "<b ">`,
		"that are a <":                  `<!ENTITY a "&#60;">`,
		"that are an &":                 `<!ENTITY a "&#38;">`,
		"whose element ends with other": `<!ENTITY a "<b></B>">`,
		"that refer to themselves":      `<!ENTITY a "<b>&a;">`,
	} {
		parallel.Run(t, name, func(t *testing.T) {
			doc := `<!DOCTYPE x [` + subset + `]><feed xmlns="http://www.w3.org/2005/Atom"><title>T</title><entry><id>1&a;lt;/>]]>--></id><title>T</title></entry><entry><id>2</id></entry></feed>`
			if _, err := readEveryWay(t, doc, Options{}); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "entity") {
				t.Errorf("got %v", err)
			}
			// A lenient reader takes the text of the entity for text.
			r := NewReader(strings.NewReader(doc), Options{Lenient: true})
			entries, err := read(r)
			if err != nil || len(entries) != 2 || r.Faults().Count == 0 || r.Faults().LeftOut > 0 {
				t.Fatalf("got %d entries, %v, %s", len(entries), err, r.Faults())
			}
			if body := string(entries[0].Body); strings.Count(body, "<id>") != 1 || strings.Count(body, "<") != 6 || !strings.HasSuffix(body, "</id><title>T</title></entry>") {
				t.Errorf("the entry is %s", body)
			}
			// Nothing refers to it.
			if _, err := readEveryWay(t, strings.Replace(doc, "&a;lt;/>]]>-->", "", 1), Options{}); err != nil {
				t.Errorf("without a reference: %v", err)
			}
		})
	}
	parallel.Run(t, "in an attribute of another", func(t *testing.T) {
		doc := `<!DOCTYPE x [<!ENTITY q '" c="d'><!ENTITY a '<b e="&q;"/>'>]><feed xmlns="http://www.w3.org/2005/Atom"><entry><id>&a;</id></entry></feed>`
		entries, err := readEveryWay(t, doc, Options{})
		if err != nil || !strings.Contains(string(entries[0].Body), `<b e="&quot; c=&quot;d"/>`) {
			t.Errorf("got %v, %v", entries, err)
		}
	})
	parallel.Run(t, "that take long and become nothing", func(t *testing.T) {
		subset := `<!ENTITY e0 "">`
		for i := range 8 {
			subset += fmt.Sprintf(`<!ENTITY e%d "%s">`, i+1, strings.Repeat(fmt.Sprintf("&e%d;", i), 1000))
		}
		doc := `<!DOCTYPE x [` + subset + `]><feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1&e8;</id></entry></feed>`
		if entries, err := read(NewReader(strings.NewReader(doc), Options{})); err != nil || entries[0].ID != "1&e8;" {
			t.Errorf("got %v, %v", entries, err)
		}
	})
	parallel.Run(t, "that make the document malformed", func(t *testing.T) {
		doc := `<!DOCTYPE x [<!ENTITY a "<b>">]><feed xmlns="http://www.w3.org/2005/Atom"><entry><id>&a;</id></entry></feed>`
		if _, err := readEveryWay(t, doc, Options{}); !errors.Is(err, ErrMalformed) {
			t.Errorf("got %v", err)
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
