package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// readParts reads a page to its end, or to its error, which is nil at the
// closing delimiter. Every part is written down as "Name: value" lines, a blank
// line and the body, only after the whole page was read: what was handed out
// must have stayed as it was.
func readParts(p *Reader) ([]string, error) {
	var parts []Part
	var err error
	for {
		var next Part
		if next, err = p.Next(); err != nil {
			break
		}
		parts = append(parts, next)
	}
	if _, again := p.Next(); again != err { //nolint:errorlint // the same error, not one like it
		return nil, fmt.Errorf("after %w, next returned %w", err, again)
	}
	if err == io.EOF { //nolint:errorlint // a wrapped EOF is not the end of a page
		err = nil
	}
	var shown []string
	for _, part := range parts {
		shown = append(shown, show(part.Header, part.Body))
	}
	return shown, err
}

func show(header feed.Header, body []byte) string {
	var b strings.Builder
	for _, f := range header {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	return b.String() + "\n" + string(body)
}

// readers reads a page in every way in which its bytes may arrive, with chunks
// that it fits into and with chunks that have to grow within every part, so that nearly
// every part has memory of its own.
func readers(page, boundary string, maxEntity int) map[string]*Reader {
	const name = "https://x.example/2"
	readers := map[string]*Reader{
		"at once":            NewReader(strings.NewReader(page), boundary, name, maxEntity),
		"byte by byte":       NewReader(iotest.OneByteReader(strings.NewReader(page)), boundary, name, maxEntity),
		"error with data":    NewReader(iotest.DataErrReader(strings.NewReader(page)), boundary, name, maxEntity),
		"into tiny chunks":   NewReader(strings.NewReader(page), boundary, name, maxEntity),
		"with empty answers": NewReader(&hesitant{r: strings.NewReader(page)}, boundary, name, maxEntity),
	}
	tiny := readers["into tiny chunks"]
	tiny.chunk, tiny.nextChunk, tiny.maxChunk = tiny.chunk[:1], 1, 8
	return readers
}

// hesitant answers every other Read with nothing.
type hesitant struct {
	r    io.Reader
	wait bool
}

func (h *hesitant) Read(b []byte) (int, error) {
	if h.wait = !h.wait; h.wait {
		return 0, nil
	}
	return h.r.Read(b)
}

func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

func TestPartReader(t *testing.T) {
	t.Parallel()
	const two = "--b\nA: 1\n\nfirst\n--b\nA: 2\n\nsecond\n--b--\n"
	wantTwo := []string{"A: 1\n\nfirst", "A: 2\n\nsecond"}
	tests := []struct {
		name, page string
		want       []string
	}{
		{"case 68: CRLF", crlf(two), wantTwo},
		{"case 68: LF", two, wantTwo},
		{"case 68: LF, then CRLF", two[:len(two)/2] + crlf(two[len(two)/2:]), wantTwo},
		{"case 68: CRLF, then LF", crlf(two[:len(two)/2]) + two[len(two)/2:], wantTwo},
		{"case 68: mixed in every part", "--b\r\nA: 1\nB: 2\r\n\nfirst\r\n--b\nA: 2\r\n\r\nsecond\n--b--", []string{"A: 1\nB: 2\n\nfirst", "A: 2\n\nsecond"}},
		{"case 69: line ends in bodies", "--b\r\nA: 1\r\n\r\n\r\na\nb\rc\r\n\n\r\r\n--b--", []string{"A: 1\n\n\r\na\nb\rc\r\n\n\r"}},
		{"case 69: line ends in bodies, LF", "--b\nA: 1\n\n\na\r\nb\n\n--b--", []string{"A: 1\n\n\na\r\nb\n"}},
		{"case 70: nearly a delimiter", "--b\nA: 1\n\n--x\nx --b-- y\n-b\n -- b\n--b-\n--b-x\n--\n--b--", []string{"A: 1\n\n--x\nx --b-- y\n-b\n -- b\n--b-\n--b-x\n--"}},
		{"case 71: the boundary as a prefix", "--b\nA: 1\n\n--bc\r\n--b c\n--b\rc\n--b --\n--b--", []string{"A: 1\n\n--bc\r\n--b c\n--b\rc\n--b --"}},
		{"case 72: blanks behind delimiters", "--b \t\r\nA: 1\n\nfirst\n--b\t\nA: 2\n\nsecond\n--b--  \n", wantTwo},
		{"case 73: empty body", "--b\r\nA: 1\r\n\r\n\r\n--b\r\nA: 2\r\n\r\nsecond\r\n--b--", []string{"A: 1\n\n", "A: 2\n\nsecond"}},
		{"case 73: empty body, LF", "--b\nA: 1\n\n\n--b--", []string{"A: 1\n\n"}},
		{"case 74: only a header", "--b\r\nA: 1\r\n\r\n--b\r\nA: 2\r\n\r\nsecond\r\n--b--", []string{"A: 1\n\n", "A: 2\n\nsecond"}},
		{"case 74: only a header, LF", "--b\nA: 1\n\n--b\nA: 2\n\n--b--", []string{"A: 1\n\n", "A: 2\n\n"}},
		{"case 74: no header and no body", "--b\r\n\r\n--b\n\n--b--", []string{"\n", "\n"}},
		{"case 74: no header", "--b\r\n\r\nbody\r\n--b--", []string{"\nbody"}},
		{"case 75: preamble and epilogue", "pre\r\namble --b\n --b\n--bc\r\n--b\nA: 1\n\nfirst\n--b--\nepilogue\n--b\nno: part\n\n\n--b--", []string{"A: 1\n\nfirst"}},
		{"case 75: epilogue on the line of the delimiter", "\n--b\nA: 1\n\nfirst\n--b--epilogue", []string{"A: 1\n\nfirst"}},
		{"case 75: a long preamble", strings.Repeat("--c\n", 3*largestChunk/4) + "--b\nA: 1\n\nfirst\n--b--", []string{"A: 1\n\nfirst"}},
		{"case 76: closing delimiter only", "--b--", nil},
		{"case 76: closing delimiter behind a preamble", "none\r\n--b--\r\n", nil},
		{"case 79: folded headers", "--b\nA: 1\n  2\n\t3\r\nB:\r\n x\r\n  \r\nC: y\n\nbody\n--b--", []string{"A: 1  2\t3\nB: x\nC: y\n\nbody"}},
		{"header values", "--b\nA:1\nB :\t2 3 \nC:\nD: :x: y\nE: ü\nE: again\n\nbody\n--b--", []string{"A: 1\nB: 2 3\nC: \nD: :x: y\nE: ü\nE: again\n\nbody"}},
		{"names that differ from part to part", "--b\nName: 1\n\n\n--b\nNam: 1\n\n\n--b\nNames: 1\nName: 2\n\n\n--b--", []string{"Name: 1\n\n", "Nam: 1\n\n", "Names: 1\nName: 2\n\n"}},
		{"case 83: a nested multipart", "--b\nA: 1\n\n--inner\nA: 2\n\nbody\n--inner--\n\n--b--", []string{"A: 1\n\n--inner\nA: 2\n\nbody\n--inner--\n"}},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			for how, r := range readers(tt.page, "b", 1<<20) {
				t.Run("case 80: read "+how, func(t *testing.T) {
					got, err := readParts(r)
					if err != nil {
						t.Error(err)
					}
					must.Match(t, "", tt.want, got)
				})
			}
		})
	}
}

