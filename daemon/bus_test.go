package daemon

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// A bus that is being connected is not one that is down: otherwise readiness would fail in the first second
// of each start.
func TestTheCheckOfABusWaitsForItsConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBus("main", config.Bus{}, slog.New(slog.DiscardHandler))
		attempt := b.connecting.TryAcquire()
		checked := make(chan error, 1)
		go func() { checked <- b.check(t.Context()) }()
		synctest.Wait()
		b.conn = &connection{check: func(context.Context) error { return nil }}
		attempt.Release()
		must.Succeed(t, <-checked)
	})
}

// The admin server names the bus before the error of its check. A feed may be copied to any bus.
func TestErrorsOfABusNameItOnce(t *testing.T) {
	t.Parallel()
	b := newBus("main", config.Bus{NATS: &nats.Config{URL: "nats://127.0.0.1:1", CredentialsFile: "/does/not/exist"}}, slog.New(slog.DiscardHandler))
	err := b.check(t.Context())
	_, opened := b.open(t.Context())
	if err == nil || opened == nil || strings.Contains(err.Error(), "bus main") || opened.Error() != "bus main: "+err.Error() {
		t.Errorf("the check has the error %v, and a feed %v", err, opened)
	}
}
