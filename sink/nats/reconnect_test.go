package nats_test

import (
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/bridgetest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

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
	bridgetest.PublishAfterOutage(t, conn.Sink(orders()), conn.Reconnected, func() {
		select {
		case <-reconnected.Done():
			t.Error("a reconnect is announced while the server is down")
		default:
		}
		startServer(t, dir, listen)
	})
	<-reconnected.Done()
	if cp := resume(t, connect(t, nats.Config{URL: url}).Sink(orders())); cp.Count != 3 {
		t.Errorf("%d entities are published, want 3", cp.Count)
	}
}