func TestPartReaderRefuses(t *testing.T) {
	t.Parallel()
	const first = "--b\r\nA: 1\r\n\r\nfirst\r\n" // 20 bytes
	big := strings.Repeat("x", 1000)
	tests := []struct {
		name, rest string
		kind, at   string
	}{
		{"case 78: a line without a colon", "--b\r\nA: 2\r\nBroken\r\n\r\nsecond\r\n--b--", kindBadPartHeader, "byte 31"},
		{"case 78: no name", "--b\r\n: 2\r\n\r\nsecond\r\n--b--", kindBadPartHeader, "byte 25"},
		{"case 78: a name with a blank", "--b\r\nA B: 2\r\n\r\nsecond\r\n--b--", kindBadPartHeader, "byte 25"},
		{"case 78: a name that is no token", "--b\r\nA(: 2\r\n\r\nsecond\r\n--b--", kindBadPartHeader, "byte 25"},
		{"case 78: a first line that continues nothing", "--b\r\n A: 2\r\n\r\nsecond\r\n--b--", kindBadPartHeader, "byte 25"},
		{"case 78: a broken line behind a folded one", "--b\r\nA: 2\r\n 3\r\nBroken\r\n\r\nsecond\r\n--b--", kindBadPartHeader, "byte 35"},
		{"case 78: a carriage return within a line", "--b\r\nA: 2\rB: 3\r\n\r\nsecond\r\n--b--", kindBadPartHeader, "byte 25"},
		{"case 78: a zero byte", "--b\r\nA: 2\x00\r\n\r\nsecond\r\n--b--", kindBadPartHeader, "byte 25"},
		{"case 78: not UTF-8", "--b\r\nA: \xff\r\n\r\nsecond\r\n--b--", kindUndecodablePart, "byte 25"},
		{"case 81: a delimiter in a header", "--b\r\nA: 2\r\n--b\r\nA: 3\r\n\r\nthird\r\n--b--", kindBadPart, "byte 31"},
		{"case 81: the closing delimiter as a header line", "--b\r\nA: 2\r\n--b--\r\n", kindBadPart, "byte 31"},
		{"case 82: a body above the limit", "--b\r\nA: 2\r\n\r\n" + big[:993] + "\r\n--b--", kindEntityTooLarge, "byte 25"},
		{"case 82: a header above the limit of an entity", "--b\r\nA: " + big + "\r\n\r\n--b--", kindEntityTooLarge, "byte 25"},
		{"case 82: a body above the limit that never ends", "--b\r\nA: 2\r\n\r\n" + big, kindEntityTooLarge, "byte 25"},
		{"case 82: a header above the limit of headers", "--b\r\nA: " + strings.Repeat("x", largestHeader) + "\r\n\r\n--b--", kindEntityHeaderTooLarge, "byte 25"},
		{"case 82: a header line above the limit that never ends", "--b\r\nA: " + strings.Repeat("x", largestHeader), kindEntityHeaderTooLarge, "byte 25"},
		{"case 82: a header above the limit that never ends", "--b\r\n" + strings.Repeat("A: x\r\n", largestHeader/6+1), kindEntityHeaderTooLarge, "byte 25"},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			for how, r := range readers(first+tt.rest, "b", 1000) {
				got, err := readParts(r)
				// Case 81: the complete parts come before the error.
				if diff := cmp.Diff([]string{"A: 1\n\nfirst"}, got); diff != "" {
					t.Errorf("%s: %s", how, diff)
				}
				if kindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.at) {
					t.Errorf("%s: got %v, want %s at %s", how, err, tt.kind, tt.at)
				}
			}
		})
	}

	parallel.Run(t, "case 81: a delimiter with blanks without end", func(t *testing.T) {
		for _, page := range []string{"", first} {
			page += "--b" + strings.Repeat(" ", largestPadding+1)
			at := fmt.Sprintf("byte %d", strings.LastIndex(page, "--b"))
			for _, rest := range []string{"", "\r\nA: 2\r\n\r\n--b--"} {
				for how, r := range readers(page+rest, "b", 1<<20) {
					if _, err := readParts(r); kindOf(err) != kindBadPart || !strings.Contains(err.Error(), at) {
						t.Errorf("%s: got %v", how, err)
					}
				}
			}
		}
	})
	parallel.Run(t, "case 82: an entity at the limit", func(t *testing.T) {
		page := "--b\r\nA: 2\r\n\r\n" + big[:992] + "\r\n--b--"
		for how, r := range readers(page, "b", 1000) {
			if got, err := readParts(r); len(got) != 1 || err != nil {
				t.Errorf("%s: got %v", how, err)
			}
		}
	})
}

