package source_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/source"
)

func packed(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text) // a bytes.Buffer takes all
	_ = w.Close()
	return b.Bytes()
}

func TestGzip(t *testing.T) {
	t.Parallel()
	const page = "a page that is long enough to be cut in the middle of it"
	whole := packed(page)
	var body []byte
	encoding := "gzip"
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("Accept-Encoding = %q", r.Header["Accept-Encoding"])
		}
		w.Header().Set("Content-Encoding", encoding)
		_, _ = w.Write(body)
	})
	c := newClient(t, url)

	for _, name := range []string{"gzip", "GZip", "x-gzip"} {
		t.Run("case 94: "+name+" is decoded", func(t *testing.T) {
			body, encoding = whole, name
			if _, got, err := get(t, c, url); err != nil || got != page {
				t.Errorf("body = %q, %v", got, err)
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
	t.Run("case 94: cut anywhere is an error", func(t *testing.T) {
		for n := range whole {
			body = whole[:n]
			_, _, err := get(t, c, url)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("cut after %d bytes: %v", n, err)
			}
			wantError(t, err, false, "GET "+url+": the body ended early")
		}
	})
	t.Run("case 94: rubbish after the end is an error", func(t *testing.T) {
		for _, rubbish := range []string{"x", strings.Repeat("x", 100), "\x00"} {
			body = append(bytes.Clone(whole), rubbish...)
			if _, got, err := get(t, c, url); err == nil {
				t.Errorf("with %q behind it: body = %q", rubbish, got)
			}
		}
	})
	t.Run("a wrong checksum is an error", func(t *testing.T) {
		body = bytes.Clone(whole)
		body[len(body)-8]++
		_, _, err := get(t, c, url)
		wantError(t, err, false, "GET "+url+": gzip: invalid checksum")
	})
	t.Run("another encoding is refused", func(t *testing.T) {
		for _, encoding = range []string{"br", "gzip, gzip"} {
			_, _, err := get(t, c, url)
			wantError(t, err, true, fmt.Sprintf("Content-Encoding %q", encoding))
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
		if _, err := fmt.Sscan(r.URL.Path[2:], &size); err != nil {
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
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed(text))
		case 'w': // members without content, so large only on the wire
			w.Header().Set("Content-Encoding", "gzip")
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(bytes.Repeat(packed("x"), size))
		}
	})
	c := newClient(t, url, func(c *source.Config) { c.Limits.Page = limit })
	for name, test := range map[string]struct {
		path string
		read int // bytes before the error; -1 for no error
	}{
		"as large as allowed, with a length": {"/l1000", -1},
		"as large as allowed, in chunks":     {"/c1000", -1},
		"as large as allowed, unpacked":      {"/g1000", -1},
		"too large by its length":            {"/l1001", 0},
		"too large in chunks":                {"/c1001", limit},
		"much too large in chunks":           {"/c500000", limit},
		"too large once unpacked":            {"/g1001", limit},
		"too large on the wire":              {"/w999", 40},
	} {
		t.Run(name, func(t *testing.T) {
			_, body, err := get(t, c, url+test.path)
			if test.read < 0 {
				if err != nil || len(body) != limit {
					t.Errorf("read %d bytes, %v", len(body), err)
				}
				return
			}
			wantError(t, err, true, "GET "+url+test.path, "limits.page", "1000")
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
	bomb := bytes.Repeat(packed(strings.Repeat("\x00", 1<<20)), 64)
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	})
	res, err := newClient(t, url).Do(t.Context(), source.Request{Method: "GET", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	wantError(t, err, true, "unpacks to more than 500 times its size")
	if n > 32<<20 {
		t.Errorf("%d bytes came out", n)
	}
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestHeaderLimit(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 10_000))
	})
	c := newClient(t, url, func(c *source.Config) { c.Limits.Header = 5000 })
	_, _, err := get(t, c, url)
	wantError(t, err, true, "GET "+url, "more than 5000 bytes (limits.header)")
	if !errors.Is(err, source.ErrTooLarge) {
		t.Errorf("error %v is not ErrTooLarge", err)
	}
	if _, _, err := get(t, newClient(t, url), url); err != nil {
		t.Errorf("with the default limit: %v", err)
	}
}
