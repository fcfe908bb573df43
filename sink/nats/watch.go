package nats

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/checkpoint"
)

// allCheckpoints are the subjects of the checkpoints of all topics.
const allCheckpoints = checkpointPrefix + ">"

// watch is the subscription to the checkpoints that all copies commit. It is safe for concurrent
// use.
type watch struct {
	log *slog.Logger
	// working is false before the server has accepted the subscription and after it has refused
	// it. While there is no connection it says nothing.
	working atomic.Bool

	mu sync.Mutex
	// refused reports that the server has refused the subscription.
	refused bool
	// missed is called when the server refuses it. It is nil before there is one.
	missed func()
}

// subscribe watches the checkpoints over nc until ctx ends, as [Conn.WatchCheckpoints] says.
// nextConnection returns a channel that is closed when nc has a connection again.
func (w *watch) subscribe(ctx context.Context, nc *nats.Conn, timeout time.Duration, nextConnection func() <-chan struct{}, committed func(topic, writer string), missed func()) {
	w.mu.Lock()
	w.missed = missed
	w.mu.Unlock()
	_, err := nc.Subscribe(allCheckpoints, func(m *nats.Msg) {
		if cp, err := checkpoint.Decode(m.Data); err == nil {
			committed(strings.TrimPrefix(m.Subject, checkpointPrefix), cp.Writer)
		}
	})
	if err != nil {
		return // the connection is closed
	}
	go func() {
		for {
			next := nextConnection()
			if flush(ctx, nc, timeout) {
				// A refusal comes before the answer to the flush, and its handler is called
				// soon after that.
				w.mu.Lock()
				if !w.refused {
					w.working.Store(true)
				}
				w.mu.Unlock()
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

// flush reports whether the server has answered within the timeout.
func flush(ctx context.Context, nc *nats.Conn, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return nc.FlushWithContext(ctx) == nil
}

// isRefusedWatch reports whether the server has refused the subscription to the checkpoints.
func isRefusedWatch(err error) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+allCheckpoints+`"`)
}

// refuse records that the server has refused the subscription, on this connection or one before. A
// permission that is given later is found at a restart.
func (w *watch) refuse(err error) {
	w.mu.Lock()
	before, missed := w.refused, w.missed
	w.refused = true
	w.mu.Unlock()
	if !before {
		w.log.Info("cannot watch the checkpoints; each feed reads its own every 30 seconds", "subject", allCheckpoints, "error", err)
	}
	if w.working.Swap(false) {
		missed()
	}
}
