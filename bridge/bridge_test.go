package bridge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

var _ bridge.Sink = (*sinktest.MemorySink)(nil)

var discard = slog.New(slog.DiscardHandler)

type nobody struct{}

func (nobody) Polled(feed.Batch, error, time.Duration) {}
func (nobody) Settled(feed.Batch, time.Duration)       {}
func (nobody) Entered(bridge.Status)                   {}

// diary is an observer that remembers the states.
type diary struct {
	nobody
	mu     sync.Mutex
	states []bridge.Status
}

func (d *diary) Entered(s bridge.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.states = append(d.states, s)
}

func (d *diary) last() bridge.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.states[len(d.states)-1]
}

func (d *diary) count(state bridge.State) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, s := range d.states {
		if s.State == state {
			n++
		}
	}
	return n
}

// sourceFunc is a source.
type sourceFunc func(ctx context.Context, after feed.Cursor) (feed.Batch, error)

func (f sourceFunc) Next(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	return f(ctx, after)
}

func (sourceFunc) Release() {}

// upTo is a feed of the numbers below n, in batches of one.
func upTo(n int) sourceFunc {
	return func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
		at := number(after)
		if at >= n {
			return feed.Batch{Cursor: after}, nil
		}
		return feed.Batch{Entities: entities(at, at+1), Cursor: cursorAt(at + 1), More: at+1 < n}, nil
	}
}

func number(c feed.Cursor) int {
	n, _ := strconv.Atoi(string(c))
	return n
}

func cursorAt(n int) feed.Cursor { return feed.Cursor(strconv.Itoa(n)) }

// start runs the bridge in the bubble and returns what ends it.
func start(t *testing.T, b *bridge.Bridge) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// countingSink counts commits and their entities.
type countingSink struct {
	bridge.Sink
	commits []int
	resumes int
}

func (c *countingSink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	c.resumes++
	return c.Sink.Resume(ctx)
}

func (c *countingSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, _ func() []feed.Entity) error {
	c.commits = append(c.commits, len(entities))
	return c.Sink.Commit(ctx, entities, cp, nil)
}

func TestAnIdleCopyCommitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		sink := &countingSink{Sink: topic.Open(sinktest.Faults{})}
		stop := start(t, newBridge(upTo(3), sink))
		time.Sleep(time.Hour)
		stop()
		if got := len(topic.Entities()); got != 3 {
			t.Errorf("the topic has %d entities, want 3", got)
		}
		if len(sink.commits) > 3 {
			t.Errorf("%d commits for 3 entities and an hour of nothing", len(sink.commits))
		}
	})
}

func TestMoreWithoutMovingDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		calls := 0
		stop := start(t, newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			calls++
			return feed.Batch{Cursor: after, More: true}, nil
		}), topic.Open(sinktest.Faults{})))
		time.Sleep(time.Minute)
		stop()
		if calls > 20 {
			t.Errorf("%d calls in a minute, at 5s each", calls)
		}
	})
}

func TestACursorThatMovesWithoutEntitiesIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		stop := start(t, newBridge(sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			if number(after) < 5 {
				return feed.Batch{Cursor: cursorAt(number(after) + 1), More: true}, nil
			}
			return feed.Batch{Cursor: after}, nil
		}), topic.Open(sinktest.Faults{})))
		time.Sleep(time.Second)
		stop()
		if cp := topic.Checkpoint(); string(cp.Cursor) != "5" || cp.Count != 0 {
			t.Errorf("the checkpoint is %s with %d entities, want 5 with 0", cp.Cursor, cp.Count)
		}
	})
}

// A feed whose server gives every answer another validator does not make a commit of each poll,
// and entities behind the stored cursor are not lost.
func TestEquivalentCursorsAreStoredOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		polls := 0
		src := sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
			polls++
			place, _, _ := strings.Cut(string(after), " ")
			if polls == 200 {
				return feed.Batch{Cursor: feed.Cursor("behind"), Entities: []feed.Entity{{ID: "1"}}}, nil
			}
			b := feed.Batch{Cursor: feed.Cursor(fmt.Sprintf("%s validator-%d", cmp.Or(place, "begin"), polls))}
			if len(after) > 0 {
				b.Equivalent = after
			}
			return b, nil
		})
		snk := &tallySink{Sink: topic.Open(sinktest.Faults{})}
		b := newBridge(src, snk)
		b.Every = time.Second
		stop := start(t, b)
		time.Sleep(10*time.Minute + 30*time.Second)
		stop()
		// The first, that with the entity, and about one a minute.
		if n := snk.commits.Load(); n < 8 || n > 13 {
			t.Errorf("%d commits in 10 minutes, and %d polls", n, polls)
		}
		if cp := topic.Checkpoint(); cp.Count != 1 || !strings.HasPrefix(string(cp.Cursor), "behind") {
			t.Errorf("the checkpoint is %s with %d entities", cp.Cursor, cp.Count)
		}
	})
}

// tallySink counts commits.
type tallySink struct {
	bridge.Sink
	commits atomic.Int64
}

func (s *tallySink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, _ func() []feed.Entity) error {
	s.commits.Add(1)
	return s.Sink.Commit(ctx, entities, cp, nil)
}

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
			if wait < 4*time.Second || wait > 6*time.Second {
				t.Errorf("waited %v, want about 5s", wait)
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
				if n := len(topic.Entities()); n != 0 {
					t.Errorf("%d entities were published", n)
				}
			})
		})
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

