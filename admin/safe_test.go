package admin_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
)

// Whatever a feed and its errors contain, /status and /readyz have short lines
// without control characters and without the secrets of URLs.
func TestStatusIsSafe(t *testing.T) {
	t.Parallel()
	hostile := "\x1b[2J\u009b2J https://me:w0rd@x.example/?ticket=s3cret&token=s3cret " + strings.Repeat("é", 500_000)
	s := admin.New(admin.Options{Redact: safetext.NewRedactor("ticket"), Log: slog.New(slog.DiscardHandler)})
	f := s.AddFeed(admin.FeedOptions{
		Name: "orders", URL: "https://me:w0rd@x.example/?token=s3cret", Every: time.Second, Freshness: time.Nanosecond,
		Describe: func(checkpoint.Checkpoint) (string, any) { return "atom", map[string]any{"gaps": []string{hostile}} },
	})
	b := feed.Batch{Violations: []feed.Violation{{Kind: "kind", Page: hostile, Detail: hostile}}}
	f.Polled(b, nil, 0)
	f.Settled(b, 0)
	err := fmt.Errorf("entity %s: raise the limit", hostile)
	f.Polled(feed.Batch{}, err, 0)
	f.Entered(bridge.Status{State: bridge.Halted, Since: time.Now(), Until: time.Now().Add(time.Hour), Err: err})
	for _, path := range []string{"/status", "/status/orders", "/readyz"} {
		_, body := get(t, s, path)
		if len(body) > 10_000 {
			t.Errorf("%s has %d bytes", path, len(body))
		}
		for _, bad := range []string{"s3cret", "w0rd", "\x1b", `\u001b`, "\u009b"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q:\n%s", path, bad, body)
			}
		}
		if path == "/status" && strings.Count(body, "raise the limit") != 2 {
			t.Errorf("the end of the error is missing:\n%s", body)
		}
	}
}
