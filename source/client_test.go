package source_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
)

// serve starts a server and returns its URL.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// newClient returns a client for url with the defaults, as edited.
func newClient(t testing.TB, url string, edits ...func(*source.Config)) *source.Client {
	t.Helper()
	return newClientWith(t, source.Options{}, url, edits...)
}

func newClientWith(t testing.TB, opts source.Options, url string, edits ...func(*source.Config)) *source.Client {
	t.Helper()
	cfg := source.Defaults()
	cfg.URL = url
	cfg.Limits.Rate = 1e6
	for _, edit := range edits {
		edit(&cfg)
	}
	c, err := source.NewClient(cfg, opts)
	must.Succeed(t, err)
	t.Cleanup(c.CloseIdle)
	return c
}

// do asks and reads the whole body. The error is that of either.
func do(t *testing.T, c *source.Client, r source.Request) (*source.Response, string, error) {
	t.Helper()
	res, err := c.Do(t.Context(), r)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(res.Body)
	if err := res.Body.Close(); err != nil {
		t.Errorf("closing the body: %v", err)
	}
	return res, string(body), err
}

func get(t *testing.T, c *source.Client, url string) (*source.Response, string, error) {
	t.Helper()
	return do(t, c, source.Request{Method: http.MethodGet, URL: url})
}

// wantError checks that err holds each of the texts and is permanent or not.
func wantError(t *testing.T, err error, permanent bool, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("there was no error")
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q\nlacks %q", err, text)
		}
	}
	if got := errors.Is(err, feed.ErrPermanent); got != permanent {
		t.Errorf("error %q: permanent = %v, want %v", err, got, permanent)
	}
}

func TestGoodAnswers(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", "Thu, 05 Oct 2023 03:00:10 GMT")
		w.Header().Set("X-Asked", r.Method+"|"+r.Header.Get("If-None-Match")+"|"+r.Header.Get("If-Modified-Since"))
		switch r.URL.Path {
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/same":
			w.WriteHeader(http.StatusNotModified)
		default:
			_, _ = io.WriteString(w, "a page")
		}
	})
	c := newClient(t, url)
	type answer struct {
		Status      int
		Asked, Body string
	}
	for name, test := range map[string]struct {
		request source.Request
		want    answer
	}{
		"GET":                  {source.Request{Method: "GET", URL: url}, answer{200, "GET||", "a page"}},
		"HEAD":                 {source.Request{Method: "HEAD", URL: url}, answer{200, "HEAD||", ""}},
		"204":                  {source.Request{Method: "GET", URL: url + "/empty"}, answer{204, "GET||", ""}},
		"304 to an ETag":       {source.Request{Method: "GET", URL: url + "/same", IfNoneMatch: `"1"`}, answer{304, `GET|"1"|`, ""}},
		"304 to a time":        {source.Request{Method: "GET", URL: url + "/same", IfModifiedSince: "then"}, answer{304, "GET||then", ""}},
		"200 to a condition":   {source.Request{Method: "GET", URL: url, IfNoneMatch: `"1"`}, answer{200, `GET|"1"|`, "a page"}},
		"a fragment stays off": {source.Request{Method: "GET", URL: url + "/#top"}, answer{200, "GET||", "a page"}},
	} {
		t.Run(name, func(t *testing.T) {
			res, body, err := do(t, c, test.request)
			must.Succeed(t, err)
			must.Match(t, "answer", test.want, answer{res.Status, res.Header.Get("X-Asked"), body})
			if want := time.Date(2023, 10, 5, 3, 0, 10, 0, time.UTC); !res.Date.Equal(want) {
				t.Errorf("Date = %v, want %v", res.Date, want)
			}
		})
	}
}

