package feedxml

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestStandaloneBody(t *testing.T) {
	t.Parallel()
	const ns = ` xmlns="http://www.w3.org/2005/Atom"`
	tests := []struct {
		name       string
		root, body string // additions to the root's tag, and the entry
		want       string
	}{
		{"only the default namespace", "", `<entry><id>1</id></entry>`, `<entry` + ns + `><id>1</id></entry>`},
		{"case 118: a prefix of the feed", ` xmlns:x="urn:x" xmlns:y="urn:y"`, `<entry><id>1</id><x:a/></entry>`, `<entry` + ns + ` xmlns:x="urn:x"><id>1</id><x:a/></entry>`},
		{"a prefix in an attribute's name", ` xmlns:x="urn:x"`, `<entry x:a="1"/>`, `<entry` + ns + ` xmlns:x="urn:x" x:a="1"/>`},
		{"a prefix in a value", ` xmlns:x="urn:x" xmlns:xsi="urn:i"`, `<entry><a xsi:type='x:a'/></entry>`, `<entry` + ns + ` xmlns:x="urn:x" xmlns:xsi="urn:i"><a xsi:type='x:a'/></entry>`},
		{"prefixes that only look used", ` xmlns:x="urn:x" xmlns:http="urn:h"`, `<entry a="xx:b"><!-- yx:a --></entry>`, `<entry` + ns + ` a="xx:b"><!-- yx:a --></entry>`},
		{"a prefix between colons counts as used", ` xmlns:x="urn:x"`, `<entry a="urn:x:1"/>`, `<entry` + ns + ` xmlns:x="urn:x" a="urn:x:1"/>`},
		{"the entry's own declaration", ` xmlns:x="urn:x"`, `<entry xmlns:x="urn:z"><x:a/></entry>`, `<entry` + ns + ` xmlns:x="urn:z"><x:a/></entry>`},
		{"an own default namespace", ``, `<a:entry xmlns:a="http://www.w3.org/2005/Atom" xmlns="urn:z"><b/></a:entry>`, `<a:entry xmlns:a="http://www.w3.org/2005/Atom" xmlns="urn:z"><b/></a:entry>`},
		{"a default namespace that is undone", ``, `<entry xmlns="http://www.w3.org/2005/Atom"><b xmlns=""/></entry>`, `<entry xmlns="http://www.w3.org/2005/Atom"><b xmlns=""/></entry>`},
		{"a prefix that is bound twice", ` xmlns:x="urn:&lt;&quot;x&amp;"`, `<entry><x:a/><x:b xmlns:x="urn:z"/></entry>`, `<entry` + ns + ` xmlns:x="urn:&lt;&quot;x&amp;"><x:a/><x:b xmlns:x="urn:z"/></entry>`},
		{"case 119: base and language", ` xml:base="b/" xml:lang="de"`, `<entry><link href="1"/></entry>`, `<entry` + ns + ` xml:base="http://x.example/a/b/" xml:lang="de"><link href="1"/></entry>`},
		{"case 119: its own base and language", ` xml:base="http://ex/b/" xml:lang="de"`, `<entry a="" xml:lang="en" xml:base='c/' b=""/>`, `<entry` + ns + ` a="" xml:lang="en" xml:base='http://ex/b/c/' b=""/>`},
		{"case 119: an own base that is absolute", ` xml:base="http://ex/b/"`, `<entry xml:base=" HTTP://ey/c"/>`, `<entry` + ns + ` xml:base=" HTTP://ey/c"/>`},
		{"a base with an apostrophe", ` xml:base="http://ex/it's/"`, `<entry xml:base='c/&amp;'/>`, `<entry` + ns + ` xml:base='http://ex/it&apos;s/c/&amp;'/>`},
		{"no base: that of the document is none of the entry's", ``, `<entry><link href="1"/></entry>`, `<entry` + ns + `><link href="1"/></entry>`},
		{
			"case 120: order, comments, CDATA and empty elements", ` xmlns:x="urn:x"`,
			"<entry\n ><x:a/>\r\n<id>1</id><x:a></x:a><!-- > --><![CDATA[</entry>]]><?pi >?><svg/>&#x31;&lt;&gt;</entry >",
			"<entry" + ns + ` xmlns:x="urn:x"` + "\n ><x:a/>\r\n<id>1</id><x:a></x:a><!-- > --><![CDATA[</entry>]]><?pi >?><svg/>&#x31;&lt;&gt;</entry >",
		},
		{"case 19: an entity that XML does not define", ``, `<entry>&nbsp;</entry>`, `<entry` + ns + `>&nbsp;</entry>`},
		{"case 90: the body is the whole entry, and nothing that it had before", ``, `<entry><title>t</title></entry>`, `<entry` + ns + `><title>t</title></entry>`},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			doc := `<feed xmlns="http://www.w3.org/2005/Atom"` + tt.root + ">" + tt.body + "</feed>"
			entries, _, _ := mustRead(t, doc)
			if len(entries) != 1 || string(entries[0].Body) != tt.want {
				t.Errorf("got  %s\nwant %s", entries[0].Body, tt.want)
			}
		})
	}
	parallel.Run(t, "of RSS", func(t *testing.T) {
		entries, _, _ := mustRead(t, `<rss xmlns:x="urn:x"><channel xmlns:y="urn:y" xml:lang="fr"><item><guid>1</guid><y:a/><x:a/></item></channel></rss>`)
		if want := `<item xmlns:x="urn:x" xmlns:y="urn:y" xml:lang="fr"><guid>1</guid><y:a/><x:a/></item>`; string(entries[0].Body) != want {
			t.Errorf("got %s", entries[0].Body)
		}
	})
	parallel.Run(t, "by itself", func(t *testing.T) {
		const doc = `<entry xmlns="http://www.w3.org/2005/Atom" xml:base="http://ex/"><id>1</id></entry>`
		entries, _, _ := mustRead(t, doc)
		if string(entries[0].Body) != doc {
			t.Errorf("got %s", entries[0].Body)
		}
	})
}

