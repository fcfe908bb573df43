package bridge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// A hint may come before the commit is stored. The copy waits a moment before it reads the checkpoint,
// so the hint is not wasted.
func TestAHintThatComesBeforeItsCommit(t *testing.T) {
	for range 1000 { // the delay is random, and now and then another step is due meanwhile
		synctest.Test(t, func(t *testing.T) {
			var topic sinktest.Memory
			b, sink, seen := hintedBridge(&topic)
			b.Every = 24 * time.Hour
			stop := start(t, b)
			time.Sleep(time.Minute)
			before := sink.resumes.Load()
			b.Hint("a person")
			time.Sleep(400 * time.Millisecond)
			synctest.Wait()
			if sink.resumes.Load() != before {
				t.Error("the checkpoint is read at once")
			}
			if _, err := bridge.SetPaused(t.Context(), topic.Open(sinktest.Faults{}), b.Feed, "a person", true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if seen.last().State != bridge.Paused {
				t.Errorf("the feed is %s 2.4 s after the hint, want paused", seen.last().State)
			}
			stop()
		})
	}
}

// hintHistory is a sequence of events for copies whose hints are lost, early or invented.
type hintHistory struct {
	seed   uint64
	copies int
	length int // of the feed, in the end
	// lost, early and all are parts of a thousand hints: those that get lost, come before the
	// commit, and do not name a writer. False ones come without a commit, so many per hour.
	lost, early, all, invented int
	saveFail                   int // of a thousand commits
	// watched reports that the bus shows that a checkpoint is unchanged, so that it is read seldom.
	watched bool
	// paused is the time from the start to a pause of 10 minutes, or 0 for none.
	paused time.Duration
}

func drawHintHistory(t *rapid.T) hintHistory {
	perMille := func(name string) int { return rapid.SampledFrom([]int{0, 100, 500, 1000}).Draw(t, name) }
	return hintHistory{
		seed:   rapid.Uint64().Draw(t, "seed"),
		copies: rapid.IntRange(1, 3).Draw(t, "copies"),
		length: rapid.IntRange(0, 200).Draw(t, "length"),
		lost:   perMille("lost"), early: perMille("early"), all: perMille("all"),
		invented: rapid.IntRange(0, 300).Draw(t, "invented"),
		watched:  rapid.Bool().Draw(t, "watched"),
		saveFail: rapid.IntRange(0, 300).Draw(t, "saveFail"),
		paused:   time.Duration(rapid.IntRange(0, 600).Draw(t, "paused")) * time.Second,
	}
}

// hintedSink sends a hint of each commit to all copies, unless the history drops it.
type hintedSink struct {
	bridge.Sink
	unchanged func() time.Time
	hint      func(before bool, writer string)
}

func (s *hintedSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	s.hint(true, cp.Writer)
	err := s.Sink.Commit(ctx, entities, cp)
	if err == nil {
		s.hint(false, cp.Writer)
	}
	return err
}

const (
	hintTrouble = 30 * time.Minute // the feed grows, and commits fail
	hintCalm    = 5 * time.Minute  // longer than a poll interval and the age of a confirmation
)

// play runs the history, and returns an error if the topic is wrong at its end.
func (h hintHistory) play(t *testing.T) (wrong error) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		begin := time.Now()
		dice := &dice{rng: rand.New(rand.NewPCG(h.seed, 1))}
		bridges := make([]atomic.Pointer[bridge.Bridge], h.copies)
		tell := func(writer string) {
			for i := range bridges {
				if b := bridges[i].Load(); b != nil {
					b.Hint(writer)
				}
			}
		}
		hint := func(before bool, writer string) {
			if dice.roll(1000) < h.lost || before != (dice.roll(1000) < h.early) {
				return
			}
			if dice.roll(1000) < h.all {
				writer = ""
			}
			tell(writer)
		}
		faults := sinktest.Faults{Commit: func() sinktest.Fault {
			if time.Since(begin) > hintTrouble || dice.roll(1000) >= h.saveFail {
				return sinktest.Fault{}
			}
			kinds := []sinktest.Kind{sinktest.FailBefore, sinktest.FailAfter, sinktest.Late}
			return sinktest.Fault{Kind: kinds[dice.roll(len(kinds))], After: time.Duration(dice.roll(20_000)) * time.Millisecond}
		}}
		open := func() *hintedSink {
			memory := topic.Open(faults)
			return &hintedSink{memory, memory.Unchanged, hint}
		}
		ctx, cancel := context.WithTimeout(t.Context(), hintTrouble+hintCalm)
		defer cancel()
		growing := func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
			part := min(time.Since(begin), hintTrouble)
			return upTo(int(int64(h.length)*int64(part)/int64(hintTrouble)))(ctx, after)
		}
		var running sync.WaitGroup
		for i := range h.copies {
			sink := open()
			b := newBridge(sourceFunc(growing), sink)
			b.Writer, b.Every = fmt.Sprintf("copy-%d", i), time.Minute
			if h.watched {
				b.Unchanged = sink.unchanged
			}
			bridges[i].Store(b)
			running.Add(1)
			b.Start(ctx, running.Done)
		}
		running.Go(func() {
			for h.invented > 0 && ctx.Err() == nil {
				time.Sleep(time.Hour / time.Duration(h.invented))
				tell("a stranger")
			}
		})
		if h.paused > 0 {
			running.Go(func() { wrong = h.pause(&topic, open) })
		}
		running.Wait()
		if wrong != nil {
			return
		}
		held := topic.Entities()
		for i, e := range held {
			if e.ID != fmt.Sprint(i) {
				wrong = fmt.Errorf("entity number %d is %s", i, e.ID)
				return
			}
		}
		if len(held) != h.length {
			wrong = fmt.Errorf("the topic has %d entities of %d", len(held), h.length)
			return
		}
		wrong = topic.Err()
	})
	return wrong
}

// pause pauses the feed for 10 minutes. A copy that does not learn of it polls, and publishes nothing.
func (h hintHistory) pause(topic *sinktest.Memory, open func() *hintedSink) error {
	set := func(paused bool) {
		for {
			if _, err := bridge.SetPaused(context.Background(), open(), "numbers", "a person", paused); err == nil {
				return
			}
			time.Sleep(time.Second)
		}
	}
	time.Sleep(h.paused)
	set(true)
	before := len(topic.Entities())
	time.Sleep(10 * time.Minute)
	if now := len(topic.Entities()); now != before {
		return fmt.Errorf("%d entities were published while the feed was paused", now-before)
	}
	set(false)
	return nil
}

// Whatever happens to hints, they decide only when a copy reads the checkpoint. If all of them are
// lost, each copy has published its part, and has noticed the end of a pause, when its confirmation of
// the checkpoint is too old.
func TestTopicHoldsTheFeedExactlyWhateverHintsSay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHintHistory(rt)
		if err := h.play(t); err != nil {
			rt.Fatalf("%v\n%+v", err, h)
		}
	})
}
