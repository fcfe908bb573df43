package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"runtime"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// BenchmarkPage reads a page of 500 entities of 1 KiB with five headers each:
// every part's header and whole body, as feedbridge does it and as
// mime/multipart does it, and with feedbridge the entities in the parts too.
// Compare them in one run:
//
//	go test -run '^$' -bench Page -count 10 ./source/datareplication/page
//
// The heap is as large as in a daemon that reads ahead. On an empty one the collector,
// which runs every few pages then, would be most of what is measured.
func BenchmarkPage(b *testing.B) {
	const entities = 500
	heap := make([]byte, 16<<20)
	defer runtime.KeepAlive(heap)
	page := benchPage(entities)
	read := func(b *testing.B, count func(tb testing.TB, p *Reader) int) {
		b.ReportAllocs()
		b.SetBytes(int64(len(page)))
		for b.Loop() {
			if n := count(b, NewReader(bytes.NewReader(page), "b", "page", 8<<20)); n != entities {
				b.Fatalf("got %d entities", n)
			}
		}
	}
	b.Run("feedbridge", func(b *testing.B) { read(b, countParts) })
	b.Run("feedbridge-entities", func(b *testing.B) { read(b, countEntities) })
	b.Run("mime-multipart", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(page)))
		for b.Loop() {
			r := multipart.NewReader(bytes.NewReader(page), "b")
			n := 0
			for {
				p, err := r.NextRawPart()
				if errors.Is(err, io.EOF) {
					break
				}
				must.Succeed(b, err)
				if _, err := io.ReadAll(p); err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != entities {
				b.Fatalf("got %d entities", n)
			}
		}
	})
}

func countParts(tb testing.TB, p *Reader) int {
	tb.Helper()
	for n := 0; ; n++ {
		_, err := p.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		must.Succeed(tb, err)
	}
}

func countEntities(tb testing.TB, p *Reader) int {
	tb.Helper()
	for n := 0; ; n++ {
		part, err := p.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		must.Succeed(tb, err)
		if _, _, err := NewEntity(part, "page", n); err != nil {
			tb.Fatal(err)
		}
	}
}

// benchPage returns a page with the boundary b.
func benchPage(entities int) []byte {
	var page bytes.Buffer
	body := `{"items":[` + strings.Repeat(`{"sku":"4711-0815","name":"a thing","price":"12.95"},`, 18) + `{}]}`
	for i := range entities {
		fmt.Fprintf(&page, "--b\r\n"+
			"Content-Type: application/json\r\n"+
			"Content-ID: <%08d-0123-4567-89ab@shop.example.com>\r\n"+
			"Last-Modified: Thu, 05 Oct 2023 03:00:13 GMT\r\n"+
			"Operation-Type: http-equiv=PUT\r\n"+
			"Content-Length: %d\r\n\r\n%s\r\n", i, len(body), body)
	}
	page.WriteString("--b--\r\n")
	return page.Bytes()
}

func TestEntitiesCostLittleMemory(t *testing.T) {
	const entities = 500
	page := benchPage(entities)
	allocations := testing.AllocsPerRun(10, func() {
		countEntities(t, NewReader(bytes.NewReader(page), "b", "page", 8<<20))
	})
	if allocations > entities/5 {
		t.Errorf("reading %d entities took %v allocations", entities, allocations)
	}
}
