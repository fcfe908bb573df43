package source_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/source"
)

// secrets is a config that has a credential of each kind that is a header.
func secrets(c *source.Config) {
	c.Headers = append(c.Headers, "X-Api-Key: key-of-the-feed")
	c.Auth.Bearer = "token-of-the-feed"
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var foreign http.Header
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		foreign = r.Header.Clone()
		if r.URL.Path == "/401" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, "from the other host")
	})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		to, status := "", http.StatusFound
		switch r.URL.Path {
		case "/page":
			if r.Header.Get("Authorization") != "Bearer token-of-the-feed" || r.Header.Get("X-Api-Key") != "key-of-the-feed" {
				t.Errorf("headers at the end of the redirects: %v", r.Header)
			}
			w.Header().Set("X-Method", r.Method+" "+r.Header.Get("If-None-Match"))
			_, _ = io.WriteString(w, "the page")
			return
		case "/301", "/302", "/303", "/307", "/308":
			to = "page?from=" + r.URL.Path[1:] + "#part"
			status = map[string]int{"/301": 301, "/302": 302, "/303": 303, "/307": 307, "/308": 308}[r.URL.Path]
		case "/loop":
			to = "/loop"
		case "/twice":
			to = "/301"
		case "/other":
			to = other + "/x"
		case "/other-401":
			to = other + "/401"
		case "/unlisted":
			to = "http://unlisted.example.com/feed"
		case "/https":
			to = "https://127.0.0.1/feed"
		case "/ftp":
			to = "ftp://shop.example.com/"
		case "/login":
			to = "http://eve:hunter2@" + r.Host + "/page"
		case "/nonsense":
			to = "http://a b/"
		}
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	})
	allow := func(c *source.Config) {
		c.AllowHosts = []string{"other.example.com", strings.TrimPrefix(other, "http://")}
	}
	c := newClient(t, url, secrets, allow)

	for _, status := range []string{"301", "302", "303", "307", "308"} {
		for _, method := range []string{"GET", "HEAD"} {
			t.Run("case 91: "+method+" stays "+method+" on "+status, func(t *testing.T) {
				res, _, err := do(t, c, source.Request{Method: method, URL: url + "/" + status, IfNoneMatch: `"7"`})
				if err != nil {
					t.Fatal(err)
				}
				if got, want := res.Header.Get("X-Method"), method+` "7"`; got != want {
					t.Errorf("the page was asked with %q, want %q", got, want)
				}
				if got, want := res.URL.String(), url+"/page?from="+status; got != want {
					t.Errorf("URL = %s, want the last one, %s", got, want)
				}
			})
		}
	}

	t.Run("case 92: no credentials to a host that is allowed", func(t *testing.T) {
		for _, link := range []string{url + "/other", other + "/link"} {
			if _, body, err := get(t, c, link); err != nil || body != "from the other host" {
				t.Fatalf("GET %s = %q, %v", link, body, err)
			}
			if foreign.Get("Authorization") != "" || foreign.Get("X-Api-Key") != "" || foreign.Get("User-Agent") == "" {
				t.Errorf("GET %s sent %v", link, foreign)
			}
		}
	})

	for name, test := range map[string]struct {
		path  string
		texts []string
	}{
		"case 90: exhausted redirects":                {"/loop", []string{"GET " + url + "/loop: 302 Found (after 5 redirects in a row (limits.redirects); check where the url leads"}},
		"case 92: a redirect to a host not allowed":   {"/unlisted", []string{"GET " + url + "/unlisted: redirect to http://unlisted.example.com/feed: unlisted.example.com is not the host of the feed", "allow_hosts"}},
		"a move to https":                             {"/https", []string{"if the feed has moved to https, write that in its url"}},
		"case 87: a redirect to ftp":                  {"/ftp", []string{"only http and https"}},
		"a redirect with credentials":                 {"/login", []string{"must not contain credentials"}},
		"a redirect to nonsense":                      {"/nonsense", []string{`redirect to "http://a b/": this is not a URL`}},
		"401 where credentials are not sent says why": {"/other-401", []string{"401 Unauthorized (auth and headers are not sent there"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := get(t, c, url+test.path)
			wantError(t, err, true, test.texts...)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %q shows a password", err)
			}
		})
	}

	t.Run("the limit counts redirects", func(t *testing.T) {
		for limit, want := range map[int]bool{0: false, 1: false, 2: true} {
			c := newClient(t, url, secrets, func(c *source.Config) { c.Limits.Redirects = limit })
			if _, _, err := get(t, c, url+"/twice"); (err == nil) != want {
				t.Errorf("two redirects with limit %d: %v", limit, err)
			}
		}
	})
}

func TestHTTPSToHTTP(t *testing.T) {
	t.Parallel()
	plain := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("there was a request in clear text") })
	server := httptest.NewTLSServer(http.RedirectHandler(plain, http.StatusFound))
	t.Cleanup(server.Close)
	c := newClient(t, server.URL, secrets, trust(t, server), func(c *source.Config) {
		c.AllowHosts = []string{strings.TrimPrefix(plain, "http://")}
	})
	t.Run("case 93: https to http redirect refused", func(t *testing.T) {
		_, _, err := get(t, c, server.URL)
		wantError(t, err, true, "GET "+server.URL, "redirect to "+plain, "from https back to http")
	})
	t.Run("case 93: http link from an https feed refused", func(t *testing.T) {
		_, _, err := get(t, c, plain)
		wantError(t, err, true, "from https back to http")
	})
}
