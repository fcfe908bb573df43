package bridge_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// Which source reads is asked for with the kind that the checkpoint is bound to. A
// reset binds it to none.
func TestTheSourceIsOpenedForTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		b := newBridge(nil, topic.Open(sinktest.Faults{}))
		var asked []string
		kind := "numbers"
		b.Open = func(_ context.Context, of string) (feed.Source, string, error) {
			if asked = append(asked, of); len(asked) == 1 {
				return nil, "", errors.New("upstream does not answer")
			}
			return upTo(3), kind, nil
		}
		seen := &diary{}
		b.Observer = seen
		stop := start(t, b)
		time.Sleep(time.Minute)
		stop()
		if len(asked) < 3 || asked[0] != "" || asked[1] != "" || asked[2] != "numbers" {
			t.Errorf("the source was opened for %q", asked)
		}
		if n := seen.count(bridge.Retrying); n != 1 {
			t.Errorf("%d attempts failed, want 1", n)
		}
		wantEntities(t, &topic, 3)

		person := topic.Open(sinktest.Faults{})
		cp, err := person.Resume(t.Context())
		if err != nil || cp.Source != "numbers" {
			t.Fatalf("the checkpoint is %+v, %v", cp, err)
		}
		cp.Cursor = nil
		must.Succeed(t, person.Commit(t.Context(), nil, cp))
		kind, asked = "letters", []string{"not the first"}
		b.Sink = topic.Open(sinktest.Faults{})
		stop = start(t, b)
		time.Sleep(time.Minute)
		stop()
		if len(asked) < 3 || asked[1] != "" || asked[2] != "letters" {
			t.Errorf("after a reset the source was opened for %q", asked)
		}
	})
}

func TestATopicOfAnotherFeedIsLeftAlone(t *testing.T) {
	for name, cp := range map[string]checkpoint.Checkpoint{
		"another name": {Feed: "letters", Source: "test", Cursor: feed.Cursor("0")},
		"another kind": {Feed: "numbers", Source: "atom", Cursor: feed.Cursor("0")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var topic sinktest.Memory
				other := topic.Open(sinktest.Faults{})
				if _, err := other.Resume(t.Context()); err != nil {
					t.Fatal(err)
				}
				must.Succeed(t, other.Commit(t.Context(), nil, cp))
				seen := &diary{}
				b := newBridge(upTo(3), topic.Open(sinktest.Faults{}))
				b.Observer = seen
				stop := start(t, b)
				time.Sleep(time.Second)
				state := seen.last()
				stop()
				if state.State != bridge.Halted || !errors.Is(state.Err, checkpoint.ErrForeign) {
					t.Errorf("the bridge is %s: %v", state.State, state.Err)
				}
				wantEntities(t, &topic, 0)
			})
		})
	}
}

// releasing is a source that counts how often it was released.
type releasing struct {
	sourceFunc
	released *int
}

func (r releasing) Release() { *r.released++ }

// A source holds nothing while the bridge waits after an error, or has stopped.
func TestASourceIsReleasedAfterErrorsAndAtTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed, released := false, 0
		var topic sinktest.Memory
		b := newBridge(nil, topic.Open(sinktest.Faults{Commit: func() sinktest.Fault {
			if failed {
				return sinktest.Fault{}
			}
			failed = true
			return sinktest.Fault{Kind: sinktest.FailBefore}
		}}))
		var h held
		b.Open = func(context.Context, string) (feed.Source, string, error) {
			return releasing{backlog(50, &h), &released}, "test", nil
		}
		stop := start(t, b)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if released != 1 {
			t.Errorf("after an error the source was released %d times", released)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if released != 1 || len(topic.Entities()) != 50 {
			t.Errorf("the source was released %d times, and the topic has %d entities", released, len(topic.Entities()))
		}
		stop()
		if released != 2 {
			t.Errorf("after the stop the source was released %d times", released)
		}
	})
}

// A panic of the sink ends a session like an error.
func TestASourceIsReleasedAfterAPanicOfTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		var h held
		released := 0
		b := newBridge(nil, &panickingSink{Sink: topic.Open(sinktest.Faults{}), commits: 1})
		b.Open = func(context.Context, string) (feed.Source, string, error) {
			return releasing{backlog(50, &h), &released}, "test", nil
		}
		budget := readahead.NewBudget(20 * batchSize)
		b.ReadAhead, b.Share = 10*batchSize, budget.Share()
		stop := start(t, b)
		time.Sleep(time.Second)
		synctest.Wait()
		if released != 1 {
			t.Errorf("after a panic of the sink the source was released %d times", released)
		}
		wantUnused(t, budget, "a feed that is halted has some of the budget")
		stop()
	})
}

// A session that ends well leaves what saves work to the next one. If that does not come
// to read, because the bus does not answer, the source is released.
func TestASourceIsReleasedWhenTheNextSessionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		var down atomic.Bool
		snk := topic.Open(sinktest.Faults{Resume: func() error {
			if down.Load() {
				return errors.New("no answer")
			}
			return nil
		}})
		released := 0
		idle := sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			time.Sleep(10 * time.Second)
			return feed.Batch{Cursor: after}, nil
		})
		b := newBridge(nil, snk)
		b.Open = func(context.Context, string) (feed.Source, string, error) {
			return releasing{idle, &released}, "test", nil
		}
		stop := start(t, b)
		time.Sleep(5 * time.Second)
		down.Store(true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if released != 1 {
			t.Errorf("the source was released %d times while the bus does not answer", released)
		}
		stop()
	})
}

// A source of another kind goes on with the feed, as after a reset of the checkpoint.
func TestASourceIsReleasedWhenAnotherKindGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		released := 0
		var reset atomic.Bool
		idle := sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			return feed.Batch{Cursor: after}, nil
		})
		b := newBridge(nil, topic.Open(sinktest.Faults{}))
		b.Open = func(context.Context, string) (feed.Source, string, error) {
			kind := "one"
			if reset.Load() {
				kind = "two"
			}
			return releasing{idle, &released}, kind, nil
		}
		stop := start(t, b)
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if released != 0 {
			t.Errorf("the source was released %d times while it is in use", released)
		}
		reset.Store(true)
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if released != 1 {
			t.Errorf("the source was released %d times after another took its place", released)
		}
		stop()
	})
}
