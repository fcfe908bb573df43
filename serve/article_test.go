package serve

import (
	"strings"
	"testing"
)

// The size of a served entry is bounded by the size of its original, whatever it contains:
// a namespace with a long name that many elements use is not written for each of them.
func TestConversionIsBounded(t *testing.T) {
	t.Parallel()
	const n = 20_000
	long := strings.Repeat("x", 8000)
	for name, body := range map[string]string{
		"elements of a namespace with a long name": `<item xmlns:p="urn:` + long + `">` + strings.Repeat("<p:a/>", n) + `</item>`,
		"the same in Atom 0.3":                     `<entry xmlns="http://purl.org/atom/ns#" xmlns:p="urn:` + long + `">` + strings.Repeat("<p:a/>", n) + `</entry>`,
		"links":                                    `<entry xmlns="http://www.w3.org/2005/Atom">` + strings.Repeat(`<link rel="a" href="b"/>`, n) + `</entry>`,
		"links with a long base":                   `<entry xmlns="http://www.w3.org/2005/Atom" xml:base="http://x/` + long + `/">` + strings.Repeat(`<link rel="a" href="b"/>`, n) + `</entry>`,
		"people":                                   `<entry xmlns="http://www.w3.org/2005/Atom">` + strings.Repeat(`<author><name>a</name></author>`, n) + `</entry>`,
		"categories":                               `<item>` + strings.Repeat(`<category>a</category>`, n) + `</item>`,
		"ampersands":                               `<item><description>` + strings.Repeat(`<![CDATA[&]]>`, n) + `</description></item>`,
	} {
		for _, f := range []Format{Atom, RSS} {
			out := f.appendEntity(nil, &page{}, &entity{id: "1", op: "PUT", body: []byte(body)})
			if most := 6*len(body) + 10_000; len(out) > most {
				t.Errorf("%s: %s makes %d bytes of %d", name, f, len(out), len(body))
			}
		}
	}
}
