package xmlcopy

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

func TestStandaloneXML(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"<a/>": `<a xmlns=""/>`, "\ufeff<?xml version='1.0'?>\n<!-- x --><a b='1'>x</a>\n": `<a xmlns="" b="1">x</a>`,
		"<a xmlns='urn:a'><b/></a>": `<a xmlns="urn:a"><b/></a>`, "<a:b xmlns:a='urn:a'></a:b>": `<a:b xmlns:a="urn:a"></a:b>`,
		"<a:b xmlns:a='urn:a'><c/></a:b>": `<a:b xmlns:a="urn:a" xmlns=""><c/></a:b>`, `<a xml:lang="en"/>`: `<a xmlns="" xml:lang="en"/>`,
		"": "", "text": "", "<a/>text": "", "<a/><b/>": "", "<a>": "", "<a></b>": "", "<a><!X></a>": "", "<a:b/>": "", "<a b:c=''/>": "", "</a>": "", "<a></a></a>": "",
		"<a b='' b=''/>": "", "<a xmlns:b='urn:b' xmlns:c='urn:b' b:d='' c:d=''/>": "", "<?xml version='1.0' encoding='latin1'?><a/>": "", "<a>\xff</a>": "", "<a>\x01</a>": "", "<a>&#1;</a>": "",
		// Everything except elements and text is left out.
		"<!DOCTYPE a><a/>": `<a xmlns=""/>`, "<?x y?><a/>": `<a xmlns=""/>`, "<a><?p&x?>1<!-- 2 --></a>": `<a xmlns="">1</a>`, "<a>&nbsp;<![CDATA[<b>]]></a>": "<a xmlns=\"\">\u00a0&lt;b&gt;</a>",
		// Others than encoding/xml do not take these as they are.
		"<a b='1'c='\n>'/>": `<a xmlns="" b="1" c=" &gt;"/>`, "<a xmlns:b=' urn:b c '><b:d/></a>": `<a xmlns:b="urn:b%20c" xmlns=""><b:d/></a>`, "<a><:b/></a>": "", "<a :b=''/>": "",
		"<a xmlns='urn:a}b c'/>": `<a xmlns="urn:a%7Db%20c"/>`, "<a xmlns='a:%}&#x80;{\\^`|\"&lt;>é/?#[]@!$&amp;()*+,;=~'/>": `<a xmlns="a:%%7D%C2%80%7B%5C%5E%60%7C%22%3C%3Eé/?#[]@!$&amp;()*+,;=~"/>`,
		"<a xmlns:b='urn:b'><b:/></a>": "", "<a xmlns:b='urn:b'><b:1/></a>": "", "<a xmlns:b='urn:b'><b:c:d/></a>": "", "<a xmlns:=''/>": "",
		"<a>&#xD800;</a>": "<a xmlns=\"\">\ufffd</a>", "<a b='&#57343;'/>": "<a xmlns=\"\" b=\"\ufffd\"/>",
		"<a xmlns:b=''/>": "", "<a xmlns:xmlns='urn:b'/>": "", "<a xmlns:xml='urn:b'/>": "", "<a><xmlns:b/></a>": "",
		"<a xmlns:b='http://www.w3.org/XML/1998/namespace'/>": "", "<a xmlns='http://www.w3.org/2000/xmlns/'/>": "",
		strings.Repeat("<a>", 201) + strings.Repeat("</a>", 201):         "",
		"<a xmlns='' xmlns:xml='http://www.w3.org/XML/1998/namespace'/>": `<a xmlns=""/>`,
	} {
		el, _, ok := Standalone([]byte(doc))
		if string(el) != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", doc, el, ok, want)
		}
	}
}

// FuzzCDATA compares the text of CDATA sections, short and long, with what [xml.Decoder] returns.
func FuzzCDATA(f *testing.F) {
	for _, doc := range []string{"%s", " %s\n", "<b/>%s", "<b>%s</b>%s", "&lt;%s", "<!-- x -->%s%s", "<b></b>%s<b/>", "%s]]>", "<![CDATA[", "<?x?>%s"} {
		for _, text := range []string{"", "a < & b\n", "\r\n", "é", "\uffff", "\xff", "\x01", "]]", "\ufffd"} {
			f.Add(doc, text)
		}
	}
	f.Fuzz(mutation.OfCorpus(20, func(t *testing.T, doc, text string) {
		text = "<![CDATA[" + text + strings.Repeat("x", shortestCDATA) + text + "]]>"
		doc = "<a>" + strings.ReplaceAll(doc, "%s", text) + "</a>"
		s, ok := Open([]byte(doc))
		if !ok {
			return
		}
		got, _, err := s.InnerContent()
		if err != nil || !s.AtEnd() {
			return // it refuses more than the decoder, such as prefixes that are not declared
		}
		var want []byte
		d := xml.NewDecoder(strings.NewReader(doc))
		d.Entity = xml.HTMLEntity
		token, err := d.RawToken()
		for ; err == nil; token, err = d.RawToken() {
			if text, ok := token.(xml.CharData); ok {
				want = append(want, text...)
			}
		}
		if !errors.Is(err, io.EOF) || got != string(want) {
			t.Errorf("%q: got %q, want %q, %v", doc, got, want, err)
		}
	}))
}
