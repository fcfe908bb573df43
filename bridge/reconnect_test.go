package bridge_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// flakyBus is a bus that is down at times. It announces when it is up again.
type flakyBus struct {
	mu          sync.Mutex
	down        bool
	reconnected context.Context
	up          context.CancelFunc // ends reconnected
	resumes     []time.Time
}

func newFlakyBus() *flakyBus {
	b := &flakyBus{}
	b.reconnected, b.up = context.WithCancel(context.Background())
	return b
}

func (b *flakyBus) Reconnected() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reconnected
}

func (b *flakyBus) set(down bool) {
	if !down {
		b.announce()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// announce reports that the bus is reachable, whether or not it works yet.
func (b *flakyBus) announce() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up()
	b.reconnected, b.up = context.WithCancel(context.Background())
}

func (b *flakyBus) isDown() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down
}

func (b *flakyBus) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resumes = nil
}

// attempts are the times at which a sink has resumed.
func (b *flakyBus) attempts() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.resumes)
}

// faults makes the calls of a sink fail while the bus is down.
func (b *flakyBus) faults() sinktest.Faults {
	return sinktest.Faults{
		Resume: func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.resumes = append(b.resumes, time.Now())
			if b.down {
				return errors.New("no answer")
			}
			return nil
		},
		Commit: func() sinktest.Fault {
			time.Sleep(200 * time.Millisecond)
			if b.isDown() {
				return sinktest.Fault{Kind: sinktest.FailBefore}
			}
			return sinktest.Fault{}
		},
	}
}

func TestTheWaitEndsWhenTheBusIsReachableAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := newFlakyBus()
		bus.set(true)
		const feeds = 50
		topics := make([]sinktest.Memory, feeds)
		var stops []func()
		for i := range topics {
			b := newBridge(upTo(3), topics[i].Open(bus.faults()))
			b.Reconnected = bus.Reconnected
			stops = append(stops, start(t, b))
		}
		// The waits are a minute long by now.
		time.Sleep(10 * time.Minute)
		bus.forget()
		bus.set(false)
		back := time.Now()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		attempts := map[time.Time]int{}
		for _, at := range bus.attempts() {
			attempts[at]++
			if after := at.Sub(back); after > time.Second {
				t.Errorf("an attempt %v after the bus was back", after)
			}
		}
		if len(attempts) < feeds/2 {
			t.Errorf("%d feeds made their attempts at %d different times", feeds, len(attempts))
		}
		for i := range topics {
			wantEntities(t, &topics[i], 3)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// A reconnect may come before the error of what failed with the old connection is
// returned. The wait after that error ends all the same.
func TestAReconnectDuringTheFailingSessionEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failing = 12 // the waits are a minute long by then
		bus := newFlakyBus()
		var topic sinktest.Memory
		var commits []time.Time
		b := newBridge(upTo(1), topic.Open(sinktest.Faults{Commit: func() sinktest.Fault {
			commits = append(commits, time.Now())
			if len(commits) == failing {
				bus.announce()
			}
			if len(commits) <= failing {
				return sinktest.Fault{Kind: sinktest.FailBefore}
			}
			return sinktest.Fault{}
		}}))
		b.Reconnected = bus.Reconnected
		stop := start(t, b)
		time.Sleep(time.Hour)
		stop()
		if len(commits) != failing+1 || len(topic.Entities()) != 1 {
			t.Fatalf("%d commits and %d entities, want %d and 1", len(commits), len(topic.Entities()), failing+1)
		}
		if wait := commits[failing-1].Sub(commits[failing-2]); wait < 30*time.Second {
			t.Errorf("the wait without a reconnect was %v, want about a minute", wait)
		}
		if wait := commits[failing].Sub(commits[failing-1]); wait > time.Second {
			t.Errorf("the next attempt was made %v after the bus was reachable again, want at most a second", wait)
		}
	})
}

// A bus that is reachable for three seconds in each eight, and elects a leader in the
// first of them, is used each time: the backoff does not outlive an outage.
func TestABusThatIsUpForMomentsMakesProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := newFlakyBus()
		var topic sinktest.Memory
		b := newBridge(upTo(100_000), topic.Open(bus.faults()))
		b.Reconnected = bus.Reconnected
		b.Limits.Entities = 2
		stop := start(t, b)
		for window := range 40 {
			bus.set(true)
			time.Sleep(5 * time.Second)
			before := len(topic.Entities())
			bus.announce()
			time.Sleep(time.Second)
			bus.mu.Lock()
			bus.down = false
			bus.mu.Unlock()
			time.Sleep(2 * time.Second)
			if len(topic.Entities()) == before {
				t.Errorf("nothing was published in window %d", window)
			}
		}
		stop()
		if err := topic.Err(); err != nil {
			t.Error(err)
		}
	})
}

// A stream that is restored, or whose server is back in a cluster, needs no reconnect. A
// feed that was halted goes on at its next look.
func TestTheWaitEndsWhenTheTopicIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		gone.Store(true)
		var topic sinktest.Memory
		b := newBridge(upTo(3), topic.Open(sinktest.Faults{Resume: func() error {
			if gone.Load() {
				return feed.Permanent(errors.New("the stream is gone"))
			}
			return nil
		}}))
		stop := start(t, b)
		time.Sleep(time.Hour)
		gone.Store(false)
		time.Sleep(40 * time.Second)
		wantEntities(t, &topic, 3)
		stop()
	})
}

// A reconnect to the bus is no reason to ask an upstream again that failed, or that asked
// for a wait.
func TestErrorsOfUpstreamAreNotRetriedEarly(t *testing.T) {
	for name, fail := range map[string]error{
		"it is down":         errors.New("down"),
		"it asks for a wait": feed.RetryAfter(errors.New("come back later"), 10*time.Minute),
		"it is broken":       feed.Permanent(errors.New("no self link")),
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			bus := newFlakyBus()
			var topic sinktest.Memory
			calls := 0
			b := newBridge(sourceFunc(func(context.Context, feed.Cursor) (feed.Batch, error) {
				calls++
				return feed.Batch{}, fail
			}), topic.Open(bus.faults()))
			b.Reconnected = bus.Reconnected
			seen := &diary{}
			b.Observer = seen
			stop := start(t, b)
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			for left := time.Until(seen.last().Until); left < 20*time.Second; left = time.Until(seen.last().Until) {
				time.Sleep(max(left, 0) + time.Second)
				synctest.Wait()
			}
			before, state := calls, seen.last().State
			for range 5 {
				bus.set(true)
				time.Sleep(time.Second)
				bus.set(false)
				time.Sleep(2 * time.Second)
			}
			synctest.Wait()
			if calls != before {
				t.Errorf("%d calls of the upstream while the feed should wait", calls-before)
			}
			if now := seen.last().State; now != state || state != bridge.Retrying && state != bridge.Halted {
				t.Errorf("the feed is %s, and was %s", now, state)
			}
			stop()
		}))
	}
}