// Which source reads is asked for with the kind that the checkpoint is bound to. A
// reset binds it to none.
func TestTheSourceIsOpenedForTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		b := newBridge(nil, topic.Open(sinktest.Faults{}))
		var asked []string
		kind := "numbers"
		b.Open = func(_ context.Context, of string) (bridge.Source, string, error) {
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
		if n := len(topic.Entities()); n != 3 {
			t.Errorf("%d entities are published, want 3", n)
		}

		person := topic.Open(sinktest.Faults{})
		cp, err := person.Resume(t.Context())
		if err != nil || cp.Source != "numbers" {
			t.Fatalf("the checkpoint is %+v, %v", cp, err)
		}
		cp.Cursor = nil
		if err := person.Commit(t.Context(), nil, cp, nil); err != nil {
			t.Fatal(err)
		}
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
				if err := other.Commit(t.Context(), nil, cp, nil); err != nil {
					t.Fatal(err)
				}
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
				if n := len(topic.Entities()); n != 0 {
					t.Errorf("%d entities were published", n)
				}
			})
		})
	}
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

// slowSink takes its time to commit.
type slowSink struct {
	bridge.Sink
	begun chan struct{}
	takes time.Duration
}

func (s *slowSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, _ func() []feed.Entity) error {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	select {
	case <-time.After(s.takes):
		return s.Sink.Commit(ctx, entities, cp, nil)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAStopLetsTheCommitInFlightFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		sink := &slowSink{topic.Open(sinktest.Faults{}), make(chan struct{}, 1), 10 * time.Second}
		b := newBridge(upTo(1000), sink)
		b.Limits.Entities = 1
		stop := start(t, b)
		<-sink.begun
		stop()
		if n := len(topic.Entities()); n != 1 {
			t.Errorf("the topic has %d entities, want the 1 of the commit in flight", n)
		}
	})
}

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
		b.Limits = bridge.Limits{Entities: 1}
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
		b.Limits = bridge.Limits{Entities: 30}
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

// stagingSink delays a commit, and records the entities that were announced for the next one.
type stagingSink struct {
	bridge.Sink
	announced []feed.Entity
	commits   int
	ahead     int // commits of the announced entities
	t         *testing.T
}

func (s *stagingSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, next func() []feed.Entity) error {
	s.commits++
	if len(s.announced) > 0 {
		s.ahead++
		if len(entities) != len(s.announced) || &entities[0] != &s.announced[0] {
			s.t.Errorf("a commit of %d entities, and %d others were announced", len(entities), len(s.announced))
		}
	}
	time.Sleep(time.Second)
	s.announced = next()
	return s.Sink.Commit(ctx, entities, cp, nil)
}

func TestTheNextCommitIsAnnounced(t *testing.T) {
	for name, test := range map[string]struct {
		limits    bridge.Limits
		readAhead int
	}{
		"commits are limited by entities":        {bridge.Limits{Entities: 30}, 1 << 20},
		"commits are limited by what is read":    {bridge.Limits{}, 100},
		"commits are limited by bytes and ahead": {bridge.Limits{Bytes: 100}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var topic sinktest.Memory
				sink := &stagingSink{Sink: topic.Open(sinktest.Faults{}), t: t}
				b := newBridge(upTo(100), sink)
				b.Limits, b.ReadAhead = test.limits, test.readAhead
				stop := start(t, b)
				time.Sleep(time.Minute)
				stop()
				if got := len(topic.Entities()); got != 100 {
					t.Errorf("the topic has %d entities, want 100", got)
				}
				// The first commit has the first batch, and nothing was announced before it.
				if sink.ahead != sink.commits-1 || sink.commits > 6 {
					t.Errorf("%d of %d commits were announced", sink.ahead, sink.commits)
				}
			})
		})
	}
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
		if err := topic.Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestAnIdleCopyTakesUpACheckpointThatWasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topic sinktest.Memory
		stop := start(t, newBridge(upTo(5), topic.Open(sinktest.Faults{})))
		time.Sleep(time.Minute)
		person := topic.Open(sinktest.Faults{})
		cp, err := person.Resume(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		cp.Cursor = cursorAt(3)
		if err := person.Commit(t.Context(), nil, cp, nil); err != nil {
			t.Fatal(err)
		}
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var topic sinktest.Memory
				b := newBridge(next, topic.Open(sinktest.Faults{}))
				b.Every = time.Hour
				stop := start(t, b)
				time.Sleep(20 * time.Minute)
				before := len(topic.Entities())
				person := topic.Open(sinktest.Faults{})
				cp, err := person.Resume(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				cp.Cursor, cp.Moved = cursorAt(4), time.Now()
				if err := person.Commit(t.Context(), nil, cp, nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				stop()
				if got := topic.Entities()[before:]; len(got) != 1 || got[0].ID != "4" {
					t.Errorf("published %v since the position was moved in front of 4", got)
				}
				if !topic.Checkpoint().Moved.Equal(cp.Moved) {
					t.Error("the commit forgot that a person has moved the place")
				}
			})
		})
	}
}
