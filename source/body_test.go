package source_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
)

func packed(text string) []byte { return pack("gzip", text) }

// pack compresses a text. The encoding is a value of Content-Encoding, or raw for deflate without
// the zlib format.
func pack(encoding, text string) []byte {
	var b bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw":
		w, _ = flate.NewWriter(&b, flate.DefaultCompression) // the level is valid
	case "br":
		w = brotli.NewWriter(&b)
	default:
		w = gzip.NewWriter(&b)
	}
	_, _ = io.WriteString(w, text) // a bytes.Buffer takes all
	_ = w.Close()
	return b.Bytes()
}

// sendPacked sends a body with the Content-Encoding of [pack].
func sendPacked(w http.ResponseWriter, encoding string, body []byte) {
	if encoding == "raw" {
		encoding = "deflate"
	}
	w.Header().Set("Content-Encoding", encoding)
	_, _ = w.Write(body)
}

var encodings = []string{"gzip", "deflate", "raw", "br"}

func TestContentEncoding(t *testing.T) {
	t.Parallel()
	const page = "a page that is long enough to be cut in the middle of it"
	var body []byte
	var encoding string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("Accept-Encoding = %q", r.Header["Accept-Encoding"])
		}
		sendPacked(w, encoding, body)
	})
	c := newClient(t, url)

	for _, encoding = range append(encodings, "GZip", "x-gzip") {
		t.Run("case 94: "+encoding+" is decoded", func(t *testing.T) {
			for _, page := range []string{page, "", strings.Repeat(page, 10_000)} {
				body = pack(encoding, page)
				if _, got, err := get(t, c, url); err != nil || got != page {
					t.Errorf("body = %q, %v", got, err)
				}
			}
		})
	}
	encoding = "gzip"
	t.Run("two members are one body", func(t *testing.T) {
		body = append(packed("one,"), packed("two")...)
		if _, got, err := get(t, c, url); err != nil || got != "one,two" {
			t.Errorf("body = %q, %v", got, err)
		}
	})
	for _, encoding = range encodings {
		whole := pack(encoding, page)
		t.Run("case 94: "+encoding+" that is cut anywhere is an error", func(t *testing.T) {
			for n := range whole {
				body = whole[:n]
				_, _, err := get(t, c, url)
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("cut after %d bytes: %v", n, err)
				}
				wantError(t, err, false, "GET "+url+": the body ended early")
			}
		})
		t.Run("case 94: rubbish after the end of "+encoding+" is an error", func(t *testing.T) {
			for _, rubbish := range []string{"x", strings.Repeat("x", 100), "\x00"} {
				body = append(bytes.Clone(whole), rubbish...)
				if _, got, err := get(t, c, url); err == nil {
					t.Errorf("with %q behind it: body = %q", rubbish, got)
				}
			}
		})
		t.Run(encoding+" that is something else is an error", func(t *testing.T) {
			body = []byte("<html>This is no compressed page.</html>")
			_, got, err := get(t, c, url)
			if wantError(t, err, false, "GET "+url+": the body is not what its Content-Encoding says", "Accept-Encoding: identity"); got != "" {
				t.Errorf("body = %q", got)
			}
		})
	}
	for encoding, at := range map[string]int{"gzip": 8, "deflate": 1} {
		t.Run("a wrong checksum is an error: "+encoding, func(t *testing.T) {
			body = pack(encoding, page)
			body[len(body)-at]++
			sent := body
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) { sendPacked(w, encoding, sent) })
			_, _, err := get(t, newClient(t, url), url)
			wantError(t, err, false, "GET "+url+": the body is not what its Content-Encoding says", "invalid checksum")
		})
	}
	t.Run("another encoding is refused", func(t *testing.T) {
		for _, encoding = range []string{"zstd", "gzip, gzip"} {
			_, _, err := get(t, c, url)
			wantError(t, err, true, fmt.Sprintf("Content-Encoding %q", encoding), "gzip, deflate and br")
		}
	})
}

func TestIdentityCanBeAskedFor(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "identity")
		_, _ = io.WriteString(w, r.Header.Get("Accept-Encoding"))
	})
	c := newClient(t, url, func(c *source.Config) { c.Headers = append(c.Headers, "Accept-Encoding: identity") })
	if _, got, err := get(t, c, url); err != nil || got != "identity" {
		t.Errorf("Accept-Encoding = %q, %v", got, err)
	}
}

