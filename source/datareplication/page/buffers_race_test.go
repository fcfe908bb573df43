//go:build race

package page_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

// A part that is used after Free would otherwise be seen only when its chunk has the bytes of others.
func TestFreeClearsTheParts(t *testing.T) {
	// Not parallel: it looks at memory that other tests would use.
	const n = 400
	r := page.NewReader(strings.NewReader(longPage(n)), "x", "http://x/1", 1<<20)
	var before, after page.Buffers
	r.Buffers = &before
	var parts []page.Part
	for i := range n {
		if i == n/2 {
			r.Buffers = &after
		}
		p, err := r.Next()
		must.Succeed(t, err)
		parts = append(parts, p)
	}
	before.Free()
	cleared := 0
	for _, p := range parts[:n/2] {
		if bytes.Count(p.Body, []byte{0}) == len(p.Body) && len(p.Header) == 1 && p.Header[0].Name == "" {
			cleared++
		}
	}
	// The parts at the start of the page are in small chunks that are not used again, and the
	// last ones in a chunk with parts of the other Buffers.
	if cleared < n/4 || cleared == n/2 {
		t.Errorf("%d of %d parts are cleared", cleared, n/2)
	}
	checkParts(t, "the other Buffers", n/2, parts[n/2:])
}
