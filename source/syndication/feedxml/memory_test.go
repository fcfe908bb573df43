package feedxml

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// exactGC has the garbage collector stop the program while it runs. Otherwise the heap grows
// beyond the collector's goal for as long as other processes keep the collector from running.
const exactGC = "gcstoptheworld=2"

// mostHeap returns how many bytes the heap grows by at most while f runs. It is exact only with
// [exactGC].
func mostHeap(f func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	runtime.GC()
	before, most := heap(), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, heap()-before)
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	f()
	close(stop)
	<-done
	return max(most, heap()-before)
}

const far = "http://x.example/"

// hostileDocuments returns documents that need much memory or time for their size, by their name. Their
// size grows with the scale.
func hostileDocuments(scale int) map[string]string {
	long := strings.Repeat("x", 100<<10)
	within := strings.Repeat("x", longestAddress-100)
	fixed, many := strings.Repeat, func(s string, n int) string { return strings.Repeat(s, n*scale) }
	atom := func(attrs, content string) string {
		return `<feed xmlns="http://www.w3.org/2005/Atom" ` + attrs + `>` + content + `</feed>`
	}
	rss := func(content string) string { return `<rss version="2.0"><channel>` + content + `</channel></rss>` }
	var prefixes, uses strings.Builder
	for i := range 200 {
		name := "p" + string(rune('a'+i/20)) + string(rune('a'+i%20))
		prefixes.WriteString(" xmlns:" + name + `="` + far + long[:5000] + `"`)
		uses.WriteString("<" + name + ":x/>")
	}
	return map[string]string{
		"a long xml:base and many links":              atom(`xml:base="`+far+long+`/"`, many(`<link href="a"/>`, 5000)),
		"a long xml:base and many links of entries":   atom(`xml:base="`+far+long+`/"`, many(`<entry>`+fixed(`<link href="a"/>`, 500)+`</entry>`, 10)),
		"the longest xml:base and many links":         atom(`xml:base="`+far+within+`/"`, many(`<link href="a"/>`, 20_000)),
		"the longest xml:base and an entry of links":  atom(`xml:base="`+far+within+`/"`, `<entry>`+many(`<link href="a"/>`, 9000)+`</entry>`),
		"the longest xml:base and many entries":       atom(`xml:base="`+far+within+`/"`, many(`<entry/>`, 20_000)),
		"a rel of many words":                         atom("", `<link href="`+within+`" rel="`+many("a ", 300_000)+`"/>`),
		"a rel of many words in an entry":             atom("", `<entry><link href="`+within+`" rel="`+many("a ", 300_000)+`"/></entry>`),
		"a long prev":                                 atom(`xmlns:fh="http://purl.org/syndication/history/1.0"`, `<fh:prev>`+long+`</fh:prev>`),
		"many namespaces":                             atom(prefixes.String(), many(`<entry>`+uses.String()+`</entry>`, 50)),
		"long ids":                                    atom("", many(`<entry><id>`+long+`</id></entry>`, 20)),
		"long tombstones":                             atom(`xmlns:at="http://purl.org/atompub/tombstones/1.0"`, many(`<at:deleted-entry ref="`+long+`" when="`+long+`"><at:comment>`+long+`</at:comment></at:deleted-entry>`, 5)),
		"long dates":                                  rss(many(`<item><pubDate>`+fixed("1 ", 50_000)+`</pubDate></item>`, 10)),
		"nested bases":                                atom("", many(`<entry xml:base="`+within[:4000]+`/">`+fixed(`<link xml:base="`+within[:4000]+`/" href="a"/>`, 100)+`</entry>`, 3)),
		"many children":                               rss(`<item>` + many(`<link/>`, mostChildren) + `</item>`),
		"many references":                             rss(`<item><guid>` + many(`&amp;`, 100_000) + `</guid></item>`),
		"counters in many elements":                   atom(`xmlns:m="http://search.yahoo.com/mrss/"`, many(`<entry>`+fixed(`<x xmlns:y="`+far+`">`, 200)+fixed(`<m:statistics/>`, 20_000)+fixed(`</x>`, 200)+`</entry>`, 5)),
		"many channels' links":                        rss(many(`<link>`+within[:1000]+`</link>`, 900)),
		"one entry of the largest size":               rss(`<item><description>` + many("x", 1<<20-100) + `</description></item>`),
		"many titles":                                 rss(many(`<title>x</title>`, 60_000)),
		"many violations":                             rss(many(`<item><pubDate>x</pubDate></item>`, 20_000)),
		"many undefined entities":                     rss(many(`<item><guid>&`+long[:60]+`;</guid></item>`, 5000)),
		"a long DOCTYPE":                              `<!DOCTYPE feed [` + many(`<!ENTITY a "b">`, 50_000) + `]>` + atom("", ""),
		"an entity that is used often":                `<!DOCTYPE feed [<!ENTITY a "` + long[:4000] + `">` + `]>` + atom("", `<entry><title>`+many(`&a;`, 100_000)+`</title></entry>`),
		"an entity that is used often in attributes":  `<!DOCTYPE feed [<!ENTITY a "` + long[:4000] + `">` + `]>` + atom("", many(`<entry x="`+fixed(`&a;`, 10_000)+`"/>`, 10)),
		"many ampersands":                             rss(`<item><title>` + many("&", 500_000) + `</title></item>`),
		"many ampersands in a value":                  rss(`<item><a b="` + many("&", 500_000) + `"/></item>`),
		"many control characters":                     rss(many("\x01", 500_000)),
		"many bytes that are not UTF-8":               rss(`<item>` + many("\xe9", 500_000) + `</item>`),
		"many less-thans":                             rss(`<item>` + many("<", 500_000) + `</item>`),
		"many entries without an end":                 rss(many(`<item>`, 100_000)),
		"many elements without an end":                rss(`<item>` + many(`<b>`, 100_000) + `</item>`),
		"many end tags too many":                      rss(many(`</b>`, 100_000)),
		"many attributes":                             rss(`<item ` + many(`a=b `, 100_000) + `/>`),
		"many roots":                                  many(rss(`<item><guid>1</guid></item>`), 5000),
		"much junk":                                   many(`<b>x</b>`, 100_000) + rss(""),
		"an entity that is used often beside entries": `<!DOCTYPE feed [<!ENTITY a "` + long[:4000] + `">` + `]>` + atom("", `<title>`+many(`&a;`, 100_000)+`</title>`),
	}
}

