// Package bridgetest has bridges for the tests of the packages that they use.
package bridgetest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// hourSink is a sink whose first error makes a bridge wait for an hour.
type hourSink struct {
	bridge.Sink
	failed bool
}

func (s *hourSink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	cp, err := s.Sink.Resume(ctx)
	if err != nil && !s.failed {
		s.failed, err = true, feed.RetryAfter(err, time.Hour)
	}
	return cp, err
}

// states is an observer that passes on the states of a bridge.
type states chan bridge.State

func (states) Polled(feed.Batch, error, time.Duration) {}
func (states) Processed(feed.Batch, time.Duration)     {}
func (s states) Entered(status bridge.Status)          { s <- status.State }

// await returns when the bridge is in a state.
func (s states) await(t *testing.T, want bridge.State) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case state := <-s:
			if state == want {
				return
			}
		case <-timeout:
			t.Fatalf("the bridge is not %s in time", want)
		}
	}
}

// three is a feed of three entities.
type three struct{}

func (three) Next(_ context.Context, after feed.Cursor, _ feed.Limits) (feed.Batch, error) {
	if len(after) > 0 {
		return feed.Batch{Cursor: after}, nil
	}
	return feed.Batch{Entities: sinktest.Entities(0, 3), Cursor: feed.Cursor("3")}, nil
}

func (three) Release() {}

// PublishAfterOutage runs a bridge of three entities to the sink of a bus that is away, until the bridge
// would wait for an hour. It calls start, which starts the bus, and waits until the bridge has published all.
func PublishAfterOutage(t *testing.T, sink bridge.Sink, reconnected func() context.Context, start func()) {
	t.Helper()
	seen := make(states, 1000)
	b := &bridge.Bridge{
		Feed: "orders", Writer: "me", Sink: &hourSink{Sink: sink}, Reconnected: reconnected,
		Open:  func(context.Context, string) (feed.Source, string, error) { return three{}, "test", nil },
		Every: time.Hour, ReadAhead: 1000, Log: slog.New(slog.DiscardHandler), Observer: seen,
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	b.Start(ctx, func() { close(stopped) })
	seen.await(t, bridge.Retrying)
	start()
	seen.await(t, bridge.Idle)
	cancel()
	<-stopped
}