func TestPartReaderDetectsTruncation(t *testing.T) {
	t.Parallel()
	const first = "--b\r\nA: 1\r\n\r\nfirst\r\n"
	tests := []struct {
		name, page string
		parts      int
	}{
		// Before a delimiter's line is whole it may yet be data, such as --bc.
		{"case 77: mid body", first + "--b\r\nA: 2\r\n\r\nseco", 1},
		{"case 77: in headers", first + "--b\r\nA: 2\r\nB:", 1},
		{"case 77: behind a header line", first + "--b\r\nA: 2\r\n", 1},
		{"case 77: behind --b", first + "--b", 0},
		{"case 77: behind --b and a blank", first + "--b ", 0},
		{"case 77: behind --b CR", first + "--b\r", 0},
		{"case 77: behind --b CRLF", first + "--b\r\n", 1},
		{"case 77: behind --b-", first + "--b-", 0},
		{"case 77: behind the first body", first, 0},
		{"case 77: before any delimiter", "<html>not found</html>\r\n", 0},
		{"case 77: nothing at all", "", 0},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			for how, r := range readers(tt.page, "b", 1000) {
				got, err := readParts(r)
				if len(got) != tt.parts {
					t.Errorf("%s: got %d parts", how, len(got))
				}
				if !errors.Is(err, ErrTruncated) || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, feed.ErrPermanent) {
					t.Errorf("%s: got %v", how, err)
				}
				if want := fmt.Sprintf("https://x.example/2 ends at byte %d", len(tt.page)); err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, want %s", how, err, want)
				}
			}
		})
	}

	parallel.Run(t, "case 77: at any byte", func(t *testing.T) {
		page := first + "--b\r\nA: 2\r\n\r\n\r\n--b \nA: 3\n\n--b--"
		for cut := range len(page) {
			got, err := readParts(NewReader(strings.NewReader(page[:cut]), "b", "page", 1000))
			if !errors.Is(err, ErrTruncated) {
				t.Errorf("%q: got %d parts, %v", page[:cut], len(got), err)
			}
		}
	})
}

