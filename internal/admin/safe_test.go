package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// Whatever a feed and its errors contain, /status and /readyz have short lines
// without control characters and without the secrets of URLs.
func TestStatusIsSafe(t *testing.T) {
	t.Parallel()
	hostile := "\x1b[2J\u009b2J https://me:w0rd@x.example/?ticket=s3cret&token=s3cret " + strings.Repeat("é", 500_000)
	s := admin.New(admin.Options{Redact: safetext.NewRedactor("ticket"), Log: slog.New(slog.DiscardHandler)})
	f := s.AddFeed(admin.FeedOptions{
		Name: "orders", URL: "https://me:w0rd@x.example/?token=s3cret", Every: time.Second, Freshness: time.Nanosecond,
		Describe: func(checkpoint.Checkpoint) admin.Description {
			return admin.Description{Format: "atom", Cursor: map[string]any{"gaps": []string{hostile}}}
		},
	})
	b := feed.Batch{Entities: []feed.Entity{{ID: hostile, Op: feed.Operation(hostile), Page: hostile}}, Violations: []feed.Violation{{Kind: "kind", Page: hostile, Detail: hostile}}}
	f.Polled(b, nil, 0)
	f.Processed(b, 0)
	err := fmt.Errorf("entity %s: raise the limit", hostile)
	f.Polled(feed.Batch{}, err, 0)
	f.Entered(bridge.Status{State: bridge.Halted, Since: time.Now(), Until: time.Now().Add(time.Hour), Err: err})
	for _, path := range []string{"/status", "/status/orders", "/readyz", "/", "/feed/orders"} {
		_, body := get(t, s, path)
		// The error three times and the cursor, in characters of two bytes, and the charts of hours.
		if len(body) > 2*(3*2000+3000)+18000 {
			t.Errorf("%s has %d bytes", path, len(body))
		}
		for _, bad := range []string{"s3cret", "w0rd", "\x1b", `\u001b`, "\u009b"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q:\n%s", path, bad, body)
			}
		}
		if path == "/status" && strings.Count(body, "raise the limit") != 3 {
			t.Errorf("the end of the error is missing:\n%s", body)
		}
	}
}

// So have the names and texts that other copies, the bus and the daemon provide.
func TestTextsOfOthersAreSafe(t *testing.T) {
	t.Parallel()
	hostile := "\x1b[2J https://me:w0rd@x.example/?token=s3cret " + strings.Repeat("é", 500_000)
	shop := admin.NewFleet("shop", "main")
	shop.Assigned(fleet.Assignment{Self: "a", Members: []string{"a", hostile}, Owner: func(topic string) string {
		return map[string]string{"orders": "a", "parcels": hostile}[topic]
	}})
	s := admin.New(admin.Options{Fleet: shop, SlowHosts: func() []status.SlowHost { return []status.SlowHost{{Host: hostile, Status: 429, Share: 1}} }, Log: slog.New(slog.DiscardHandler)})
	for _, name := range []string{"orders", "parcels"} {
		f := s.AddFeed(admin.FeedOptions{Name: name, Topic: name, Every: time.Second, Freshness: time.Second})
		f.Entered(bridge.Status{State: bridge.Idle, Since: time.Now(), Checkpoint: checkpoint.Checkpoint{At: time.Now(), Writer: hostile}})
	}
	defer s.AddLeftBehind("orders", func() string { return hostile })()
	s.AddServed(admin.ServedOptions{Name: "orders", URL: hostile, Look: func(context.Context) (admin.ServedTopic, error) {
		return admin.ServedTopic{Snapshot: hostile, Created: time.Now()}, nil
	}})
	for _, path := range []string{"/status", "/status/orders", "/status/parcels", "/", "/feed/orders", "/feed/parcels", "/served"} {
		_, body := get(t, s, path)
		for _, bad := range []string{"s3cret", "w0rd", "\x1b", `\u001b`} {
			if strings.Contains(body, bad) || len(body) > 30_000 {
				t.Errorf("%s has %q, or too many bytes: %d\n%.30000s", path, bad, len(body), body)
			}
		}
	}
}

// However long the URLs and IDs of others are in an error, its sentence keeps every word
// of this program, and the cure above all.
func TestCuresAreNotCut(t *testing.T) {
	t.Parallel()
	page := "https://shop.example.com/" + strings.Repeat("a", 5000)
	for _, c := range []struct{ situation, before, cure string }{
		{"a long URL", "entities may be missing from the feed: the page " + page + " is gone", "nothing is published until the place is there again, or gap is set to resume-at-timestamp or restart, which both read the snapshot that is there now, or the feed is given another topic, in which it starts over"},
		{"long topics in a command", "this user lacks a right to topic", "run 'kafka-acls.sh --bootstrap-server kafka-1.shop.example.com:9092,kafka-2.shop.example.com:9092 --add --allow-principal User:feedbridge --operation Read --operation Write --operation Create --topic " + strings.Repeat("t", 249) + " --topic " + strings.Repeat("c", 249) + "'"},
		{"an answer with many words", "the answer is " + strings.Repeat("no page ", 1000), "ask the provider to take that back; otherwise set identity to guid, which publishes all of them again under their new ids; or, if the ids keep changing, to link or content, which publishes all entries once more, under ids that are made of their links or contents"},
	} {
		parallel.Run(t, c.situation, func(t *testing.T) {
			s := newServer()
			f := addOrders(s)
			enter(f, bridge.Halted, checkpoint.Checkpoint{}, 5*time.Minute, feed.Permanent(errors.New(c.before+"; "+c.cure)))
			got := row(t, s)
			if text := got["last_error"].(map[string]any)["text"].(string); !strings.HasSuffix(text, "; "+c.cure) {
				t.Errorf("the error is %s", text)
			}
			if text := got["explanation"].(string); !strings.Contains(text, "; "+c.cure+"; nothing is published until this is fixed; feedbridge checks in ") {
				t.Errorf("the explanation is %s", text)
			}
		})
	}
}
