package bridge_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

func TestABridgeThatWaitsHasNoGoroutine(t *testing.T) {
	broken := errors.New("down")
	for name, test := range map[string]struct {
		source sourceFunc
		pause  bool
		down   error // of the bus
		want   bridge.State
	}{
		"idle":     {source: upTo(3), want: bridge.Idle},
		"paused":   {source: upTo(3), pause: true, want: bridge.Paused},
		"retrying": {source: fail(broken), want: bridge.Retrying},
		"halted":   {source: fail(feed.Permanent(broken)), want: bridge.Halted},
		"outage":   {source: upTo(3), down: broken, want: bridge.Retrying},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			const feeds = 50
			ctx, stop := context.WithCancel(t.Context())
			topics := make([]sinktest.Memory, feeds)
			states := make([]diary, feeds)
			stopped := make(chan struct{}, feeds)
			before := runtime.NumGoroutine()
			bus := newFlakyBus()
			for i := range topics {
				b := newBridge(test.source, topics[i].Open(sinktest.Faults{Resume: func() error { return test.down }}))
				b.Every, b.Observer, b.Reconnected = time.Hour, &states[i], bus.Reconnected
				if test.pause {
					if _, err := bridge.SetPaused(ctx, topics[i].Open(sinktest.Faults{}), b.Feed, "a person", true); err != nil {
						t.Fatal(err)
					}
				}
				b.Start(ctx, func() { stopped <- struct{}{} })
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			for i := range states {
				if got := states[i].last().State; got != test.want {
					t.Fatalf("feed %d is %s, want %s", i, got, test.want)
				}
			}
			// The runtime starts a few of its own.
			if extra := runtime.NumGoroutine() - before; extra > feeds/10 {
				t.Errorf("%d feeds that wait have %d goroutines", feeds, extra)
			}
			stop()
			for range topics {
				<-stopped
			}
		}))
	}
}

func fail(err error) sourceFunc {
	return func(context.Context, feed.Cursor) (feed.Batch, error) { return feed.Batch{}, err }
}
