package kafka_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/testkit/bridgetest"
)

// A bridge that would wait for an hour after its bus went away publishes when it is
// back, though nothing but the bridge uses the connection.
func TestAFeedContinuesWhenTheClusterIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		port := freePort(t)
		cluster := startCluster(t, kfake.Ports(port))
		cfg := configFor(cluster)
		cluster.Close()
		conn := connect(t, cfg)
		bridgetest.PublishAfterOutage(t, conn.Sink(orders()), conn.Reconnected, func() { startCluster(t, kfake.Ports(port)) })
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
		case <-reconnected.Done():
			t.Error("the broker is announced while it is frozen")
		default:
		}
		frozen.Store(false)
		<-reconnected.Done()
	})
}
