package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

func TestReadingRunsAheadWithinItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		read := 0
		sink := &slowSink{topic.Open(sinktest.Faults{}), make(chan struct{}, 1), time.Hour}
		b := newBridge(sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
			read++
			return feed.Batch{
				Entities: []feed.Entity{{ID: strconv.Itoa(read), Op: feed.Put, Body: make([]byte, 100)}},
				Cursor:   cursorAt(read), More: true,
			}, nil
		}), sink)
		b.ReadAhead = 1000
		b.Limits = feed.Limits{Entities: 1}
		stop := start(t, b)
		time.Sleep(time.Minute)
		synctest.Wait()
		// One is being committed, one is held, ten wait, one more is read.
		if read < 10 || read > 14 {
			t.Errorf("%d batches of 100 bytes were read with room for 1000 bytes", read)
		}
		stop()
	})
}

func TestBatchesAtHandAreCommittedTogetherWithinTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		inner := &slowSink{topic.Open(sinktest.Faults{}), make(chan struct{}, 1), time.Second}
		sink := &countingSink{Sink: inner}
		b := newBridge(upTo(100), sink)
		b.Limits = feed.Limits{Entities: 30}
		b.ReadAhead = 1 << 20
		stop := start(t, b)
		time.Sleep(time.Minute)
		stop()
		if got := len(topic.Entities()); got != 100 {
			t.Errorf("the topic has %d entities, want 100", got)
		}
		if slices.Max(sink.commits) != 30 || len(sink.commits) > 6 {
			t.Errorf("the commits had %v entities, want 30 at most and as many as that", sink.commits)
		}
	})
}

func TestWhatCameBeforeAnErrorIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		stop := start(t, newBridge(sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
			if number(after) == 7 {
				return feed.Batch{}, feed.Permanent(errors.New("broken here"))
			}
			return upTo(10)(ctx, after)
		}), topic.Open(sinktest.Faults{})))
		time.Sleep(time.Minute)
		stop()
		if got := len(topic.Entities()); got != 7 {
			t.Errorf("the topic has %d entities, want the 7 before the error", got)
		}
	})
}

// A poll of ten thousand feeds that have nothing new is made often, and another goroutine for each
// costs more than what the bridge does in it.
func TestAPollThatFindsNothingNewHasNoOtherGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		polls := 0
		stop := start(t, newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			if polls++; !bytes.Contains(debug.Stack(), []byte("bridge.(*Bridge).step(")) {
				t.Error("a poll is not made by the goroutine of its step")
			}
			return feed.Batch{Cursor: after}, nil
		}), topic.Open(sinktest.Faults{})))
		time.Sleep(time.Minute)
		stop()
		if polls < 5 {
			t.Errorf("there were %d polls in a minute", polls)
		}
	})
}

// slowResume is a sink whose Resume does not notice that it was cancelled.
type slowResume struct{ bridge.Sink }

func (s slowResume) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	time.Sleep(time.Second)
	return s.Sink.Resume(context.WithoutCancel(ctx))
}

func TestNothingIsReadAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		stop := start(t, newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			t.Error("the feed is read after the stop")
			return feed.Batch{Cursor: after}, nil
		}), slowResume{topic.Open(sinktest.Faults{})}))
		time.Sleep(time.Millisecond)
		stop()
	})
}
