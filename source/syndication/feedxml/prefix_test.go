package feedxml

import (
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

func TestDeclarePrefixes(t *testing.T) {
	t.Parallel()
	for in, tt := range map[string]struct {
		want     string
		prefixes []string
	}{
		`<item><title>a:b</title></item>`:                             {`<item><title>a:b</title></item>`, nil},
		`<item><media:x url="a"/></item>`:                             {`<item xmlns:media="http://search.yahoo.com/mrss/"><media:x url="a"/></item>`, []string{"media"}},
		`<item a="1"><p:x q:y="a">z</p:x></item>`:                     {`<item xmlns:p="urn:undeclared-prefix:p" xmlns:q="urn:undeclared-prefix:q" a="1"><p:x q:y="a">z</p:x></item>`, []string{"p", "q"}},
		`<p:item xmlns:p="u"><p:a/></p:item>`:                         {`<p:item xmlns:p="u"><p:a/></p:item>`, nil},
		`<p:item/>`:                                                   {`<p:item xmlns:p="urn:undeclared-prefix:p"/>`, []string{"p"}},
		`<item><a xmlns:p="u"><p:b/></a><c xml:lang="a"/></item>`:     {`<item><a xmlns:p="u"><p:b/></a><c xml:lang="a"/></item>`, nil},
		`<item><a xmlns:p="u"/><p:b/></item>`:                         {`<item xmlns:p="urn:undeclared-prefix:p"><a xmlns:p="u"/><p:b/></item>`, []string{"p"}},
		`<item><a xmlns:p="u"></a><p:b/></item>`:                      {`<item xmlns:p="urn:undeclared-prefix:p"><a xmlns:p="u"></a><p:b/></item>`, []string{"p"}},
		`<item><![CDATA[<p:a/>]]><!-- <p:b> --><?p:c d?>&p:d;</item>`: {`<item><![CDATA[<p:a/>]]><!-- <p:b> --><?p:c d?>&p:d;</item>`, nil},
	} {
		got, prefixes := DeclarePrefixes([]byte(in))
		if string(got) != tt.want || !slices.Equal(prefixes, tt.prefixes) {
			t.Errorf("%s\ngot  %s, %q\nwant %s, %q", in, got, prefixes, tt.want, tt.prefixes)
		}
		if _, _, ok := xmlcopy.Standalone(got); !ok && !strings.Contains(in, "&p") {
			t.Errorf("%s is not well-formed", got)
		}
	}
}
