package nats

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/checkpoint"
)

// allCheckpoints are the subjects of the checkpoints of all topics.
const allCheckpoints = checkpointPrefix + ">"

// watch is the subscription to the checkpoints that all copies commit.
type watch struct {
	// working is false before the server has accepted the subscription, after it has refused
	// it, and while there is no connection.
	working atomic.Bool
}

// subscribe watches the checkpoints through c until ctx ends, as [Conn.WatchCheckpoints] says.
func (w *watch) subscribe(ctx context.Context, c *client, committed func(topic, writer string), missed func()) {
	sessions := c.sessions
	sessions.mu.Lock()
	sessions.refused = func() {
		if w.working.Swap(false) {
			missed()
		}
	}
	sessions.mu.Unlock()
	_, err := c.nc.Subscribe(allCheckpoints, func(m *nats.Msg) {
		if cp, err := checkpoint.Decode(m.Data); err == nil {
			committed(strings.TrimPrefix(m.Subject, checkpointPrefix), cp.Writer)
		}
	})
	if err != nil {
		return // the connection is closed
	}
	go func() {
		for {
			next := sessions.nextConnection()
			if ctx, cancel := c.withTimeout(ctx); c.nc.FlushWithContext(ctx) == nil {
				// A refusal comes before the answer to the flush, and its handler is called
				// soon after that.
				sessions.mu.Lock()
				w.working.Store(!sessions.noWatch)
				sessions.mu.Unlock()
				cancel()
			} else {
				cancel()
			}
			select {
			case <-next:
				missed()
			case <-ctx.Done():
				return
			}
		}
	}()
}

// isRefusedWatch reports whether the server has refused the subscription to the checkpoints.
func isRefusedWatch(err error) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+allCheckpoints+`"`)
}

// refuseWatch records that the server has refused the watch, on this connection or one before. A
// permission that is given later is found at a restart.
func (t *sessionTracker) refuseWatch(err error) {
	t.mu.Lock()
	before, refused := t.noWatch, t.refused
	t.noWatch = true
	t.mu.Unlock()
	if !before {
		t.log.Info("cannot watch the checkpoints; each feed reads its own every 30 seconds", "subject", allCheckpoints, "error", err)
	}
	if refused != nil {
		refused()
	}
}
