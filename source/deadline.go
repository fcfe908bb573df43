package source

import (
	"context"
	"errors"
	"sync"
	"time"
)

// deadline ends a request that waits too long: for a connection, for the header, or for the
// next read of the body. It cancels the request's context, which ends each of these waits.
type deadline struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards the fields below; the timer runs in a goroutine of its own
	timer *time.Timer
	wait  *timeoutError // the current wait; nil without one
}

func newDeadline(ctx context.Context) *deadline {
	d := &deadline{}
	d.ctx, d.cancel = context.WithCancelCause(ctx)
	return d
}

// startWait begins a wait and ends the one before it.
func (d *deadline) startWait(wait *timeoutError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wait = wait
	if d.timer == nil {
		d.timer = time.AfterFunc(wait.limit, d.onExpiry)
		return
	}
	d.timer.Reset(wait.limit)
}

func (d *deadline) onExpiry() {
	d.mu.Lock()
	defer d.mu.Unlock()
	// If the wait has just ended and another one has begun, this ends the new one. That is
	// no loss: the upstream has used up the time of the first.
	if d.wait != nil {
		d.cancel(d.wait)
	}
}

// stopWait ends the wait.
func (d *deadline) stopWait() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wait = nil
	if d.timer != nil {
		d.timer.Stop()
	}
}

// endRequest ends the request.
func (d *deadline) endRequest() {
	d.stopWait()
	d.cancel(nil)
}

// endReason returns the reason why this side ended the request: one of our timeouts, or the
// end of the caller's context. It returns nil if this side did not end it.
func (d *deadline) endReason() error {
	if late, ok := errors.AsType[*timeoutError](context.Cause(d.ctx)); ok {
		return late
	}
	return d.ctx.Err()
}
