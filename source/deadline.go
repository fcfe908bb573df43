package source

import (
	"context"
	"errors"
	"sync"
	"time"
)

// deadline ends a request whose upstream keeps it waiting: for a connection,
// for the header, then for each stretch of the body. It does so by cancelling
// the request's context, which is the one thing that ends all of them.
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
	// If the wait has ended in this very moment and another has begun, that
	// one is ended: the upstream was as late as it may be anyway.
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
