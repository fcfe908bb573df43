package feedxml

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/unicode"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// writer writes a random document.
type writer struct {
	t *rapid.T
	strings.Builder
}

func (w *writer) pick(label string, choices ...string) string {
	return rapid.SampledFrom(choices).Draw(w.t, label)
}

func (w *writer) number(label string, most int) int {
	return rapid.IntRange(0, most).Draw(w.t, label)
}

// text writes character data in a random notation, and returns its value.
func (w *writer) text() string {
	meaning := ""
	for range w.number("pieces", 3) {
		switch w.pick("piece", "plain", "plain", "reference", "number", "CDATA", "comment") {
		case "plain":
			s := w.pick("plain", "a", "urn:x:1", " ", "é", "日本", ">", "x:y", "'\"", "\n")
			w.WriteString(s)
			meaning += s
		case "reference":
			w.WriteString(w.pick("reference", "&lt;", "&amp;", "&quot;", "&gt;", "&apos;"))
			s := w.String()
			meaning += string(predefined(strings.TrimSuffix(s[strings.LastIndexByte(s, '&')+1:], ";")))
		case "number":
			c := rapid.SampledFrom([]rune{'a', '<', '&', 'é', 0x1f600}).Draw(w.t, "character")
			fmt.Fprintf(w, w.pick("base", "&#%d;", "&#x%x;"), c)
			meaning += string(c)
		case "CDATA":
			s := w.pick("CDATA", "", "</entry>", "<id>no</id>", "&amp;", "]]", ">")
			w.WriteString("<![CDATA[" + s + "]]>")
			meaning += s
		case "comment":
			w.WriteString(w.pick("comment", "<!---->", "<!-- <entry> -->", "<?pi </feed>?>"))
		}
	}
	return meaning
}

// attributes writes attributes that mean nothing.
func (w *writer) attributes() {
	for i := range w.number("attributes", 2) {
		quote := w.pick("quote", "'", `"`)
		fmt.Fprintf(w, "%s%sa%d%s%s%s%s", w.pick("blank", " ", "\n", "  "), w.pick("prefix", "", "x:", "y:"), i, w.pick("equals", "=", " = "),
			quote, w.pick("value", "", "1", "a>b", "x:y", "&lt;", "/>", "é"), quote)
	}
}

// foreign writes elements that mean nothing, whatever is in them.
func (w *writer) foreign(depth int) {
	for range w.number("elements", 2) {
		name := w.pick("name", "x:id", "y:entry", "x:item", "x:deleted-entry", "y:link")
		w.WriteString("<" + name)
		if w.pick("declaration", "no", "no", "yes") == "yes" {
			w.WriteString(` xmlns:x="urn:other"`)
		}
		w.attributes()
		if w.pick("empty", "no", "yes") == "yes" {
			w.WriteString(w.pick("slash", "/>", " />"))
			continue
		}
		w.WriteString(">")
		w.text()
		if depth > 0 {
			w.foreign(depth - 1)
		}
		w.text()
		w.WriteString("</" + name + w.pick("blank", "", "\n") + ">")
	}
}

// between writes random markup that is allowed between elements.
func (w *writer) between() {
	w.WriteString(w.pick("between", "", "\n  ", "<!-- <entry/> -->", "<?pi <entry/>?>", "\r\n"))
}

// document writes a document and returns the entries that it has.
func (w *writer) document() []Entry {
	format := Format(w.pick("format", string(Atom), string(Atom), string(RSS), string(RDF)))
	const declarations = ` xmlns:x="urn:x" xmlns:y="urn:y" xmlns:at="http://purl.org/atompub/tombstones/1.0"`
	w.WriteString(w.pick("prolog", "", "<?xml version='1.0'?>", "<!DOCTYPE feed [<!ENTITY a '<entry>'>]>"))
	w.between()
	p, entry, id := "", "item", "guid"
	end := "</channel></rss>"
	switch format {
	case Atom:
		p = w.pick("prefix", "", "a:")
		entry, id = p+"entry", p+"id"
		fmt.Fprintf(w, `<%sfeed xmlns%s="http://www.w3.org/2005/Atom"%s`, p, strings.TrimSuffix(":"+p, ":"), declarations)
		w.WriteString(w.pick("base", "", ` xml:base="b/"`, ` xml:base='http://ex/' xml:lang="de"`))
		w.WriteString(">")
		end = "</" + p + "feed>"
	case RSS:
		w.WriteString("<rss version='2.0'" + declarations + "><channel>")
	case RDF:
		w.WriteString(`<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"` + declarations + `><channel r:about="c"/>`)
		id = "link"
		end = "</r:RDF>"
	}
	var entries []Entry
	for i := range w.number("entries", 6) {
		w.between()
		w.foreign(1)
		e := Entry{IDFrom: FromID}
		if w.pick("kind", "entry", "entry", "tombstone") == "tombstone" {
			when := time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC)
			e.Deleted, e.ID, e.Updated = true, fmt.Sprint("deleted", i), Date{Time: when, Raw: when.Format(time.RFC3339), From: "when"}
			fmt.Fprintf(w, `<at:deleted-entry when="%s" ref='%s'`, e.Updated.Raw, e.ID)
			w.attributes()
			w.WriteString("/>")
			entries = append(entries, e)
			continue
		}
		if format != Atom {
			e.IDFrom = IDSource(id)
		}
		w.WriteString("<" + entry)
		w.attributes()
		w.WriteString(">")
		w.text()
		w.foreign(2)
		fmt.Fprintf(w, "<%s>%d.", id, i)
		e.ID = trimSpace(fmt.Sprintf("%d.%s", i, w.text()))
		fmt.Fprintf(w, "</%s>", id)
		w.foreign(2)
		w.WriteString("</" + entry + ">")
		entries = append(entries, e)
	}
	w.between()
	w.WriteString(end)
	w.between()
	return entries
}

// A document that was written is read back: every entry with its id, and with a
// body that encoding/xml finds to say the same, in UTF-8 and in UTF-16.
func TestDocumentsAreReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := writer{t: rt}
		want := w.document()
		doc := w.String()
		opts := Options{URL: docURL}
		got, err := read(NewReader(strings.NewReader(doc), opts))
		if err != nil {
			rt.Fatalf("%s: %v", doc, err)
		}
		for i := range want {
			want[i].ID = strings.ReplaceAll(want[i].ID, "\r\n", "\n")
		}
		if diff := cmp.Diff(want, identities(got)); diff != "" {
			rt.Fatalf("%s: %s", doc, diff)
		}
		compareWithOracle(t, doc, got)

		wide, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(doc)
		must.Succeed(rt, err)
		again, err := read(NewReader(strings.NewReader(wide), opts))
		if err != nil {
			rt.Fatalf("%s in UTF-16: %v", doc, err)
		}
		if diff := cmp.Diff(got, again); diff != "" {
			rt.Fatalf("%s in UTF-16: %s", doc, diff)
		}
	})
}

// identities returns the entries with only the fields that the writer knows.
func identities(entries []Entry) []Entry {
	var list []Entry
	for _, e := range entries {
		list = append(list, Entry{ID: e.ID, IDFrom: e.IDFrom, Deleted: e.Deleted, Updated: e.Updated})
	}
	return list
}
