package page_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

// longPage returns a page of n parts of 1 KiB, whose bodies are their numbers.
func longPage(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "--x\r\nContent-ID: %d\r\n\r\n%s\r\n", i, numberBody(i))
	}
	b.WriteString("--x--\r\n")
	return b.String()
}

func numberBody(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%04d", i), 256) }

// checkParts fails unless the parts are those of longPage from first on.
func checkParts(t *testing.T, when string, first int, parts []page.Part) {
	t.Helper()
	for i, p := range parts {
		if id, _ := p.Header.Get("Content-ID"); id != fmt.Sprint(first+i) || !bytes.Equal(p.Body, numberBody(first+i)) {
			t.Fatalf("%s: part %d has the ID %q and the body %.20q", when, first+i, id, p.Body)
		}
	}
}

// Parts stay as they are until their own Buffers are freed, whatever else is freed and read.
func TestPartsOfABatchAreValidUntilItIsFreed(t *testing.T) {
	t.Parallel()
	const n = 1000
	r := page.NewReader(strings.NewReader(longPage(n)), "x", "http://x/1", 1<<20)
	type batch struct {
		buffers page.Buffers
		first   int
		parts   []page.Part
	}
	var held []*batch
	for read := 0; read < n; {
		b := &batch{first: read}
		r.Buffers = &b.buffers
		// A chunk has the parts of several batches, and a batch those of several chunks.
		for range 10 + read%90 {
			p, err := r.Next()
			if err == io.EOF { //nolint:errorlint // only the bare value is a good end
				break
			}
			must.Succeed(t, err)
			b.parts = append(b.parts, p)
			read++
		}
		held = append(held, b)
		if len(held) > 2 {
			held[0].buffers.Free()
			held = held[1:]
		}
		for _, b := range held {
			checkParts(t, fmt.Sprintf("after %d parts", read), b.first, b.parts)
		}
	}
	r.Close()
	for _, b := range held {
		checkParts(t, "after Close", b.first, b.parts)
	}
	if _, err := r.Next(); err == nil || err == io.EOF { //nolint:errorlint // as above
		t.Errorf("Next after Close: %v", err)
	}
}

// A part that was returned without Buffers is never overwritten.
func TestPartsWithoutBuffersStayValid(t *testing.T) {
	t.Parallel()
	const n = 400
	r := page.NewReader(strings.NewReader(longPage(n)), "x", "http://x/1", 1<<20)
	var buffers page.Buffers
	var parts []page.Part
	for i := range n {
		// Chunks have parts with Buffers and without.
		if r.Buffers = &buffers; i%7 == 0 {
			r.Buffers = nil
		}
		p, err := r.Next()
		must.Succeed(t, err)
		if r.Buffers == nil {
			parts = append(parts, p)
		}
	}
	r.Close()
	buffers.Free()
	for i, p := range parts {
		checkParts(t, "after Free", 7*i, []page.Part{p})
	}
}