// A document of N bytes may take k times N and a constant, whatever it consists
// of. Without its limits the reader made 1 GB of the first of them.
func TestMemoryIsBoundedByWhatInputBecomes(t *testing.T) {
	if os.Getenv("GODEBUG") != exactGC {
		// The runtime reads the variable when the program starts.
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), "GODEBUG="+exactGC)
		output, err := again.CombinedOutput()
		if err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()+"/") {
			t.Errorf("%v\n%s", err, output)
		}
		return
	}
	const (
		perByte  = 10
		constant = 16 << 20
	)
	long := strings.Repeat("x", 100<<10)
	for name, doc := range hostileDocuments(1) {
		t.Run(name, func(t *testing.T) {
			for _, opts := range []Options{
				{URL: far + "feed", Limits: Limits{Entry: 1 << 20, Head: 1 << 20}},
				{URL: far + long + "/", Limits: Limits{Entry: 1 << 20, Head: 1 << 20}},
				{URL: far + "feed", Limits: Limits{Entry: 1 << 20, Head: 1 << 20}, Lenient: true},
			} {
				grown := mostHeap(func() {
					r := NewReader(strings.NewReader(doc), opts)
					for {
						if _, err := r.Next(); err != nil {
							if !errors.Is(err, io.EOF) && !errors.Is(err, ErrTooLarge) && !strings.HasPrefix(name, "m") {
								t.Error(err)
							}
							break
						}
					}
					runtime.KeepAlive(r)
				})
				if limit := int64(perByte*len(doc) + constant); grown > limit {
					t.Errorf("a document of %d bytes took %d, where %d are the most", len(doc), grown, limit)
				}
				t.Logf("%d bytes took %d", len(doc), grown)
			}
		})
	}
}

func TestLimitsOfLinksAndIDs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", longestAddress)
	parallel.Run(t, "links of a document", func(t *testing.T) {
		_, meta, odd := mustRead(t, atomFeed(strings.Repeat(`<link href="a"/>`, mostLinks+2)))
		if len(meta.Links) != mostLinks || len(odd) != 1 || odd[0].Kind != kindTooManyLinks {
			t.Errorf("got %d links, %v", len(meta.Links), odd)
		}
	})
	parallel.Run(t, "relations of a link", func(t *testing.T) {
		_, meta, odd := mustRead(t, atomFeed(`<link href="a" rel="`+strings.Repeat("x ", mostRelations+1)+`"/>`))
		if len(meta.Links) != mostRelations || len(odd) != 1 || odd[0].Kind != kindTooManyLinks {
			t.Errorf("got %d links, %v", len(meta.Links), odd)
		}
	})
	for name, tt := range map[string]struct{ attrs, link string }{
		"a long reference":  {"", long + "x"},
		"a long result":     {`xml:base="http://x/` + long[:5000] + `/"`, long[:5000]},
		"long when escaped": {"", strings.Repeat("é", 2000)},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			doc := strings.Replace(atomFeed(`<link rel="next" href="`+tt.link+`"/>`), "<feed ", "<feed "+tt.attrs+" ", 1)
			_, meta, odd := mustRead(t, doc)
			if next, _ := meta.Link("next"); next.Href != "" || len(odd) != 1 || odd[0].Kind != kindBadHref || len(odd[0].Detail) > 300 {
				t.Errorf("got %.50q, %.500v", next.Href, odd)
			}
		})
	}
	parallel.Run(t, "ids", func(t *testing.T) {
		entries, _, odd := mustRead(t, atomFeed(`<entry><id>`+long+`</id></entry><entry><id>`+long+`x</id></entry><at:deleted-entry ref="`+long+`x" when="2026-01-01"/>`))
		const hashed = "sha256:"
		if entries[0].ID != long || len(entries[1].ID) != len(hashed)+64 || !strings.HasPrefix(entries[1].ID, hashed) || entries[2].ID != entries[1].ID {
			t.Errorf("got %.100q", ids(entries))
		}
		if len(odd) != 2 || odd[0].Kind != kindLongID || odd[1].Kind != kindLongID {
			t.Errorf("got %.500v", odd)
		}
	})
}
