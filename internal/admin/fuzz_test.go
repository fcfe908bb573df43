package admin_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

// FuzzRequest sends any request. Without the token nothing is changed, and an answer has no control
// character that came with the request.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/feeds/orders/touch", "fail=badly", "Authorization", "Bearer "+token[1:], "a=b")
	f.Add("GET", "/status", "feed=orders&state=halted&limit=1", "Accept-Encoding", "gzip;q=0, br", "")
	f.Add("GET", "/status/\x1b[2J", "sort=-x&n=%", "If-None-Match", `W/"x"`, "")
	f.Add("HEAD", "/feed/orders", "refresh=1e9", "Host", "evil.example", "")
	f.Add("GET", "/feed/\x7f\x1b[2J", "", "", "", "")
	f.Add("GET", "/", "q=%1b", "", "", "")
	f.Add("GET", "/served", "after=%00", "Accept", "text/html;q=2", "")
	s, changes := newChangeable(admin.Options{Token: constantToken(token, nil)})
	addOrders(s)
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, method, path, query, name, value, body string) {
		if _, err := url.ParseRequestURI("/?" + query); err != nil {
			return // net/http refuses such a request
		}
		send := func(query string) {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:9321/", strings.NewReader(body))
			if err != nil {
				return
			}
			req.URL = &url.URL{Scheme: "http", Host: req.Host, Path: "/" + strings.TrimPrefix(path, "/"), RawQuery: query}
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set(name, value)
			before := *changes
			answer := httptest.NewRecorder()
			s.Handler().ServeHTTP(answer, req)
			if *changes != before && req.Header.Get("Authorization") != "Bearer "+token {
				t.Fatalf("%s %s, %s: %s: changed, and answered %d", method, req.URL, name, value, answer.Code)
			}
			if answer.Header().Get("Content-Encoding") == "" && strings.ContainsAny(answer.Body.String(), "\x00\x1b\x7f") {
				t.Fatalf("%s %s, %s: %s: %q", method, req.URL, name, value, answer.Body)
			}
		}
		send(query)
		cputime.CheckRepeated(t, query+"&", send)
	}))
}
