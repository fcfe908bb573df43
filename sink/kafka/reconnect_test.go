package kafka_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// hourSink is a sink whose first error makes a bridge wait for an hour.
type hourSink struct {
	*kafka.Sink
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

// A bridge that would wait for an hour after its bus went away publishes when it is
// back, though nothing but the bridge uses the connection.
func TestAFeedContinuesWhenTheClusterIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		port := freePort(t)
		cluster := startCluster(t, kfake.Ports(port))
		cfg := configFor(cluster)
		cluster.Close()
		conn := connect(t, cfg)
		seen := make(states, 1000)
		b := &bridge.Bridge{
			Feed: "orders", Writer: "me", Sink: &hourSink{Sink: conn.Sink(orders())}, Reconnected: conn.Reconnected,
			Open: func(context.Context, string) (bridge.Source, string, error) { return three{}, "test", nil },

			Every: time.Hour, ReadAhead: 1000, Log: silent, Observer: seen,
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		b.Start(ctx, func() { close(stopped) })
		seen.await(t, bridge.Retrying)
		startCluster(t, kfake.Ports(port))
		seen.await(t, bridge.Idle)
		cancel()
		<-stopped
		if cp := resume(t, connect(t, cfg).Sink(orders())); cp.Count != 3 {
			t.Errorf("%d entities are published, want 3", cp.Count)
		}
	})
}

// A broker that takes connections and does not answer, as a frozen process, is found
// reachable again when it answers.
func TestReconnectedAfterABrokerWasFrozen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cluster := startCluster(t)
		var frozen, silenced atomic.Bool
		cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if frozen.Load() {
				silenced.Store(true)
			}
			return nil, nil, frozen.Load()
		})
		cfg := configFor(cluster)
		// A short timeout, so on a busy machine a request may fail before the broker is frozen.
		cfg.Timeout = 2 * time.Second
		conn := connect(t, cfg)
		s := conn.Sink(orders())
		for _, err := s.Resume(t.Context()); err != nil || conn.Suspects() > 0; _, err = s.Resume(t.Context()) {
			time.Sleep(10 * time.Millisecond)
		}
		reconnected := conn.Reconnected()
		frozen.Store(true)
		for !silenced.Load() {
			if _, err := s.Resume(t.Context()); err == nil {
				t.Fatal("a resume on a frozen broker has succeeded")
			}
		}
		// The probe has to find the broker silent before that ends.
		for conn.Unreachable() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		select {
		case <-reconnected:
			t.Error("the broker is announced while it is frozen")
		default:
		}
		frozen.Store(false)
		<-reconnected
	})
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
