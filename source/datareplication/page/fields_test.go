package page_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

// tinyHeaders returns a page of n parts with that many headers of 4 bytes each.
func tinyHeaders(parts, headers int) string {
	var b strings.Builder
	for range parts {
		b.WriteString("--x\r\n" + strings.Repeat("a:b\n", headers) + "\r\n\r\n")
	}
	b.WriteString("--x--\r\n")
	return b.String()
}

// A header takes eight times as much memory as its bytes. That memory is reserved, too, with and
// without memory that is used again.
func TestMemoryOfHeadersIsReserved(t *testing.T) {
	// Not parallel: it measures the heap.
	for name, buffers := range map[string]*page.Buffers{"garbage": nil, "used again": {}} {
		for _, test := range []struct{ parts, headers int }{{10, 10_000}, {100, 1000}, {10_000, 10}} {
			t.Run(fmt.Sprintf("%s, %d parts", name, test.parts), func(t *testing.T) {
				text := tinyHeaders(test.parts, test.headers)
				before := heap()
				r := page.NewReader(strings.NewReader(text), "x", "http://x/1", 1<<20)
				reserved := 0
				r.Reserve = func(n int, _ bool) error {
					reserved += n
					return nil
				}
				r.Free, r.Buffers = func(n int) { reserved -= n }, buffers
				held := make([]page.Part, 0, test.parts)
				for {
					p, err := r.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					must.Succeed(t, err)
					held = append(held, p)
				}
				used := heap() - before - int64(cap(held))*64
				if len(held) != test.parts || len(held[0].Header) != test.headers {
					t.Fatalf("%d parts", len(held))
				}
				// The first buffer is not reserved, and the allocator rounds up to 8 KiB.
				if allowed := int64(reserved)*102/100 + 128<<10; used > allowed {
					t.Errorf("a page of %d bytes holds %d bytes, and %d are reserved", len(text), used, reserved)
				}
				runtime.KeepAlive(held)
				r.Close()
				if buffers != nil {
					buffers.Free()
				}
			})
		}
	}
}

// A reservation that is refused loses nothing, also that of headers, and of those of the last part.
func TestNothingIsLostWhenReservationsAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"tiny headers": tinyHeaders(40, 300),
		// Parts with memory of their own.
		"large parts": strings.Repeat("--x\r\n"+strings.Repeat("a:b\n", 10_000)+"\r\n"+strings.Repeat("b", 100_000)+"\r\n", 5) + "--x--\r\n",
		"one part":    tinyHeaders(1, 3000),
	} {
		for _, buffers := range []*page.Buffers{nil, {}} {
			all := readParts(t, page.NewReader(strings.NewReader(text), "x", "http://x/1", 1<<20))
			r := page.NewReader(strings.NewReader(text), "x", "http://x/1", 1<<20)
			asked := 0
			r.Reserve = func(int, bool) error {
				if asked++; asked%3 != 0 {
					return errRefused
				}
				return nil
			}
			r.Buffers = buffers
			some := readParts(t, r)
			if len(some) != len(all) || asked < 3 {
				t.Fatalf("%s: %d parts of %d, after %d reservations", name, len(some), len(all), asked)
			}
			for i := range all {
				if all[i] != some[i] {
					t.Fatalf("%s: part %d differs", name, i)
				}
			}
		}
	}
}

var errRefused = errors.New("refused")

// readParts returns the parts of a page as text. It asks again when a reservation is refused.
func readParts(t *testing.T, r *page.Reader) (all []string) {
	t.Helper()
	for {
		p, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return all
		case errors.Is(err, errRefused):
		case err != nil:
			t.Fatal(err)
		default:
			all = append(all, fmt.Sprintf("%d %v %s", p.Offset, p.Header, p.Body))
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools have kept
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
