// Package natstest has a client of NATS servers for tests.
package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// JetStream connects to a server like the nats command, until the test ends. Its timeout is for a busy machine.
func JetStream(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(time.Minute))
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	must.Succeed(t, err)
	return js
}
