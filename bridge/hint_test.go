package bridge_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink"
)

// hintedBridge is an idle bridge whose bus is looked at.
func hintedBridge(topic *sinktest.Memory) (*bridge.Bridge, *countingSink, *diary) {
	memory := topic.Open(sinktest.Faults{})
	sink, seen := &countingSink{Sink: memory}, &diary{}
	b := newBridge(upTo(3), sink)
	b.Every, b.Observer, b.Writer, b.Unchanged = time.Minute, seen, "this copy", memory.Unchanged
	return b, sink, seen
}

// timedSink records when the checkpoint is read.
type timedSink struct {
	bridge.Sink
	mu      sync.Mutex
	resumes []time.Time
}

func (s *timedSink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	s.mu.Lock()
	s.resumes = append(s.resumes, time.Now())
	s.mu.Unlock()
	return s.Sink.Resume(ctx)
}

// take returns the times since the last call.
func (s *timedSink) take() (resumes []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resumes, s.resumes = s.resumes, nil
	return resumes
}

// A checkpoint is read when the bus has not confirmed it for 30 seconds. Feeds that were confirmed
// together, as those of a stream are, do not read their checkpoints together.
func TestACheckpointIsReadUnlessItIsConfirmed(t *testing.T) {
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	for _, paused := range []bool{false, true} {
		for range 20 {
			synctest.Test(t, func(t *testing.T) {
				var topic sinktest.Memory
				b, _, seen := hintedBridge(&topic)
				b.Every = 24 * time.Hour
				sink := &timedSink{Sink: b.Sink}
				b.Sink = sink
				if paused {
					if _, err := bridge.SetPaused(t.Context(), topic.Open(sinktest.Faults{}), b.Feed, "a person", true); err != nil {
						t.Fatal(err)
					}
				}
				looks := b.Unchanged
				lastLook := time.Now().Add(time.Hour)
				b.Unchanged = func() time.Time { // every 25 s
					if last := lastLook.Sub(time.Now().Truncate(25 * time.Second)); last < 0 {
						return lastLook
					}
					if looks().IsZero() {
						return time.Time{}
					}
					return time.Now().Truncate(25 * time.Second)
				}
				stop := start(t, b)
				time.Sleep(time.Until(lastLook))
				if n := len(sink.take()); n != 1 {
					t.Errorf("the checkpoint was read %d times in an hour of looks at the bus", n)
				}
				time.Sleep(10 * time.Minute)
				if old := time.Since(seen.last().Confirmed()); old > 45*time.Second {
					t.Errorf("the last confirmation is %v old", old)
				}
				stop()
				before := lastLook
				for _, at := range sink.take() {
					least, most = min(least, at.Sub(before)), max(most, at.Sub(before))
					before = at
				}
			})
		}
	}
	if least < 30*time.Second || most > 45*time.Second || most-least < 10*time.Second {
		t.Errorf("the checkpoint was read every %v to %v, want 30 to 45 s", least, most)
	}
}

// Whatever happens to a topic, a copy that waits does not claim for longer than a minute that it has
// published all of the feed.
func TestAnIdleCopyNoticesWhatHappensToItsTopic(t *testing.T) {
	for name, happens := range map[string]func(topic *sinktest.Memory, restore func()){
		"it is deleted":        func(topic *sinktest.Memory, _ func()) { topic.LoseCheckpoint(); topic.LoseMessages(3) },
		"it is restored":       func(_ *sinktest.Memory, restore func()) { restore() },
		"it is truncated":      func(topic *sinktest.Memory, _ func()) { topic.LoseMessages(1) },
		"it has no checkpoint": func(topic *sinktest.Memory, _ func()) { topic.LoseCheckpoint() },
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			b, _, seen := hintedBridge(&topic)
			b.Every = 24 * time.Hour
			other := topic.Open(sinktest.Faults{})
			if _, err := other.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			must.Succeed(t, other.Commit(t.Context(), entities(0, 1), checkpoint.Checkpoint{Feed: b.Feed, Source: "test", Cursor: cursorAt(1), Count: 1}))
			restore := topic.Backup()
			stop := start(t, b)
			time.Sleep(time.Hour)
			happens(&topic, restore)
			for range 60 {
				time.Sleep(time.Second)
				synctest.Wait()
				if s := seen.last(); s.State == bridge.Idle && time.Since(s.Confirmed()) > 46*time.Second {
					t.Fatalf("the feed is idle, and its checkpoint was confirmed %v ago", time.Since(s.Confirmed()))
				}
			}
			if s := seen.last(); s.State == bridge.Idle && len(topic.Entities()) < 3 {
				t.Errorf("a minute later the feed is idle, and its topic has %d entities of 3", len(topic.Entities()))
			}
			stop()
		}))
	}
}

