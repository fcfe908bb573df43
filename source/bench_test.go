package source_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
)

// BenchmarkPage is reading a page of 16 MiB over a loopback connection.
func BenchmarkPage(b *testing.B) {
	dice := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for text.Len() < 16<<20 {
		_, _ = fmt.Fprintf(&text, `{"id":"A-%d","status":"new","total":%d.50}`, dice.IntN(1e6), dice.IntN(1000))
	}
	plain, small := []byte(text.String()), packed(text.String())
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			url := serve(b, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", encoding)
				if encoding == "gzip" {
					_, _ = w.Write(small)
					return
				}
				_, _ = w.Write(plain)
			})
			c := newClient(b, url)
			buffer := make([]byte, 64<<10)
			b.SetBytes(int64(len(plain)))
			b.ReportAllocs()
			for b.Loop() {
				res, err := c.Do(b.Context(), source.Request{Method: "GET", URL: url})
				must.Succeed(b, err)
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, res.Body, buffer); err != nil {
					b.Fatal(err)
				}
				res.Body.Close()
			}
		})
	}
}

// BenchmarkNotModified is the idle poll.
func BenchmarkNotModified(b *testing.B) {
	url := serve(b, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	c := newClient(b, url)
	b.ReportAllocs()
	for b.Loop() {
		res, err := c.Do(b.Context(), source.Request{Method: "GET", URL: url, IfNoneMatch: `"1"`})
		must.Succeed(b, err)
		res.Body.Close()
	}
}
