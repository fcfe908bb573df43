// Package retry has the waits between attempts.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the waits after consecutive failures: Min after the first, twice as long after
// each further one, and at most Max. After a success a new Backoff is used. It is for one
// goroutine.
type Backoff struct {
	// Min is more than 0, and Max no less than Min.
	Min, Max time.Duration

	failures int
}

// After returns the wait after a number of failures before the last one; 0 returns Min.
func (b Backoff) After(failures int) time.Duration {
	wait := b.Min
	for range failures {
		if wait > b.Max/2 {
			return b.Max
		}
		wait *= 2
	}
	return min(wait, b.Max)
}

// Next counts a failure and returns the wait after it.
func (b *Backoff) Next() time.Duration {
	wait := b.After(b.failures)
	b.failures++
	return wait
}

// Wait counts a failure and waits after it. Before the time is over it returns the cause
// for which ctx ended.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Jitter returns a random duration within 10% of d, so that concurrent failures are
// not all retried at the same time.
func Jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

// Sleep returns nil after d, and before that the cause for which ctx ended.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