// An entry that wanders from the subscription document into an archive is the
// same, although the archive declares other namespaces, and in another order.
func TestHashDoesNotDependOnTheDocument(t *testing.T) {
	t.Parallel()
	const entry = `<entry><id>1</id><x:a/><y:a/></entry>`
	docs := []string{
		`<feed xmlns="http://www.w3.org/2005/Atom" xmlns:x="urn:x" xmlns:y="urn:y">` + entry + `</feed>`,
		`<feed xmlns:fh="http://purl.org/syndication/history/1.0" xmlns:y="urn:y" xmlns:x="urn:x" xmlns="http://www.w3.org/2005/Atom"><fh:archive/>` + entry + `<link rel="prev-archive" href="x"/></feed>`,
	}
	first, _, _ := mustRead(t, docs[0])
	second, _, _ := mustRead(t, docs[1])
	if first[0].Hash != second[0].Hash || string(first[0].Body) != string(second[0].Body) {
		t.Errorf("got %s and %s", first[0].Body, second[0].Body)
	}
	other, _, _ := mustRead(t, strings.Replace(docs[0], "urn:y", "urn:z", 1))
	if first[0].Hash == other[0].Hash {
		t.Error("a namespace has no part in the hash")
	}
}

func TestHashWithout(t *testing.T) {
	t.Parallel()
	hash := func(content string, without ...xml.Name) [32]byte {
		r := NewReader(strings.NewReader(atomFeed("<entry><id>1</id>"+content+"</entry>")), Options{HashWithout: without})
		e, err := r.Next()
		must.Succeed(t, err)
		return e.Hash
	}
	updated := xml.Name{Space: AtomNamespace, Local: "updated"}
	count := xml.Name{Space: "urn:x", Local: "count"}
	const a = `<updated>2026-01-01</updated><x:count xmlns:x="urn:x">1</x:count><title>t</title>`
	const b = `<updated>2026-01-02</updated><x:count xmlns:x="urn:x">22</x:count><title>t</title>`
	if hash(a) == hash(b) {
		t.Error("a change makes no difference")
	}
	if hash(a, updated) == hash(b, updated) {
		t.Error("a change elsewhere makes no difference")
	}
	if hash(a, count, updated) != hash(b, count, updated) {
		t.Error("what does not count makes a difference")
	}
	if hash(a, xml.Name{Space: "*", Local: "count"}, updated) != hash(b, updated, count) {
		t.Error("any namespace is none")
	}
	if hash(a, updated) != hash(strings.ReplaceAll(a, "-01</", "-02</"), updated) {
		t.Error("what does not count makes a difference")
	}
	if hash(a, xml.Name{Local: "updated"}) != hash(a) || hash(a, xml.Name{Space: "urn:y", Local: "count"}) != hash(a) {
		t.Error("a name of another namespace counts")
	}
	if hash("<x><updated>1</updated></x>", updated) != hash("<x><updated>2</updated></x>", updated) {
		t.Error("an element further within makes a difference")
	}
	if hash("", updated) != hash("") {
		t.Error("what is not there makes a difference")
	}
}
