package admin_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The status and the metrics of many feeds are compressed for clients that accept it.
func TestLargeAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	s := admin.New(admin.Options{Log: slog.New(slog.DiscardHandler)})
	for i := range 300 {
		s.AddFeed(admin.FeedOptions{Name: fmt.Sprintf("feed-%d", i), Freshness: time.Minute})
	}
	get := func(path, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		if accept != "" {
			r.Header.Set("Accept-Encoding", accept)
		}
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, r)
		return answer
	}
	for _, path := range []string{"/status", "/metrics"} {
		plain := get(path, "").Body.Len()
		for accept, want := range map[string]bool{"gzip": true, "deflate, gzip;q=0.5": true, "": false, "identity": false, "gzip;q=0": false, "br, GZIP ; q=1.0": true} {
			if path == "/metrics" && strings.Contains(accept, "GZIP") {
				continue // of the Prometheus library
			}
			answer := get(path, accept)
			if compressed := answer.Header().Get("Content-Encoding") == "gzip"; compressed != want {
				t.Errorf("%s, Accept-Encoding %q: compressed: %v, want %v", path, accept, compressed, want)
			}
			if !want {
				continue
			}
			size := answer.Body.Len()
			body, err := gzip.NewReader(answer.Body)
			must.Succeed(t, err)
			text, err := io.ReadAll(body)
			if err != nil || len(text) < plain*9/10 || size > plain/5 {
				t.Errorf("%s: %d bytes, compressed %d, without compression %d; %v", path, len(text), size, plain, err)
			}
		}
	}
}

// Small answers are not worth the buffers of a compressor. Their status is that of the handler.
func TestSmallAnswersAreNotCompressed(t *testing.T) {
	t.Parallel()
	s := admin.New(admin.Options{Log: slog.New(slog.DiscardHandler)})
	s.AddFeed(admin.FeedOptions{Name: "orders", Freshness: time.Minute})
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/status":      {http.StatusOK, `"orders"`},
		"/status/none": {http.StatusNotFound, `there is no feed "none"`},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, r)
		if answer.Code != want.status || answer.Header().Get("Content-Encoding") != "" || answer.Header().Get("Vary") != "Accept-Encoding" ||
			!strings.Contains(answer.Body.String(), want.text) {
			t.Errorf("%s: %d, %v: %s", path, answer.Code, answer.Header(), answer.Body)
		}
	}
}
