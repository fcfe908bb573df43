package bridge_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

func TestTheCopyThatLosesStandsByAndTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		begin := time.Now()
		requests := map[string]int{}
		var mu sync.Mutex
		growing := func(name string) sourceFunc {
			return func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
				mu.Lock()
				requests[name]++
				mu.Unlock()
				return upTo(int(time.Since(begin)/time.Second))(ctx, after)
			}
		}
		first, second := &diary{}, &diary{}
		a := newBridge(growing("a"), topic.Open(sinktest.Faults{}))
		b := newBridge(growing("b"), topic.Open(sinktest.Faults{}))
		a.Every, b.Every = time.Second, time.Second
		a.Writer, b.Writer = "a", "b"
		a.Observer, b.Observer = first, second
		stopA, stopB := start(t, a), start(t, b)
		time.Sleep(10 * time.Minute)
		if first.count(bridge.Standby)+second.count(bridge.Standby) == 0 {
			t.Error("neither copy stood by")
		}
		stopA()
		time.Sleep(10 * time.Minute)
		held := len(topic.Entities())
		if behind := int(time.Since(begin)/time.Second) - held; behind > 60 {
			t.Errorf("the other copy is %d entities behind", behind)
		}
		if cp := topic.Checkpoint(); cp.Writer != "b" {
			t.Errorf("the last commit is by %s", cp.Writer)
		}
		stopB()
		for i, e := range topic.Entities() {
			if e.ID != strconv.Itoa(i) {
				t.Fatalf("entity %d is %s", i, e.ID)
			}
		}
		must.Succeed(t, topic.Err())
	})
}

func TestAnIdleCopyTakesUpACheckpointThatWasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		stop := start(t, newBridge(upTo(5), topic.Open(sinktest.Faults{})))
		time.Sleep(time.Minute)
		person := topic.Open(sinktest.Faults{})
		cp, err := person.Resume(t.Context())
		must.Succeed(t, err)
		cp.Cursor = cursorAt(3)
		must.Succeed(t, person.Commit(t.Context(), nil, cp))
		time.Sleep(time.Minute)
		stop()
		var ids []string
		for _, e := range topic.Entities() {
			ids = append(ids, e.ID)
		}
		if want := []string{"0", "1", "2", "3", "4", "3", "4"}; !slices.Equal(ids, want) {
			t.Errorf("the topic has %v, want %v", ids, want)
		}
	})
}

func TestAPositionThatWasMovedIsTakenUpHoweverLongTheWait(t *testing.T) {
	gone := feed.Permanent(errors.New("the place is gone"))
	for name, next := range map[string]sourceFunc{
		"idle for an hour": upTo(5),
		"halted": func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
			if number(after) == 3 {
				return feed.Batch{}, gone
			}
			return upTo(5)(ctx, after)
		},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			b := newBridge(next, topic.Open(sinktest.Faults{}))
			b.Every = time.Hour
			stop := start(t, b)
			time.Sleep(20 * time.Minute)
			before := len(topic.Entities())
			person := topic.Open(sinktest.Faults{})
			cp, err := person.Resume(t.Context())
			must.Succeed(t, err)
			cp.Cursor, cp.Moved = cursorAt(4), time.Now()
			must.Succeed(t, person.Commit(t.Context(), nil, cp))
			time.Sleep(time.Minute)
			stop()
			if got := topic.Entities()[before:]; len(got) != 1 || got[0].ID != "4" {
				t.Errorf("published %v since the position was moved in front of 4", got)
			}
			if !topic.Checkpoint().Moved.Equal(cp.Moved) {
				t.Error("the commit forgot that a person has moved the place")
			}
		}))
	}
}
