package bridge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// busySource returns a feed of n numbers that does not look at its context: a call returns when released
// is closed.
func busySource(n int, released <-chan struct{}) sourceFunc {
	return func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
		<-released
		return upTo(n)(ctx, after)
	}
}

// wantBusy checks that a command was refused within twice YieldTime, and by which work.
func wantBusy(t *testing.T, command string, began time.Time, err error) {
	t.Helper()
	if took := time.Since(began); !errors.Is(err, bridge.ErrBusy) || !strings.Contains(err.Error(), "does not yield: reading the feed for ") || took > 2*bridge.YieldTime {
		t.Errorf("%s: %v after %v", command, err, took)
	}
}

func TestCommandsToAFeedThatDoesNotYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		released, seen := make(chan struct{}), &diary{}
		b := newBridge(busySource(5, released), topic.Open(sinktest.Faults{}))
		b.Observer = seen
		stop := start(t, b)
		time.Sleep(time.Minute)
		if w := b.Work(); w.Kind != bridge.ReadingFeed || w.String() != "reading the feed for 1m0s" {
			t.Errorf("the work is %v", w)
		}
		began := time.Now()
		_, err := b.SetPaused(t.Context(), true)
		wantBusy(t, "pause", began, err)
		began = time.Now()
		_, err = b.Poll(t.Context())
		wantBusy(t, "poll", began, err)
		setPaused(t, &topic, true) // beside the bridge
		released <- struct{}{}
		time.Sleep(time.Minute)
		wantState(t, "a", seen, bridge.Paused)
		if w := b.Work(); w != (bridge.Work{}) || w.String() != "not running" {
			t.Errorf("the work of a paused feed is %v", w)
		}
		setPaused(t, &topic, false)
		time.Sleep(2 * time.Minute)
		began = time.Now()
		_, err = b.SetPaused(t.Context(), true)
		wantBusy(t, "pause again", began, err)
		close(released)
		time.Sleep(time.Minute)
		wantState(t, "a", seen, bridge.Idle) // what was refused is not carried out later
		stop()
		wantEntities(t, &topic, 5)
		wantExact(t, &topic)
	})
}

// A feed that stops while it does not yield commits nothing of what it reads, also if another bridge has
// taken its place in this process.
func TestAFeedThatIsLeftBehindCommitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		released, sink := make(chan struct{}), &countingSink{Sink: topic.Open(sinktest.Faults{})}
		left := newBridge(busySource(5, released), sink)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		left.Start(ctx, func() { close(ended) })
		time.Sleep(time.Second)
		cancel()
		stop := start(t, newBridge(upTo(9), topic.Open(sinktest.Faults{})))
		time.Sleep(time.Minute)
		close(released)
		<-ended
		time.Sleep(time.Minute)
		stop()
		if len(sink.commits) > 0 || len(topic.Entities()) != 9 {
			t.Errorf("%d commits of the feed that was left behind; the topic has %d entities, want 9", len(sink.commits), len(topic.Entities()))
		}
		wantExact(t, &topic)
	})
}

// slowCommits has commits that take a time.
type slowCommits struct {
	bridge.Sink
	takes time.Duration
}

func (s slowCommits) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	time.Sleep(s.takes)
	return s.Sink.Commit(ctx, entities, cp)
}

// Only a source that ignores the end of its context is busy: a commit has its own limit, and the second
// poll of two waits for the end of the first.
func TestCommandsWaitForACommitAndForAPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		b := newBridge(upTo(2), slowCommits{topic.Open(sinktest.Faults{}), 20 * time.Second})
		stop := start(t, b)
		time.Sleep(time.Second)
		if w := b.Work(); w.Kind != bridge.Committing {
			t.Errorf("the work is %v", w)
		}
		if r, err := b.SetPaused(t.Context(), true); err != nil || !r.Checkpoint.IsPaused() {
			t.Errorf("pause during a commit: %+v, %v", r, err)
		}
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		b := newBridge(sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
			select {
			case <-time.After(30 * time.Second):
				return upTo(1)(ctx, after)
			case <-ctx.Done():
				return feed.Batch{}, ctx.Err()
			}
		}), topic.Open(sinktest.Faults{}))
		stop := start(t, b)
		go func() { _, _ = b.Poll(t.Context()) }()
		time.Sleep(time.Second)
		if r, err := b.Poll(t.Context()); err != nil || r.Status.State != bridge.Idle {
			t.Errorf("the second poll: %+v, %v", r, err)
		}
		stop()
	})
}
