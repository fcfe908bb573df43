package feedxml

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// openers begin markup that may not end, or elements that may not. Repeated, they make a reader
// search the whole document again and again.
var openers = []string{
	"<!-- ", "<?x ", "<?", "<?1 ", "<![CDATA[", "<!x ", "<!DOCTYPE ", "<", "<<", "</", "</b", "</b>", "&", "&a", "&#", "]]>", "--", "\x01", "\xff",
	"<a b='>", `<a b="'>`, "<a b=", "<a a a a ", "<a b='x' b='x' ", "<b a=b c=d ", "<b>", "<b/>", "<x:y>", "<b x:y='z'/>", "<title>", "<title>&x;</title>",
	"<item>", "<item/>", "<item><b>", "<item><c><d></c>", "<c><item></c>", "<c><item></c><c><item></item></c>", "<x><y><item></y>",
	"<item><title>x<guid>1", "<item>a & b</item>", "<item>a & b<![CDATA[", "<item>a & b<!--</item>", "<item>a & b<?x</item>", "<item>a<title>&x</items>",
	"<item></channel><item>", "</item>", "</channel>", "</rss>", "</rss><item>", "<entry>", "<channel>", "<author>",
}

// places are documents with a piece where it is read in different ways.
var places = map[string]func(piece string) string{
	"in an item":            func(s string) string { return "<rss><channel><item>a & b" + s + "</item></channel></rss>" },
	"in an item at the end": func(s string) string { return "<rss><channel><item>a & b" + s },
	"in an element":         func(s string) string { return "<rss><channel><x>a & b" + s + "</x></channel></rss>" },
	"between items":         func(s string) string { return "<rss><channel>" + s + "</channel></rss>" },
	"before the root":       func(s string) string { return s + "<rss><channel/></rss>" },
	"in a DOCTYPE": func(s string) string {
		return `<!DOCTYPE a ["` + strings.ReplaceAll(s, `"`, "'") + `"]><rss><channel/></rss>`
	},
	"in an item of 255": func(s string) string { return "<rss><channel>" + strings.Repeat("<item>", 255) + s },
	"in a root of long name": func(s string) string {
		return "<" + longName + ":rss xmlns:" + longName + "='a'><" + longName + ":channel>" + s
	},
}

var longName = strings.Repeat("x", 8000)

// checkLooked checks that the number of bytes that are looked at is bounded by the size of a document,
// not by its square. Time would depend on the machine. The mostAhead bytes that are read in vain may be looked at
// several times.
func checkLooked(t *testing.T, name, doc string, opts Options) {
	t.Helper()
	r := NewReader(strings.NewReader(doc), opts)
	_, _ = read(r)
	if r.scan.looked > int64(5*mostAhead+12*len(doc)) {
		t.Errorf("%s, %+v: %d bytes were looked at in a document of %d", name, opts, r.scan.looked, len(doc))
	}
}

// For each of the openers, the square of the size would be 500 million bytes at least.
func TestTimeIsLinear(t *testing.T) {
	t.Parallel()
	const size = 100_000
	for place, document := range places {
		parallel.Run(t, place, func(t *testing.T) {
			for i, piece := range openers {
				doc := document(strings.Repeat(piece, size/len(piece)))
				checkLooked(t, piece, doc, Options{Lenient: true})
				if i%3 == 0 {
					checkLooked(t, piece, doc, Options{Lenient: true, Limits: Limits{Entry: size / 4, Head: size / 4}})
				}
			}
		})
	}
	parallel.Run(t, "hostile documents", func(t *testing.T) {
		for name, doc := range hostileDocuments(2) {
			for _, opts := range []Options{{Lenient: true}, {}} {
				checkLooked(t, name, doc, opts)
			}
		}
	})
}

// Bytes that are searched and not counted show only in the time. 2 MB of markup that does not end take
// hundredths of a second, and ten seconds or more if each is searched to the end of the document.
func TestSearchesAreLinear(t *testing.T) {
	if underRace {
		t.Skip("the race detector is slow")
	}
	const size = 2_000_000
	for _, place := range []string{"in an item", "in an item at the end", "between items"} {
		for _, piece := range []string{"<!-- ", "<?x ", "<![CDATA[", "<!x ", "<a b='", "</b", "&a"} {
			doc := places[place](strings.Repeat(piece, size/len(piece)))
			cputime.CheckTime(t, place+": "+piece, 1500*time.Millisecond, func() { _, _ = read(NewReader(strings.NewReader(doc), Options{Lenient: true})) })
		}
	}
}

// A long repair ends when it is interrupted, although nothing more is read.
func TestRepairIsInterrupted(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	doc := places["in an item"](strings.Repeat("<b>&</b>", 1<<20))
	calls := 0
	r := NewReader(strings.NewReader(doc), Options{Lenient: true, Interrupted: func() error {
		if calls++; calls > 20 {
			return stop
		}
		return nil
	}})
	if _, err := read(r); !errors.Is(err, stop) {
		t.Errorf("got %v after %d calls", err, calls)
	}
}
