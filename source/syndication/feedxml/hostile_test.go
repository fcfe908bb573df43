package feedxml

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// endless is the text again and again, for as many bytes.
type endless struct {
	text string
	left int
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && n < e.left {
		copied := copy(p[n:min(len(p), e.left)], e.text[e.at:])
		n += copied
		e.at = (e.at + copied) % len(e.text)
	}
	e.left -= n
	return n, nil
}

// limits.entity has no maximum.
func TestLargestLimits(t *testing.T) {
	t.Parallel()
	const doc = `<rss version="2.0"><channel><item><guid>1</guid></item></channel></rss>`
	for _, arriving := range []io.Reader{strings.NewReader(doc), iotest.OneByteReader(strings.NewReader(doc))} {
		r := NewReader(arriving, Options{Limits: Limits{Entry: math.MaxInt, Head: math.MaxInt}})
		if entries, err := read(r); err != nil || len(entries) != 1 {
			t.Errorf("got %d entries, %v", len(entries), err)
		}
	}
}

func TestHostileDocuments(t *testing.T) {
	t.Parallel()
	const (
		open = `<feed xmlns="http://www.w3.org/2005/Atom">`
		far  = 1 << 30 // bytes: more than any reader may buffer
	)
	limits := Limits{Entry: 1 << 20, Head: 1 << 20}
	tests := []struct {
		name       string
		head, text string // the document is head and then text for ever
		want       error
	}{
		{"1 GB of white space", "", " \n", ErrTooLarge},
		{"1 GB of white space in the feed", open, " \n", ErrTooLarge},
		{"1 GB of white space in an entry", open + "<entry>", " \n", ErrTooLarge},
		{"1 GB of white space in a tag", open + "<entry", " \n", ErrTooLarge},
		{"1 GB of white space behind the feed", open + "</feed>", " \n", nil},
		{"a comment without end", "<!--", "x", ErrTooLarge},
		{"a comment without end behind the feed", open + "</feed><!--", "x", ErrTrailing},
		{"a declaration without end", "<!DOCTYPE feed [", "<!ENTITY a 'b'>", ErrTooLarge},
		{"a name without end", "<", "x", ErrTooLarge},
		{"a CDATA section without end", open + "<entry><![CDATA[", "]]&gt;", ErrTooLarge},
		{"an attribute without end", open + "<entry a='", "x", ErrTooLarge},
		{"a reference without end", open + "<entry>&", "x", ErrTooLarge},
		{"an instruction without end", open + "<?x ", "?", ErrTooLarge},
		{"an element without end", open + "<title>", "x", ErrTooLarge},
		{"elements without end", open, "<title/>", ErrTooLarge},
		{"an entry without end", open + "<entry>", "<title/>", ErrTooLarge},
		{"ids without end", open + "<entry>", "<id/>", ErrTooLarge},
		{"depth without end", open, "<entry>", ErrTooLarge},
		{"depth without end in the head", open, "<x>", ErrTooLarge},
		{"a million attributes", open + "<entry", " a=''", ErrTooLarge},
		{"a million namespaces", "<feed", " xmlns:a='a'", ErrTooLarge},
		{"NUL bytes", open, "\x00", ErrMalformed},
		{"bytes that are not UTF-8", open, "\xff", ErrCharset},
		{"roots without end", open + "</feed>", open + "</feed>", ErrTrailing},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			left := far
			if tt.want == nil {
				left = 64 << 20
			}
			rest := &endless{text: tt.text, left: left}
			r := NewReader(io.MultiReader(strings.NewReader(tt.head), rest), Options{Limits: limits})
			_, err := read(r)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
			if read := left - rest.left; tt.want != nil && read > 2<<20 {
				t.Errorf("it took %d bytes to tell", read)
			}
			if len(r.in.buf) > 2<<20 {
				t.Errorf("the buffer has %d bytes", len(r.in.buf))
			}
		})
	}
}

func TestEntitiesAreNotExpanded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`<!DOCTYPE feed [<!ENTITY l0 "lol"><!ENTITY x SYSTEM "file:///etc/passwd"><!ENTITY % p SYSTEM "http://x.invalid/p"> %p;`)
	for i := range 9 {
		b.WriteString("<!ENTITY l" + string(rune('1'+i)) + ` "` + strings.Repeat("&l"+string(rune('0'+i))+";", 10) + `">`)
	}
	b.WriteString(`]><feed xmlns="http://www.w3.org/2005/Atom"><title>&l9;&x;</title><entry><id>&l9;</id></entry></feed>`)
	doc := b.String()
	entries, meta, odd := mustRead(t, doc)
	if meta.Title != "&l9;&x;" || len(entries) != 1 || entries[0].ID != "&l9;" || entries[0].Undefined != "l9" || len(odd) != 2 {
		t.Errorf("got %q, %+v, %v", meta.Title, entries, odd)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	const open, end = `<feed xmlns="http://www.w3.org/2005/Atom">`, `</feed>`
	entry := `<entry><id>` + strings.Repeat("x", 29) + `</id></entry>` // 53 bytes
	nested := open + "<entry>" + strings.Repeat("<a>", 8) + strings.Repeat("</a>", 8) + "</entry>" + end
	head := open + strings.Repeat("<title>a</title>", 4) + end // 64 bytes
	attributes := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ` a%d=""`, i)
		}
		return open + "<entry" + b.String() + "/>" + end
	}
	tests := []struct {
		name, doc string
		limits    Limits
		want      error
	}{
		{"the most ids", open + "<entry>" + strings.Repeat("<id/>", mostChildren) + "</entry>" + end, Limits{}, nil},
		{"more ids", open + "<entry>" + strings.Repeat("<id/>", mostChildren+1) + "</entry>" + end, Limits{}, ErrTooLarge},
		{"an entry of the largest size", open + entry + end, Limits{Entry: 53}, nil},
		{"an entry above it", open + entry + end, Limits{Entry: 52}, ErrTooLarge},
		{"the greatest depth", nested, Limits{Depth: 10}, nil},
		{"a greater one", nested, Limits{Depth: 9}, ErrTooLarge},
		{"no depth at all", open + "<title/>" + end, Limits{Depth: 1}, ErrTooLarge},
		{"a tag of the head that is larger than an entry may be", open + `<link href="http://x.example/a/very/long/address/of/it"/>` + entry + end, Limits{Entry: 53, Head: 64}, nil},
		{"the largest head", head, Limits{Head: 64}, nil},
		{"a larger one", head, Limits{Head: 63}, ErrTooLarge},
		{"the most attributes", attributes(mostAttributes), Limits{}, nil},
		{"more", attributes(mostAttributes + 1), Limits{}, ErrTooLarge},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			if _, err := readEveryWay(t, tt.doc, Options{Limits: tt.limits}); !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A token that is incomplete is scanned again only when its length has doubled. Otherwise
// this takes minutes.
func TestLargeTagsThatComeByteByByte(t *testing.T) {
	t.Parallel()
	doc := `<feed xmlns="http://www.w3.org/2005/Atom"><entry` + strings.Repeat(" ", 1<<20) + `><id>1</id></entry></feed>`
	r := NewReader(strings.NewReader(doc), Options{})
	must.Succeed(t, r.detectCharset())
	r.in.r = iotest.OneByteReader(r.in.r)
	if entries, err := read(r); err != nil || len(entries) != 1 || entries[0].ID != "1" {
		t.Errorf("got %q, %v", ids(entries), err)
	}
}
