package nats

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

// A server that ends each connection at once is asked less and less often. After a connection that has
// lasted the waits begin again.
func TestConnectionsThatEndAtOnceAreMadeLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &Conn{lost: make(chan error, 1), client: &client{sessions: newSessionTracker(ctx, "here", slog.New(slog.DiscardHandler), nil)}}
		lost := errors.New("the tenant has used its quota")
		var waits []time.Duration
		last := time.Now()
		c.lost <- lost
		c.replaceLost(ctx, func(context.Context) error {
			waits = append(waits, time.Since(last))
			last = time.Now()
			switch len(waits) {
			case 3: // cannot be opened
				return lost
			case 8:
				cancel()
				return context.Cause(ctx)
			case 6:
				time.AfterFunc(time.Hour, func() {
					last = time.Now()
					c.lost <- lost
				})
			default:
				c.lost <- lost
			}
			return nil
		})
		if want := []time.Duration{500, 1000, 2000, 4000, 8000, 16000, 500, 1000}; !slices.EqualFunc(waits, want, func(a, b time.Duration) bool { return a == b*time.Millisecond }) {
			t.Errorf("waits %v, want %d ms", waits, want)
		}
	})
}

// Close may come while a connection is being replaced, and has closed the old one then.
func TestAConnectionThatIsMadeDuringCloseIsClosed(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	s, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: log})
	must.Succeed(t, err)
	t.Cleanup(s.Close)
	c, err := Connect(t.Context(), Config{URL: s.URL()}, log)
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	ctx, cancel := context.WithCancel(t.Context())
	c = &Conn{client: c.client, lost: make(chan error, 1)}
	c.lost <- errLost
	c.replaceLost(ctx, func(context.Context) error {
		cancel()
		return nil
	})
	if !c.client.nc().IsClosed() {
		t.Error("the connection is open")
	}
}
