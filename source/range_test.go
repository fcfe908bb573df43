package source_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
)

// A range is requested uncompressed, and is valid if it has just the bytes from the requested one
// to the end of the page.
func TestRange(t *testing.T) {
	t.Parallel()
	const page, from = "0123456789", 4
	part := func(first, last, total int, body string) func(http.Header) string {
		return func(h http.Header) string {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, total))
			return body
		}
	}
	for name, test := range map[string]struct {
		answer func(http.Header) string
		valid  bool
	}{
		"the rest of the page":           {part(from, 9, 10, page[from:]), true},
		"from an earlier byte":           {part(from-1, 9, 10, page[from-1:]), false},
		"from a later byte":              {part(from+1, 9, 10, page[from+1:]), false},
		"not up to the end":              {part(from, 8, 10, page[from:9]), false},
		"beyond the end":                 {part(from, 10, 10, page[from:]+"x"), false},
		"fewer bytes than it names":      {part(from, 9, 10, page[from:9]), false},
		"more bytes than it names":       {part(from, 9, 10, page), false},
		"of a page that ends before it":  {part(from, 3, 4, ""), false},
		"of a page larger than the most": {part(from, 1000, 1001, string(make([]byte, 1001-from))), false},
		"compressed": {func(h http.Header) string {
			h.Set("Content-Encoding", "gzip")
			return part(from, 9, 10, page[from:])(h)
		}, false},
		"of unknown size": {func(h http.Header) string {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-9/*", from))
			return page[from:]
		}, false},
		"without a Content-Range": {func(http.Header) string { return page[from:] }, false},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			chunked := false
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if got := fmt.Sprint(r.Header["Range"], r.Header["Accept-Encoding"]); got != "[bytes=4-] [identity]" {
					t.Errorf("requested %s", got)
				}
				body := test.answer(w.Header())
				if !chunked {
					w.Header().Set("Content-Length", strconv.Itoa(len(body)))
				}
				w.WriteHeader(http.StatusPartialContent)
				_ = http.NewResponseController(w).Flush()
				_, _ = w.Write([]byte(body))
			})
			c := newClient(t, url, func(cfg *source.Config) { cfg.Limits.Page = 1000 })
			for _, chunked = range []bool{false, true} {
				res, body, err := do(t, c, source.Request{Method: http.MethodGet, URL: url, From: from})
				switch {
				case chunked && strings.Contains(name, "bytes than it names"): // the server has sent no length
				case !test.valid:
					wantError(t, err, true, "this is not the range of bytes that was requested")
				case err != nil || res.Status != http.StatusPartialContent || body != page[from:] || res.Total != 10:
					t.Errorf("got %+v, %q, %v", res, body, err)
				}
			}
		})
	}
}

// [http.ServeContent] answers with valid ranges.
func TestRangeOfServeContent(t *testing.T) {
	t.Parallel()
	page := []byte("0123456789")
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(page))
	})
	c := newClient(t, url)
	res, body, err := do(t, c, source.Request{Method: http.MethodGet, URL: url, From: 7, IfNoneMatch: `"0"`})
	if err != nil || res.Status != http.StatusPartialContent || body != "789" || res.Total != 10 {
		t.Errorf("got %+v, %q, %v", res, body, err)
	}
	if res, _, err := do(t, c, source.Request{Method: http.MethodGet, URL: url, From: 7, IfNoneMatch: `"1"`}); err != nil || res.Status != http.StatusNotModified {
		t.Errorf("got %+v, %v", res, err)
	}
	_, _, err = do(t, c, source.Request{Method: http.MethodGet, URL: url, From: 10})
	wantError(t, err, true, "416")
}
