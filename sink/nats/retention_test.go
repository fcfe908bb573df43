package nats_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// The newest messages of a feed that was quiet for long expire, and people delete dead letters. The
// next commit is none of a copy that is out of date.
func TestCommitAfterItsNewestMessagesWereDeleted(t *testing.T) {
	t.Parallel()
	for name, others := range map[string][]string{"a stream of its own": nil, "a shared stream": {"shop.carts"}} {
		for what, subjects := range map[string][]string{
			"entities": {orders().Subject}, "dead letters": {deadSubject}, "both": {orders().Subject, deadSubject},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				url := startServer(t, t.TempDir(), "127.0.0.1:0").URL()
				js := admin(t, url)
				config := fitting()
				config.Subjects = append(append(config.Subjects, deadSubject), others...)
				createStream(t, js, config)
				for _, subject := range others {
					if _, err := js.Publish(t.Context(), subject, nil); err != nil {
						t.Fatal(err)
					}
				}
				var log logbuffer.Buffer
				c, err := nats.Connect(t.Context(), nats.Config{URL: url}, slog.New(slog.NewTextHandler(&log, nil)))
				must.Succeed(t, err)
				defer c.Close()
				s := c.Sink(ordersWithDead())
				resume(t, s)
				for n := range 2 {
					entities, cp := withDead(3*n, 3*n+3, n)
					must.Succeed(t, s.Commit(t.Context(), entities, cp))
					for _, subject := range subjects {
						purge(t, js, jetstream.WithPurgeSubject(subject))
					}
					if n == 1 {
						resume(t, s) // an idle copy does, too
					}
				}
				cp := sinktest.At(9)
				cp.Count -= 2
				must.Succeed(t, s.Commit(t.Context(), sinktest.Entities(6, 3), cp))
				resume(t, s)
				wantHeld(t, s, 12, 9)
				if strings.Contains(log.String(), "WARN") {
					t.Errorf("the log has\n%s", log.String())
				}
			})
		}
	}
}

func TestRetentionLimits(t *testing.T) {
	t.Parallel()
	url := startServer(t, t.TempDir(), "127.0.0.1:0").URL()
	js := admin(t, url)
	s := connect(t, nats.Config{URL: url}).Sink(orders())
	for name, test := range map[string]struct {
		change func(*jetstream.StreamConfig)
		want   []string
	}{
		"nothing":            {func(*jetstream.StreamConfig) {}, nil},
		"age":                {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, []string{"max_age 1h0m0s"}},
		"number and size":    {func(c *jetstream.StreamConfig) { c.MaxMsgs, c.MaxBytes = 10, 1000 }, []string{"max_msgs 10", "max_bytes 1000"}},
		"number per subject": {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }, []string{"max_msgs_per_subject 5"}},
		"new messages":       {func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 10, jetstream.DiscardNew }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fitting()
			cfg.Storage = jetstream.MemoryStorage // see createShop
			test.change(&cfg)
			createStream(t, js, cfg)
			if got, err := s.RetentionLimits(t.Context()); err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
			must.Succeed(t, js.DeleteStream(t.Context(), cfg.Name))
		})
	}
	if _, err := s.RetentionLimits(t.Context()); err == nil {
		t.Error("a stream that is not there forgets nothing")
	}
}
