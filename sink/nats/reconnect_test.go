package nats_test

import (
	"context"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// hourSink is a sink whose first error makes a bridge wait for an hour.
type hourSink struct {
	*nats.Sink
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

// A bridge that would wait for an hour after its bus went away publishes when it is back.
func TestAFeedContinuesWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	dir, listen := t.TempDir(), freeAddress(t)
	server := startServer(t, dir, listen)
	url := server.URL()
	conn := connect(t, nats.Config{URL: url})
	reconnected := conn.Reconnected()
	server.Close()
	eventually(t, "the connection is lost", func() bool { return conn.Check(t.Context()) != nil })
	seen := make(states, 1000)
	b := &bridge.Bridge{
		Feed: "orders", Writer: "me", Sink: &hourSink{Sink: conn.Sink(orders())}, Reconnected: conn.Reconnected,
		Open:  func(context.Context, string) (bridge.Source, string, error) { return three{}, "test", nil },
		Every: time.Hour, ReadAhead: 1000, Log: silent, Observer: seen,
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	b.Start(ctx, func() { close(stopped) })
	seen.await(t, bridge.Retrying)
	select {
	case <-reconnected:
		t.Error("a reconnect is announced while the server is down")
	default:
	}
	startServer(t, dir, listen)
	seen.await(t, bridge.Idle)
	<-reconnected
	cancel()
	<-stopped
	if cp := resume(t, connect(t, nats.Config{URL: url}).Sink(orders())); cp.Count != 3 {
		t.Errorf("%d entities are published, want 3", cp.Count)
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
