package retry_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/retry"
)

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := retry.Backoff{Min: 500 * time.Millisecond, Max: 3 * time.Second}
		want := []time.Duration{500, 1000, 2000, 3000, 3000} // milliseconds
		var waits []time.Duration
		for range want {
			began := time.Now()
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			waits = append(waits, time.Since(began)/time.Millisecond)
		}
		if !slices.Equal(waits, want) {
			t.Errorf("waits %d ms, want %d", waits, want)
		}
	})
}

func TestBackoffAfterAnyNumberOfFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		b        retry.Backoff
		failures int
		want     time.Duration
	}{
		{retry.Backoff{Min: time.Second, Max: time.Minute}, 0, time.Second},
		{retry.Backoff{Min: time.Second, Max: time.Minute}, 5, 32 * time.Second},
		{retry.Backoff{Min: time.Second, Max: time.Minute}, 6, time.Minute},
		{retry.Backoff{Min: time.Second, Max: time.Second}, 3, time.Second},
		{retry.Backoff{Min: time.Second, Max: math.MaxInt64}, 1 << 30, math.MaxInt64},
	} {
		if got := tt.b.After(tt.failures); got != tt.want {
			t.Errorf("%+v after %d failures: got %v, want %v", tt.b, tt.failures, got, tt.want)
		}
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		began := time.Now()
		if err := retry.Sleep(ctx, time.Hour); !errors.Is(err, stop) || time.Since(began) != time.Second {
			t.Errorf("got %v after %v, want the cause after 1s", err, time.Since(began))
		}
	})
}

func TestJitterStaysWithinATenth(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := retry.Jitter(10 * time.Second)
		if d < 9*time.Second || d > 11*time.Second {
			t.Fatalf("got %v for 10s", d)
		}
		seen[d] = true
	}
	if len(seen) < 100 {
		t.Errorf("only %d different durations in 1000", len(seen))
	}
}
