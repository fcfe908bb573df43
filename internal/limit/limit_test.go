package limit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, begun := New(1, 5*time.Second), time.Now()
		stuck := l.TryAcquire()
		if stuck == nil || l.TryAcquire() != nil {
			t.Fatal("there is not one slot")
		}
		cause := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if _, err := l.Acquire(ctx); !errors.Is(err, cause) || time.Since(begun) != time.Second {
			t.Errorf("after %v: %v, want the cause after a second", time.Since(begun), err)
		}
		stuck.Extend(30 * time.Second)
		next, err := l.Acquire(t.Context())
		if err != nil || time.Since(begun) != 31*time.Second {
			t.Errorf("after %v: %v, want a slot when the first one is slow", time.Since(begun), err)
		}
		stuck.Release() // must not free the next one
		stuck.Extend(time.Second)
		if len(l.taken) != 1 {
			t.Errorf("%d slots are taken, want 1", len(l.taken))
		}
		next.Release()
		next.Release()
		if len(l.taken) != 0 {
			t.Errorf("%d slots are taken, want none", len(l.taken))
		}
		never := New(1, 0)
		never.TryAcquire().Extend(time.Second)
		time.Sleep(time.Hour)
		if never.TryAcquire() != nil {
			t.Error("a slot without a slow time did not always count")
		}
		var none *Slot
		none.Extend(time.Second)
		none.Release()
	})
}
