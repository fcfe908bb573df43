package nats_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/sink/nats"
)

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
			if _, err := js.CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			if got, err := s.RetentionLimits(t.Context()); err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
			if err := js.DeleteStream(t.Context(), cfg.Name); err != nil {
				t.Fatal(err)
			}
		})
	}
	if _, err := s.RetentionLimits(t.Context()); err == nil {
		t.Error("a stream that is not there forgets nothing")
	}
}