func TestAHintEndsTheWaitOfAnIdleCopy(t *testing.T) {
	for name, lost := range map[string]bool{"hint": false, "lost hint": true} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			b, _, seen := hintedBridge(&topic)
			b.Every = 24 * time.Hour
			stop := start(t, b)
			time.Sleep(time.Minute)
			for _, pause := range []bool{true, false} {
				if _, err := bridge.SetPaused(t.Context(), topic.Open(sinktest.Faults{}), b.Feed, "a person", pause); err != nil {
					t.Fatal(err)
				}
				most := 46 * time.Second
				if !lost {
					b.Hint("a person")
					most = 2 * time.Second
				}
				time.Sleep(most)
				synctest.Wait()
				if got := seen.last().State == bridge.Paused; got != pause {
					t.Errorf("after %v the feed is %s, and paused should be %v", most, seen.last().State, pause)
				}
			}
			stop()
		}))
	}
}

func TestHintsOfOwnCommitsAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		b, sink, _ := hintedBridge(&topic)
		b.Hint("another copy") // before the start
		stop := start(t, b)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := sink.resumes.Load()
		b.Hint(b.Writer)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if sink.resumes.Load() != before {
			t.Error("a hint of its own commit makes the bridge read the checkpoint")
		}
		for range 100 {
			b.Hint("another copy")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := sink.resumes.Load() - before; got != 1 {
			t.Errorf("the checkpoint was read %d times after 100 hints at once, want once", got)
		}
		stop()
		b.Hint("another copy") // after the stop
	})
}

// What another copy has published is no reason to ask upstream.
func TestACommitOfAnotherCopyCausesNoPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		b, _, seen := hintedBridge(&topic)
		var polls atomic.Int32
		b.Open = newBridge(sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
			polls.Add(1)
			return upTo(3)(ctx, after)
		}), nil).Open
		b.Every = 24 * time.Hour
		stop := start(t, b)
		time.Sleep(time.Minute)
		before := polls.Load()
		other := topic.Open(sinktest.Faults{})
		cp, err := other.Resume(t.Context())
		must.Succeed(t, err)
		cp.Cursor, cp.Count, cp.Writer = cursorAt(4), cp.Count+1, "another copy"
		must.Succeed(t, other.Commit(t.Context(), entities(3, 4), cp))
		b.Hint("another copy")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := polls.Load() - before; n != 0 {
			t.Errorf("%d polls", n)
		}
		if got := seen.last().Checkpoint; string(got.Cursor) != "4" || seen.last().State != bridge.Idle {
			t.Errorf("the feed is %s at %q, want idle at the other copy's cursor", seen.last().State, got.Cursor)
		}
		stop()
	})
}

// A batch that was read and not committed is read again only after the sink has resumed.
func TestAWatchThatBeginsDuringAReadLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		s := topic.Open(sinktest.Faults{})
		// It takes 40 s to find its second entity.
		source := sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			switch string(after) {
			case "":
				return feed.Batch{Entities: entities(0, 1), Cursor: cursorAt(1), More: true}, nil
			case "1":
				time.Sleep(40 * time.Second)
				return feed.Batch{Cursor: feed.Cursor("1, searched"), Equivalent: after, More: true}, nil
			case "1, searched":
				time.Sleep(100 * time.Millisecond)
				return feed.Batch{Entities: entities(1, 2), Cursor: cursorAt(2)}, nil
			}
			return feed.Batch{Cursor: after}, nil
		})
		b := newBridge(&sink.Gate{Source: source, IDs: s.IDs(), Fits: func(e []feed.Entity) (int, error) { return len(e), nil }, Log: discard}, s)
		b.Every = time.Minute
		begin, watched := time.Now(), false
		b.Unchanged = func() time.Time {
			switch {
			case watched:
				return s.Unchanged()
			case time.Since(begin) >= 40*time.Second:
				time.Sleep(time.Second) // the next batch is read ahead
				watched = true
			}
			return time.Time{}
		}
		stop := start(t, b)
		time.Sleep(10 * time.Minute)
		stop()
		if got := len(topic.Entities()); got != 2 {
			t.Errorf("the topic has %d entities, want 2", got)
		}
	})
}

// A copy that lost a race leaves the feed to the winner for twice the interval. A hint does not make
// it compete earlier.
func TestAHintDoesNotEndStandby(t *testing.T) {
	for name, writer := range map[string]string{"commit of another copy": "another copy", "checkpoint that cannot be read": ""} {
		t.Run(name, bubbled(func(t *testing.T) {
			var topic sinktest.Memory
			b, sink, seen := hintedBridge(&topic)
			lost := false
			b.Open = newBridge(sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
				if !lost { // another copy commits during the poll
					lost = true
					other := topic.Open(sinktest.Faults{})
					_, err := other.Resume(ctx)
					if err == nil {
						cp := checkpoint.Checkpoint{Feed: b.Feed, Source: "test", Cursor: cursorAt(1), Count: 1, Writer: "another copy"}
						err = other.Commit(ctx, entities(0, 1), cp)
					}
					if err != nil {
						t.Error(err)
					}
				}
				return upTo(3)(ctx, after)
			}), nil).Open
			stop := start(t, b)
			synctest.Wait()
			if state := seen.last().State; state != bridge.Standby {
				t.Fatalf("the feed is %s", state)
			}
			before := sink.resumes.Load()
			b.Hint(writer)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := sink.resumes.Load(); got != before || seen.last().State != bridge.Standby {
				t.Errorf("the feed is %s, and its checkpoint was read %d times", seen.last().State, got-before)
			}
			stop()
		}))
	}
}
