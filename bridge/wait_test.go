package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

func TestWaitsHaveJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		var polls []time.Time
		stop := start(t, newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			polls = append(polls, time.Now())
			return feed.Batch{Cursor: after}, nil
		}), topic.Open(sinktest.Faults{})))
		time.Sleep(10 * time.Minute)
		stop()
		waits := map[time.Duration]bool{}
		for i := 1; i < len(polls); i++ {
			wait := polls[i].Sub(polls[i-1])
			waits[wait] = true
			least, most := 4*time.Second, 6*time.Second
			if i == 1 { // until the feed's own offset in the interval
				least, most = 2*time.Second, 8*time.Second
			}
			if wait < least || wait > most {
				t.Errorf("waited %v before poll %d, want about 5s", wait, i)
			}
		}
		if len(waits) < len(polls)/2 {
			t.Errorf("%d different waits among %d polls", len(waits), len(polls))
		}
	})
}

func TestErrorsThatAPersonMustCureHaltTheFeed(t *testing.T) {
	for name, err := range map[string]error{
		"no checkpoint": feed.Permanent(checkpoint.ErrMissing),
		"broken feed":   feed.Permanent(errors.New("no self link")),
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			seen := &diary{}
			b := newBridge(upTo(3), topic.Open(sinktest.Faults{Resume: func() error { return err }}))
			b.Observer = seen
			stop := start(t, b)
			time.Sleep(time.Hour)
			state := seen.last()
			stop()
			if state.State != bridge.Halted || !errors.Is(state.Err, err) {
				t.Errorf("the bridge is %s: %v, want halted: %v", state.State, state.Err, err)
			}
			if n := seen.count(bridge.Halted); n < 10 || n > 40 {
				t.Errorf("%d attempts in an hour", n)
			}
			wantEntities(t, &topic, 0)
		}))
	}
}

// A feed that halts after transient errors waits as long as one that halts at once. Each kind of
// error has a count of its own.
func TestWaitsOfAHaltDoNotCountTransientErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		var at []time.Time
		kinds := "tttptt"
		b := newBridge(upTo(3), topic.Open(sinktest.Faults{Resume: func() error {
			at = append(at, time.Now())
			if n := len(at); n <= len(kinds) && kinds[n-1] == 't' {
				return errors.New("not yet")
			}
			return feed.Permanent(checkpoint.ErrMissing)
		}}))
		stop := start(t, b)
		time.Sleep(10 * time.Minute)
		stop()
		for i, want := range []time.Duration{500, 1000, 2000, 15_000, 4000, 8000} {
			want *= time.Millisecond
			if wait := at[i+1].Sub(at[i]); wait < want/2 || wait > want*3/2 {
				t.Errorf("waited %v after error %d of %s, want about %v", wait, i+1, kinds, want)
			}
		}
	})
}

func TestAnUpstreamThatAsksToWaitIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		var calls []time.Time
		stop := start(t, newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			calls = append(calls, time.Now())
			return feed.Batch{}, fmt.Errorf("poll: %w", feed.RetryAfter(errors.New("come back later"), 10*time.Minute))
		}), topic.Open(sinktest.Faults{})))
		time.Sleep(30 * time.Minute)
		stop()
		if len(calls) < 2 || len(calls) > 4 {
			t.Errorf("%d calls in 30 minutes", len(calls))
		}
	})
}

// A session that made no request replaces no error that a person has to act on.
func TestAnErrorOfNoRequestHidesNoCause(t *testing.T) {
	for name, test := range map[string]struct {
		first error
		want  string
		state bridge.State
	}{
		"a person has to act": {feed.Permanent(errors.New("404 Not Found")), "404 Not Found", bridge.Halted},
		"it passes by itself": {errors.New("503 Service Unavailable"), "not requested", bridge.Retrying},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			calls := 0
			b := newBridge(sourceFunc(func(context.Context, feed.Cursor) (feed.Batch, error) {
				if calls++; calls == 1 {
					return feed.Batch{}, test.first
				}
				return feed.Batch{}, feed.RetryAfter(feed.ErrNotRequested, 10*time.Minute)
			}), topic.Open(sinktest.Faults{}))
			seen := &diary{}
			b.Observer = seen
			stop := start(t, b)
			time.Sleep(15 * time.Minute)
			synctest.Wait()
			if s := seen.last(); s.State != test.state || s.Err.Error() != test.want {
				t.Errorf("the bridge is %s: %v, want %s: %s", s.State, s.Err, test.state, test.want)
			}
			if calls != 3 {
				t.Errorf("%d calls, want 3: the wait that upstream asked for counts", calls)
			}
			stop()
		}))
	}
}

func TestAnUpstreamThatSaysItIsFreshIsLeftAlone(t *testing.T) {
	for fresh, want := range map[time.Duration]int{0: 60, 10 * time.Minute: 6, 24 * time.Hour: 1} {
		synctest.Test(t, func(t *testing.T) {
			var topic sinktest.Memory
			polls := 0
			b := newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
				polls++
				return feed.Batch{Cursor: after, Fresh: fresh}, nil
			}), topic.Open(sinktest.Faults{}))
			b.Every = time.Minute
			stop := start(t, b)
			time.Sleep(54 * time.Minute)
			stop()
			// The waits have jitter.
			if polls < want*8/10 || polls > want+1 {
				t.Errorf("%d polls in 54 minutes of a feed that is fresh for %v, want about %d", polls, fresh, want)
			}
		})
	}
}

func TestBackoffGrowsAndEndsWithSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		var calls atomic.Int64
		var down atomic.Bool
		down.Store(true)
		b := newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			calls.Add(1)
			if down.Load() {
				return feed.Batch{}, errors.New("down")
			}
			return feed.Batch{Cursor: after}, nil
		}), topic.Open(sinktest.Faults{}))
		seen := &diary{}
		b.Observer = seen
		stop := start(t, b)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := calls.Load(); n < 10 || n > 25 {
			t.Errorf("%d calls in 10 minutes", n)
		}
		if state := seen.last(); state.State != bridge.Retrying || state.Until.IsZero() {
			t.Errorf("the bridge is %s until %v", state.State, state.Until)
		}
		down.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if state := seen.last(); state.State != bridge.Idle || state.Err != nil {
			t.Errorf("the bridge is %s: %v", state.State, state.Err)
		}
		down.Store(true)
		before := calls.Load()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := calls.Load() - before; n < 3 {
			t.Errorf("%d calls in the first 20s of another failure: the backoff did not start anew", n)
		}
		stop()
	})
}
