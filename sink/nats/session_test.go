package nats

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

// nats.go counts a reconnect before it calls the handler. In between the session has ended,
// and its context does not show it yet.
func TestSessionEndsWithAReconnectThatNoHandlerHasReported(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	s, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: log})
	must.Succeed(t, err)
	t.Cleanup(s.Close)
	c, err := Connect(t.Context(), Config{URL: s.URL()}, log)
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	sessions := c.client.sessions
	ses, err := sessions.activeSession()
	must.Succeed(t, err)
	ses.reconnects-- // as if the connection had counted one more
	if _, err := sessions.activeSession(); !errors.Is(err, errLost) {
		t.Errorf("error %v, want that the connection was lost", err)
	}
}