func TestPageLimit(t *testing.T) {
	t.Parallel()
	const limit = 1000
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var size int
		if _, err := fmt.Sscanf(r.URL.Path[2:], "%d", &size); err != nil {
			t.Error(err)
		}
		switch text := strings.Repeat("x", size); r.URL.Path[1] {
		case 'l': // with a length
			w.Header().Set("Content-Length", fmt.Sprint(size))
			_, _ = io.WriteString(w, text)
		case 'c': // in chunks
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, text)
		case 'g': // packed small
			sendPacked(w, strings.TrimLeft(r.URL.Path[2:], "0123456789"), pack(strings.TrimLeft(r.URL.Path[2:], "0123456789"), text))
		case 'w': // members without content, so large only on the wire
			w.Header().Set("Content-Encoding", "gzip")
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(bytes.Repeat(packed("x"), size))
		}
	})
	c := newClient(t, url, func(c *source.Config) { c.LargestPage = limit })
	type limitTest struct {
		path string
		read int // bytes before the error; -1 for no error
	}
	tests := map[string]limitTest{
		"as large as allowed, with a length": {"/l1000", -1},
		"as large as allowed, in chunks":     {"/c1000", -1},
		"too large, with a length":           {"/l1001", limit},
		"too large in chunks":                {"/c1001", limit},
		"much too large in chunks":           {"/c500000", limit},
		"too large on the wire":              {"/w999", 40},
	}
	for _, encoding := range encodings {
		tests["as large as allowed, unpacked: "+encoding] = limitTest{"/g1000" + encoding, -1}
		tests["too large once unpacked: "+encoding] = limitTest{"/g1001" + encoding, limit}
		tests["much too large once unpacked: "+encoding] = limitTest{"/g500000" + encoding, limit}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, body, err := get(t, c, url+test.path)
			if test.read < 0 {
				if err != nil || len(body) != limit {
					t.Errorf("read %d bytes, %v", len(body), err)
				}
				return
			}
			wantError(t, err, true, "GET "+url+test.path, "more than 1000 bytes")
			if !errors.Is(err, source.ErrTooLarge) {
				t.Errorf("error %v is not ErrTooLarge", err)
			}
			if len(body) < test.read-10 || len(body) > max(test.read, 50) {
				t.Errorf("read %d bytes before the error, want about %d", len(body), test.read)
			}
		})
	}
}

func TestCompressionBomb(t *testing.T) {
	t.Parallel()
	for _, encoding := range encodings {
		parallel.Run(t, encoding, func(t *testing.T) {
			bomb := pack(encoding, strings.Repeat("\x00", 64<<20))
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) { sendPacked(w, encoding, bomb) })
			res, err := newClient(t, url).Do(t.Context(), source.Request{Method: "GET", URL: url})
			must.Succeed(t, err)
			n, err := io.Copy(io.Discard, res.Body)
			wantError(t, err, true, "unpacks to more than 500 times its size")
			if n > 32<<20 {
				t.Errorf("%d bytes came out", n)
			}
			if err := res.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A body of metadata only, after whose error the decoder reads on.
func TestPageLimitOfABodyWithoutContent(t *testing.T) {
	t.Parallel()
	body := append(append([]byte("\xcc\xff\x7f"), make([]byte, 1<<16)...), 3)
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { sendPacked(w, "br", body) })
	for _, limit := range []int64{1 << 20, 40_000} {
		_, got, err := get(t, newClient(t, url, func(c *source.Config) { c.LargestPage = limit }), url)
		if limit > int64(len(body)) {
			if err != nil || got != "" {
				t.Errorf("body = %q, %v", got, err)
			}
			continue
		}
		wantError(t, err, true, "more than 40000 bytes")
	}
}

func TestHeaderLimit(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 100_000))
	})
	_, _, err := get(t, newClient(t, url), url)
	wantError(t, err, true, "GET "+url, "the header of the response has more than 65536 bytes")
	if !errors.Is(err, source.ErrTooLarge) {
		t.Errorf("error %v is not ErrTooLarge", err)
	}
}
