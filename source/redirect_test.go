package source_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
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
				must.Succeed(t, err)
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
		"case 90: exhausted redirects":                {"/loop", []string{"GET " + url + "/loop: 302 Found (after 5 redirects in a row; check where the url leads"}},
		"case 92: a redirect to a host not allowed":   {"/unlisted", []string{"GET " + url + "/unlisted: redirect to http://unlisted.example.com/feed: unlisted.example.com is not the host of the feed", "allow_hosts"}},
		"a move to https of a private host":           {"/https", []string{"redirect to https://127.0.0.1/feed: a redirect or link led to a host whose address is private; name the host in allow_hosts"}},
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

// TestRedirectToAnotherHost has a feed at feed.example.com whose server redirects to other hosts, and
// to https.
func TestRedirectToAnotherHost(t *testing.T) {
	t.Parallel()
	var asked []string
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.Host+r.URL.Path+" "+r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
		switch r.Host + r.URL.Path {
		case "feed.example.com/feed":
			http.Redirect(w, r, "http://other.example.com/feed", http.StatusFound)
		case "feed.example.com/secure", "feed.example.com:8080/secure":
			http.Redirect(w, r, "https://feed.example.com/page", http.StatusMovedPermanently)
		case "feed.example.com/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	plain, secure := httptest.NewServer(answer), httptest.NewUnstartedServer(answer)
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	trusted := trust(t, secure)
	open := func(t *testing.T, path string, edits ...func(*source.Config)) (*source.Client, *strings.Builder) {
		asked = nil
		log := new(strings.Builder)
		hosts := &source.Hosts{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			to := plain
			if strings.HasSuffix(addr, ":443") {
				to = secure
			}
			return new(net.Dialer).DialContext(ctx, network, to.Listener.Addr().String())
		}}
		return newClientWith(t, source.Options{Hosts: hosts, Log: slog.New(slog.NewTextHandler(log, nil))}, "http://feed.example.com"+path, edits...), log
	}
	wantAsked := func(t *testing.T, want ...string) {
		t.Helper()
		for i := range asked {
			asked[i] = strings.TrimSpace(asked[i])
		}
		must.Match(t, "requests", want, asked)
	}
	certificate := func(c *source.Config) {
		key, err := x509.MarshalPKCS8PrivateKey(secure.TLS.Certificates[0].PrivateKey)
		must.Succeed(t, err)
		c.Auth.TLS.CertFile = writePEM(t, &pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
		c.Auth.TLS.KeyFile = writePEM(t, &pem.Block{Type: "PRIVATE KEY", Bytes: key})
	}

	t.Run("followed and named, and its links as well", func(t *testing.T) {
		c, log := open(t, "/feed")
		for range 2 {
			res, _, err := get(t, c, "http://feed.example.com/feed")
			if err != nil || res.URL.Host != "other.example.com" {
				t.Fatalf("the answer is from %v, %v", res, err)
			}
		}
		if n := strings.Count(log.String(), "to=http://other.example.com/feed"); n != 1 {
			t.Errorf("the log names the host %d times, want once: %s", n, log)
		}
		if _, _, err := get(t, c, "http://other.example.com/older"); err != nil {
			t.Error(err)
		}
		asked = nil
		_, _, err := get(t, c, "http://third.example.com/older")
		wantError(t, err, true, "third.example.com is not the host of the feed")
		wantAsked(t, "HEAD feed.example.com/feed", "HEAD other.example.com/feed")
	})
	t.Run("a cursor names its pages after a restart", func(t *testing.T) {
		c, _ := open(t, "/feed")
		if _, _, err := get(t, c, "http://other.example.com/7"); err != nil {
			t.Error(err)
		}
		wantAsked(t, "HEAD feed.example.com/feed", "HEAD other.example.com/feed", "GET other.example.com/7")
		c, _ = open(t, "/busy")
		_, _, err := get(t, c, "http://other.example.com/7")
		wantError(t, err, false, "503")
		c.AddReached("http://other.example.com/feed")
		if _, _, err := get(t, c, "http://other.example.com/7"); err != nil {
			t.Error(err)
		}
	})
	for name, edit := range map[string]func(*source.Config){
		"headers":              func(c *source.Config) { c.Headers = append(c.Headers, "Cookie: session=1") },
		"a bearer token":       func(c *source.Config) { c.Auth.Bearer = "token" },
		"a client certificate": certificate,
	} {
		t.Run("refused with "+name, func(t *testing.T) {
			c, _ := open(t, "/feed", edit)
			_, _, err := get(t, c, "http://feed.example.com/feed")
			wantError(t, err, true, "redirect to http://other.example.com/feed: other.example.com is not the host of the feed")
			c.AddReached("http://other.example.com/feed")
			_, _, err = get(t, c, "http://other.example.com/feed")
			wantError(t, err, true, "other.example.com is not the host of the feed")
			if len(asked) != 1 {
				t.Errorf("requests: %q", asked)
			}
		})
	}
	t.Run("https of the same host gets the credentials", func(t *testing.T) {
		c, _ := open(t, "/secure", secrets, trusted, func(c *source.Config) { c.URL = "http://feed.example.com:80/secure" })
		for _, link := range []string{"http://feed.example.com/secure", "https://feed.example.com/2"} {
			if _, _, err := get(t, c, link); err != nil {
				t.Error(err)
			}
		}
		const sent = " Bearer token-of-the-feedkey-of-the-feed"
		wantAsked(t, "GET feed.example.com/secure"+sent, "GET feed.example.com/page"+sent, "GET feed.example.com/2"+sent)
		c, _ = open(t, "/secure", secrets, trusted, func(c *source.Config) { c.URL = "http://feed.example.com:8080/secure" })
		_, _, err := get(t, c, "http://feed.example.com:8080/secure")
		if err != nil {
			t.Error(err)
		}
		wantAsked(t, "GET feed.example.com:8080/secure"+sent, "GET feed.example.com/page")
	})
	t.Run("a name that resolves to a private address", func(t *testing.T) {
		to := "http://localhost:" + strings.TrimPrefix(plain.URL, "http://127.0.0.1:")
		url := serve(t, http.RedirectHandler(to, http.StatusFound).ServeHTTP)
		asked = nil
		_, _, err := get(t, newClient(t, url), url)
		wantError(t, err, true, "GET "+to+": a redirect or link led to a host whose address is private", "allow_hosts")
		if len(asked) > 0 {
			t.Errorf("requests: %q", asked)
		}
		if _, _, err := get(t, newClient(t, url, func(c *source.Config) { c.AllowHosts = []string{to[7:]} }), url); err != nil {
			t.Error(err)
		}
	})
}
