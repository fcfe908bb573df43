package admin_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The status and the metrics of many feeds are compressed for clients that accept it. Small answers are not worth the
// buffers of a compressor.
func TestLargeAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	s := admin.New(admin.Options{Log: slog.New(slog.DiscardHandler)})
	for i := range 300 {
		s.AddFeed(admin.FeedOptions{Name: fmt.Sprintf("feed-%d", i), Freshness: time.Minute})
	}
	get := func(path, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		r.Header.Set("Accept-Encoding", accept)
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, r)
		return answer
	}
	for _, path := range []string{"/status", "/metrics"} {
		plain, answer := get(path, "identity").Body.Len(), get(path, "gzip")
		size := answer.Body.Len()
		body, err := gzip.NewReader(answer.Body)
		must.Succeed(t, err)
		text, err := io.ReadAll(body)
		if err != nil || answer.Header().Get("Content-Encoding") != "gzip" || len(text) < plain*9/10 || size > plain/5 {
			t.Errorf("%s: %d bytes, compressed %d, without compression %d; %v", path, len(text), size, plain, err)
		}
	}
	for path, code := range map[string]int{"/status/feed-1": http.StatusOK, "/status/none": http.StatusNotFound} {
		if answer := get(path, "gzip"); answer.Code != code || answer.Header().Get("Content-Encoding") != "" || answer.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %d, %v", path, answer.Code, answer.Header())
		}
	}
}