func TestBadStatus(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/404":
			w.WriteHeader(404)
			_, _ = io.WriteString(w, "{\"detail\":\n\t\"no \x00\x1b[31msuch\xff page "+strings.Repeat("é", 300)+"\"}")
		case "/500":
			w.Header().Set("Content-Type", "application/octet-stream")
			w.WriteHeader(500)
			_, _ = io.WriteString(w, "binary")
		case "/503":
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(503)
			_, _ = w.Write(packed("the shop is closed"))
		default:
			var status int
			for _, digit := range r.URL.Path[1:] {
				status = 10*status + int(digit-'0')
			}
			w.WriteHeader(status)
		}
	})
	c := newClient(t, url)
	for name, test := range map[string]struct {
		method, path string
		permanent    bool
		texts        []string
	}{
		"case 84: 404 with its URL":                   {"GET", "/404", true, []string{"GET " + url + "/404: 404 Not Found", `{"detail": "no \x00\x1b[31msuch\xff page éé`, "…", "; check the url"}},
		"case 84: 410":                                {"GET", "/410", true, []string{"410 Gone; check the url"}},
		"case 85: 500 without a binary body":          {"GET", "/500", false, []string{"500 Internal Server Error; if this persists, ask the provider to fix it"}},
		"case 85: 503 with a compressed text":         {"GET", "/503", false, []string{"503 Service Unavailable", `"the shop is closed"`}},
		"case 88: 405 to HEAD":                        {"HEAD", "/405", true, []string{"HEAD " + url + "/405: 405 Method Not Allowed"}},
		"case 90: 206 without a range":                {"GET", "/206", true, []string{"206 Partial Content; feedbridge cannot use this answer"}},
		"case 90: 304 without a condition":            {"GET", "/304", true, []string{"304 Not Modified (the request had no condition)"}},
		"case 90: a redirect without a place":         {"GET", "/302", true, []string{"302 Found; feedbridge cannot use this answer"}},
		"401 says what to check":                      {"GET", "/401", true, []string{"401 Unauthorized (check auth and headers of the feed)"}},
		"403 says what to check":                      {"GET", "/403", true, []string{"403 Forbidden (check auth and headers of the feed)"}},
		"a status that has no name":                   {"GET", "/599", false, []string{"/599: 599"}},
		"408 passes by itself":                        {"GET", "/408", false, nil},
		"421 passes by itself":                        {"GET", "/421", false, nil},
		"425 passes by itself":                        {"GET", "/425", false, nil},
		"429 passes by itself":                        {"GET", "/429", false, []string{"raise every or lower limits.rate"}},
		"other 4xx need a person":                     {"GET", "/418", true, []string{"check the url and headers of the feed"}},
		"a success that is none of 200, 204, and 304": {"GET", "/202", true, []string{"202 Accepted"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := do(t, c, source.Request{Method: test.method, URL: url + test.path})
			wantError(t, err, test.permanent, test.texts...)
			status, ok := errors.AsType[*source.StatusError](err)
			if !ok {
				t.Fatalf("error %v is not a StatusError", err)
			}
			if n := utf8.RuneCountInString(status.Excerpt); n > 200 {
				t.Errorf("the excerpt has %d characters", n)
			}
			if test.path == "/500" && status.Excerpt != "" {
				t.Errorf("a binary body is shown as %q", status.Excerpt)
			}
		})
	}
}

func TestRefusedWithoutRequest(t *testing.T) {
	t.Parallel()
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("there was a request") })
	c := newClient(t, url, secrets, func(c *source.Config) { c.AllowHosts = []string{"cdn.example.com", "127.0.0.1"} })
	for name, test := range map[string]struct{ method, url, text string }{
		"case 87: ftp":               {"GET", "ftp://shop.example.com/feed", "only http and https"},
		"case 87: not a URL":         {"GET", "http://shop example.com", "this is not a URL"},
		"case 87: a relative URL":    {"GET", "/pages/2", "must be absolute"},
		"case 87: no host":           {"GET", "http:///pages/2", "has no host"},
		"case 92: a foreign link":    {"GET", "http://elsewhere.example.com/2", "elsewhere.example.com is not the host of the feed, " + url[7:] + ": name it in allow_hosts"},
		"case 92: another port":      {"GET", "http://127.0.0.1:1/2", "127.0.0.1:1 is not the host"},
		"case 92: another scheme":    {"GET", "https://" + url[7:], "is not the host of the feed"},
		"case 92: a longer name":     {"GET", "http://cdn.example.com.evil.example.com/2", "allow_hosts"},
		"case 92: a port not listed": {"GET", "http://cdn.example.com:8080/2", "cdn.example.com:8080 is not the host"},
		"a link with credentials":    {"GET", "http://eve:hunter2@" + url[7:], "must not contain credentials"},
		"a foreign one with a login": {"GET", "http://eve:hunter2@elsewhere.example.com", "must not contain credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := do(t, c, source.Request{Method: test.method, URL: test.url})
			wantError(t, err, true, test.text)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %q shows a password", err)
			}
		})
	}
}

