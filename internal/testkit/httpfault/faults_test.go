package httpfault_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func TestFaults(t *testing.T) {
	t.Parallel()
	faults := &httpfault.Faults{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Good", "yes")
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "0123456789")
	})}
	server := httptest.NewServer(faults)
	t.Cleanup(server.Close)

	type got struct {
		status int
		body   string
		header http.Header
		err    error // of the request or of the body
	}
	ask := func(t *testing.T, method, path string, read int) (g got) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		must.Succeed(t, err)
		res, err := server.Client().Do(r)
		if err != nil {
			return got{err: err}
		}
		defer res.Body.Close()
		body, err := io.ReadAll(io.LimitReader(res.Body, int64(read)))
		return got{res.StatusCode, string(body), res.Header, err}
	}
	const all = 100

	for name, test := range map[string]struct {
		fault httpfault.Fault
		read  int
		body  string
		cut   bool
	}{
		"cut":                 {httpfault.Cut(4), all, "0123", true},
		"cut behind the end":  {httpfault.Cut(40), all, "0123456789", false},
		"stall":               {httpfault.Stall(3), 3, "012", false},
		"a length too small":  {httpfault.Length(6), all, "012345", false},
		"a length too large":  {httpfault.Length(16), all, "0123456789", true},
		"edit":                {httpfault.Edit(func(_ http.Header, b []byte) []byte { return append([]byte("+"), b...) }), all, "+0123456789", false},
		"nothing spoiled yet": {httpfault.Pass, all, "0123456789", false},
	} {
		t.Run(name, func(t *testing.T) {
			faults.Add("", "", test.fault)
			g := ask(t, "GET", "/", test.read)
			if g.body != test.body || errors.Is(g.err, io.ErrUnexpectedEOF) != test.cut || g.header.Get("X-Good") != "yes" {
				t.Errorf("got %+v, want %q, cut %v", g, test.body, test.cut)
			}
		})
	}
	t.Run("status", func(t *testing.T) {
		faults.Add("", "", httpfault.Status(503, "Retry-After", "7", "X-Two", "a"))
		if g := ask(t, "GET", "/", all); g.status != 503 || g.header.Get("Retry-After") != "7" || g.header.Get("X-Two") != "a" || g.body != "" {
			t.Errorf("got %+v", g)
		}
	})
	t.Run("reset", func(t *testing.T) {
		faults.Add("", "", httpfault.Reset, httpfault.Reset) // net/http may try once more
		if g := ask(t, "GET", "/", all); g.err == nil {
			t.Errorf("got %+v", g)
		}
		for faults.Left() > 0 {
			ask(t, "GET", "/", all)
		}
	})
	t.Run("each request takes what is meant for it", func(t *testing.T) {
		faults.Add("HEAD", "/a", httpfault.Status(501))
		faults.Add("GET", "/a", httpfault.Pass, httpfault.Status(502))
		faults.Add("", "/b", httpfault.Status(503))
		for _, want := range []struct {
			method, path string
			status       int
		}{{"GET", "/c", 200}, {"GET", "/b", 503}, {"GET", "/a", 200}, {"GET", "/a", 502}, {"GET", "/a", 200}, {"HEAD", "/a", 501}, {"GET", "/b", 200}} {
			if g := ask(t, want.method, want.path, all); g.status != want.status {
				t.Errorf("%s %s = %d, want %d", want.method, want.path, g.status, want.status)
			}
		}
		if n := faults.Left(); n != 0 {
			t.Errorf("%d faults are left", n)
		}
	})
}
