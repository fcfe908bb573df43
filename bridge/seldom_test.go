package bridge_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// A commit of one copy while another one waits is not repeated, however long it waits.
func TestTwoCopiesThatPollSeldom(t *testing.T) {
	for _, every := range []time.Duration{29 * time.Second, time.Minute, 5 * time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			for range 5 {
				synctest.Test(t, func(t *testing.T) {
					var topic sinktest.Memory
					begin := time.Now()
					growing := func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
						return upTo(int(time.Since(begin)/(20*time.Second)))(ctx, after)
					}
					a := newBridge(sourceFunc(growing), topic.Open(sinktest.Faults{}))
					b := newBridge(sourceFunc(growing), topic.Open(sinktest.Faults{}))
					a.Every, b.Every = every, every
					stopA := start(t, a)
					time.Sleep(25 * time.Second)
					stopB := start(t, b)
					time.Sleep(3 * time.Hour)
					stopA()
					stopB()
					held := topic.Entities()
					for i, e := range held {
						if e.ID != strconv.Itoa(i) {
							t.Fatalf("entity %d of %d is %s", i, len(held), e.ID)
						}
					}
					if cp := topic.Checkpoint(); cp.Count != uint64(len(held)) {
						t.Errorf("the checkpoint counts %d entities of %d", cp.Count, len(held))
					}
				})
			}
		})
	}
}

// A person moves the place of a feed that is polled seldom and grows meanwhile.
func TestAPositionThatWasMovedIsTakenUpBeforeTheNextCommit(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			var topic sinktest.Memory
			var length atomic.Int64
			length.Store(5)
			b := newBridge(sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
				return upTo(int(length.Load()))(ctx, after)
			}), topic.Open(sinktest.Faults{}))
			b.Every = time.Minute
			stop := start(t, b)
			time.Sleep(10 * time.Second)
			person := topic.Open(sinktest.Faults{})
			cp, err := person.Resume(t.Context())
			must.Succeed(t, err)
			cp.Cursor, cp.Moved = cursorAt(0), time.Now()
			must.Succeed(t, person.Commit(t.Context(), nil, cp))
			length.Store(6)
			time.Sleep(10 * time.Minute)
			stop()
			if got := len(topic.Entities()); got != 5+6 {
				t.Errorf("the topic has %d entities, want the 5 from before and all 6 again", got)
			}
			if !topic.Checkpoint().Moved.Equal(cp.Moved) {
				t.Error("the checkpoint has lost when it was moved")
			}
		})
	}
}