func TestUserAgentAndExchanges(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Agent", r.UserAgent()) })
	var seen []source.Exchange
	opts := source.Options{UserAgent: "test/1 (ops@example.com)", Observe: func(e source.Exchange) { seen = append(seen, e) }}

	res, _, err := get(t, newClientWith(t, opts, url), url)
	must.Succeed(t, err)
	if got := res.Header.Get("X-Agent"); got != opts.UserAgent {
		t.Errorf("User-Agent = %q, want %q", got, opts.UserAgent)
	}
	if len(seen) != 1 || seen[0].Method != "GET" || seen[0].Status != 200 || seen[0].Err != nil {
		t.Errorf("observed %+v", seen)
	}

	res, _, err = get(t, newClientWith(t, opts, url, func(c *source.Config) { c.Headers = append(c.Headers, "user-agent: mine") }), url)
	must.Succeed(t, err)
	if got := res.Header.Get("X-Agent"); got != "mine" {
		t.Errorf("User-Agent = %q, want what headers say", got)
	}
}

// A reader that stops at the close delimiter leaves a few bytes. They must not
// cost the connection.
func TestConnectionIsReusedAfterAnUnreadRest(t *testing.T) {
	t.Parallel()
	answer := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/error":
			w.WriteHeader(500)
		case "/moved":
			w.Header().Set("Location", "/")
			w.WriteHeader(302)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 20<<10))
	}
	bubble(t, answer, func(t *testing.T, hosts *source.Hosts) {
		connections := countConnections(hosts)
		c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
		defer c.CloseIdle()
		for range 2 {
			res, err := c.Do(t.Context(), source.Request{Method: "GET", URL: feedURL})
			must.Succeed(t, err)
			if _, err := io.ReadFull(res.Body, make([]byte, 10)); err != nil {
				t.Error(err)
			}
			if err := res.Body.Close(); err != nil {
				t.Error(err)
			}
			if _, err := res.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("a read after Close returned %v", err)
			}
			if _, _, err := get(t, c, "http://shop.example.com/error"); err == nil {
				t.Error("500 was no error")
			}
			if _, _, err := get(t, c, "http://shop.example.com/moved"); err != nil {
				t.Error(err)
			}
		}
		if n := connections.Load(); n != 1 {
			t.Errorf("%d connections, want a single one", n)
		}
	})
}

// A context that does not end stays in memory with that of the feed.
func TestContextsOfRequestsEnd(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/200")
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
	})
	for _, status := range []string{"200", "204", "302", "304", "500"} {
		var contexts []context.Context
		c := newClientWith(t, source.Options{Wrap: func(via http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				contexts = append(contexts, r.Context())
				return via.RoundTrip(r)
			})
		}}, url)
		_, _, err := do(t, c, source.Request{Method: http.MethodGet, URL: url + "/" + status, IfNoneMatch: `"1"`})
		if (err != nil) != (status == "500") {
			t.Errorf("%s: %v", status, err)
		}
		for i, ctx := range contexts {
			if ctx.Err() == nil {
				t.Errorf("%s: the context of request %d has not ended", status, i+1)
			}
		}
	}
}
