package admin_test

import (
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin"
)

// A lock that is never released again stops the bridges. Probes and the watchdog of systemd
// have to see it.
func TestHealthNeedsTheStateOfEveryFeed(t *testing.T) {
	t.Parallel()
	s := admin.New(admin.Options{Log: slog.New(slog.DiscardHandler)})
	s.AddFeed(admin.FeedOptions{Name: "orders"})
	unlock := s.LockFeed()
	code := make(chan int, 1)
	go func() {
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/healthz", nil))
		code <- answer.Code
	}()
	select {
	case got := <-code:
		t.Fatalf("/healthz answers %d while the state of a feed is locked", got)
	case <-time.After(100 * time.Millisecond):
	}
	unlock()
	if got := <-code; got != 200 {
		t.Errorf("/healthz answers %d", got)
	}
}