func TestPartReaderPassesReadErrorsOn(t *testing.T) {
	t.Parallel()
	failure := errors.New("connection reset")
	const page = "--b\r\nA: 1\r\n\r\nfirst\r\n--b\r\nA: 2\r\n\r\nsec"
	p := NewReader(io.MultiReader(strings.NewReader(page), iotest.ErrReader(failure)), "b", "page", 1000)
	got, err := readParts(p)
	if len(got) != 1 || err != failure { //nolint:errorlint // it is returned as it is
		t.Errorf("got %d parts, %v", len(got), err)
	}

	// A page that is whole is whole, whatever comes behind it.
	p = NewReader(io.MultiReader(strings.NewReader("--b\n\n\n--b--"), iotest.ErrReader(failure)), "b", "page", 1000)
	if got, err := readParts(p); len(got) != 1 || err != nil {
		t.Errorf("got %d parts, %v", len(got), err)
	}

	p = NewReader(iotest.ErrReader(nil), "b", "page", 1000)
	if _, err := readParts(p); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that returns nothing: got %v", err)
	}
}

func TestPartOffsets(t *testing.T) {
	t.Parallel()
	const page = "preamble\r\n--b\r\nA: 1\r\n\r\nfirst\r\n--b\r\nA: 2\r\n\r\nsecond\r\n--b--"
	for how, r := range readers(page, "b", 1000) {
		for _, mark := range []string{"A: 1", "A: 2"} {
			got, err := r.Next()
			if err != nil || got.Offset != int64(strings.Index(page, mark)) {
				t.Errorf("%s: %s is at %d, %v", how, mark, got.Offset, err)
			}
		}
	}
}

// A caller may append to a body, or to a header, without touching another part.
func TestPartsDoNotOverlap(t *testing.T) {
	t.Parallel()
	p := NewReader(bytes.NewReader(benchPage(3)), "b", "page", 1<<20)
	first, err := p.Next()
	must.Succeed(t, err)
	second, err := p.Next()
	must.Succeed(t, err)
	want := show(second.Header, second.Body)
	_ = append(first.Body, "overwritten"...)
	_ = append(first.Header, feed.Field{Name: "over", Value: "written"})
	third, err := p.Next()
	must.Succeed(t, err)
	if got := show(second.Header, second.Body); got != want {
		t.Errorf("the second part has changed to %q", got)
	}
	if id, _ := third.Header.Get("Content-ID"); !strings.HasPrefix(id, "<00000002-") {
		t.Errorf("the third part has changed to %q", show(third.Header, third.Body))
	}
}

// endless is a page whose first part never ends. It counts the bytes that were read.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	n := 0
	if e.read == 0 {
		n = copy(b, "--b\r\nA: 1\r\n\r\n")
	}
	for i := range b[n:] {
		b[n+i] = 'x'
	}
	e.read += len(b)
	return len(b), nil
}

func TestPartReaderHoldsNoMoreThanAnEntity(t *testing.T) {
	t.Parallel()
	const maxEntity = 1 << 20
	page := &endless{}
	p := NewReader(page, "b", "page", maxEntity)
	if _, err := p.Next(); kindOf(err) != kindEntityTooLarge {
		t.Fatalf("got %v", err)
	}
	if most := maxEntity + 2*largestChunk; page.read > most || len(p.chunk) > most {
		t.Errorf("read %d bytes and holds %d", page.read, len(p.chunk))
	}
}
