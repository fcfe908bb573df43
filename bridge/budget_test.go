package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// held counts the batches that were read and are not committed.
type held struct {
	mu        sync.Mutex
	now, most int
}

func (h *held) add(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += n
	h.most = max(h.most, h.now)
}

// counts returns how many batches are held, and how many were at most.
func (h *held) counts() (now, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now, h.most
}

// batchSize is the size of each batch of a backlog, in bytes.
const batchSize = 100

// backlog is a feed of n batches with one entity of batchSize each.
func backlog(n int, h *held) sourceFunc {
	return func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
		time.Sleep(10 * time.Millisecond)
		at := number(after)
		if at >= n || ctx.Err() != nil {
			return feed.Batch{Cursor: after}, ctx.Err()
		}
		h.add(1)
		e := feed.Entity{ID: strconv.Itoa(at), Op: feed.Put, Body: make([]byte, batchSize)}
		return feed.Batch{Entities: []feed.Entity{e}, Cursor: cursorAt(at + 1), More: at+1 < n}, nil
	}
}

// holdingSink delays a commit, and counts the committed entities.
type holdingSink struct {
	bridge.Sink
	takes time.Duration
	held  *held
}

func (s *holdingSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, _ func() []feed.Entity) error {
	time.Sleep(s.takes)
	err := s.Sink.Commit(ctx, entities, cp, nil)
	s.held.add(-len(entities))
	return err
}

func TestManyFeedsKeepTheBudget(t *testing.T) {
	for _, test := range []struct{ feeds, readAhead, budget int }{
		{1, 10, 100}, {5, 10, 100}, {20, 10, 100}, {100, 10, 100}, {100, 10, 1}, {30, 1, 10}, {20, 100, 100},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := bridge.NewBudget(int64(test.budget * batchSize))
				var h held
				topics := make([]sinktest.Memory, test.feeds)
				var stops []func()
				for i := range topics {
					b := newBridge(backlog(50, &h), &holdingSink{topics[i].Open(sinktest.Faults{}), time.Second, &h})
					b.ReadAhead, b.Share = test.readAhead*batchSize, budget.Share()
					stops = append(stops, start(t, b))
				}
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				for i := range topics {
					if n := len(topics[i].Entities()); n != 50 {
						t.Errorf("topic %d has %d entities, want 50", i, n)
					}
				}
				// Each feed has one batch besides.
				_, most := h.counts()
				if allowed := min(test.budget, test.feeds*test.readAhead) + test.feeds; most > allowed {
					t.Errorf("%d batches were held at a time, want %d at most", most, allowed)
				}
				if full := test.feeds * test.readAhead; full <= test.budget && most < full {
					t.Errorf("%d batches were held at a time, and the budget has room for %d", most, full)
				}
				// All feeds are idle.
				if !budget.Unused() {
					t.Error("idle feeds have some of the budget")
				}
				for _, stop := range stops {
					stop()
				}
			})
		})
	}
}

// The first batch of a feed needs no budget, so that it does not wait. If it is large and
// the budget has room, it counts.
func TestALargeFirstBatchCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for size, counts := range map[int]bool{10 << 10: false, 1 << 20: true} {
			budget := bridge.NewBudget(10 << 20)
			source := sourceFunc(func(_ context.Context, after feed.Cursor) (feed.Batch, error) {
				if number(after) > 0 {
					return feed.Batch{Cursor: after}, nil
				}
				return feed.Batch{Entities: []feed.Entity{{ID: "a", Op: feed.Put, Body: make([]byte, size)}}, Cursor: cursorAt(1)}, nil
			})
			var topic sinktest.Memory
			b := newBridge(source, &holdingSink{topic.Open(sinktest.Faults{}), time.Minute, &held{}})
			b.Share = budget.Share()
			stop := start(t, b)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if budget.Unused() == counts {
				t.Errorf("a batch of %d bytes that is being committed counts: %v", size, !counts)
			}
			time.Sleep(time.Minute)
			if !budget.Unused() {
				t.Error("an idle feed has some of the budget")
			}
			stop()
		}
	})
}

// Feeds whose bus does not answer have the whole budget. A feed of another bus publishes.
func TestABusThatDoesNotAnswerStarvesNoFeedOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := bridge.NewBudget(100 * batchSize)
		var h held
		var stops []func()
		for range 20 {
			var topic sinktest.Memory
			b := newBridge(backlog(1000, &h), &holdingSink{topic.Open(sinktest.Faults{}), 24 * time.Hour, &h})
			b.ReadAhead, b.Share = 10*batchSize, budget.Share()
			stops = append(stops, start(t, b))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if now, _ := h.counts(); now < 100 {
			t.Fatalf("%d batches are held, and the budget is for 100", now)
		}
		var topic sinktest.Memory
		b := newBridge(backlog(50, &h), &holdingSink{topic.Open(sinktest.Faults{}), time.Second, &h})
		b.ReadAhead, b.Share = 10*batchSize, budget.Share()
		stops = append(stops, start(t, b))
		time.Sleep(10 * time.Minute)
		if n := len(topic.Entities()); n != 50 {
			t.Errorf("the topic on the bus that answers has %d entities, want 50", n)
		}
		var stopping sync.WaitGroup
		for _, stop := range stops {
			stopping.Go(stop)
		}
		stopping.Wait()
		if !budget.Unused() {
			t.Error("feeds that have stopped have some of the budget")
		}
	})
}

// Whatever ends a session, its budget is returned.
func TestASessionReturnsItsBudget(t *testing.T) {
	failing := func(kind sinktest.Kind) sinktest.Faults {
		return sinktest.Faults{Commit: func() sinktest.Fault { return sinktest.Fault{Kind: kind} }}
	}
	for name, test := range map[string]struct {
		faults sinktest.Faults
		source func(*held) sourceFunc
	}{
		"the commit fails":            {faults: failing(sinktest.FailBefore)},
		"the commit's answer is lost": {faults: failing(sinktest.FailAfter)},
		"the source fails after some batches": {source: func(h *held) sourceFunc {
			return func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
				if number(after)%7 == 6 {
					return feed.Batch{}, errors.New("down")
				}
				return backlog(1000, h)(ctx, after)
			}
		}},
		"the bridge stops while it reads": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := bridge.NewBudget(20 * batchSize)
				var h held
				var topic sinktest.Memory
				source := backlog(1000, &h)
				if test.source != nil {
					source = test.source(&h)
				}
				b := newBridge(source, &holdingSink{topic.Open(test.faults), time.Second, &h})
				b.ReadAhead, b.Share = 10*batchSize, budget.Share()
				seen := &diary{}
				b.Observer = seen
				stop := start(t, b)
				time.Sleep(10 * time.Second)
				for test.faults.Commit != nil && seen.last().State != bridge.Retrying {
					time.Sleep(100 * time.Millisecond)
				}
				if test.faults.Commit != nil && !budget.Unused() {
					t.Error("a feed that waits after an error has some of the budget")
				}
				if test.faults.Commit == nil && test.source == nil && budget.Unused() {
					t.Error("a feed with a backlog has none of the budget")
				}
				stop()
				if !budget.Unused() {
					t.Error("a feed that has stopped has some of the budget")
				}
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
		b.Open = func(context.Context, string) (bridge.Source, string, error) {
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
		b.Open = func(context.Context, string) (bridge.Source, string, error) {
			return releasing{backlog(50, &h), &released}, "test", nil
		}
		budget := bridge.NewBudget(20 * batchSize)
		b.ReadAhead, b.Share = 10*batchSize, budget.Share()
		stop := start(t, b)
		time.Sleep(time.Second)
		synctest.Wait()
		if released != 1 {
			t.Errorf("after a panic of the sink the source was released %d times", released)
		}
		if !budget.Unused() {
			t.Error("a feed that is halted has some of the budget")
		}
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
		b.Open = func(context.Context, string) (bridge.Source, string, error) {
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
		b.Open = func(context.Context, string) (bridge.Source, string, error) {
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

// reserver is a source whose batches reserve the memory that they need.
type reserver struct {
	share *bridge.Share
	next  sourceFunc
	// needs is called for each batch. It reserves, and returns the error of that.
	needs func(ctx context.Context, s *bridge.Share) error
}

func (r reserver) Next(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	if err := r.needs(ctx, r.share); err != nil {
		return feed.Batch{}, err
	}
	return r.next(ctx, after)
}

func (reserver) Release() {}

// Each feed needs more for each batch than it can get at once, in small steps, and all
// wait with some of the budget. One at a time goes on without.
func TestFeedsThatWaitForEachOtherGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, step = 10 << 20, 1 << 20
		budget := bridge.NewBudget(total)
		var h held
		var most, now atomic.Int64
		topics := make([]sinktest.Memory, 20)
		var stops []func()
		for i := range topics {
			share := budget.Share()
			src := reserver{share, backlog(5, &h), func(ctx context.Context, s *bridge.Share) error {
				for range 5 {
					time.Sleep(time.Second)
					if err := s.Reserve(ctx, step); err != nil {
						return err
					}
					most.Store(max(most.Load(), now.Add(step)))
				}
				return nil
			}}
			b := newBridge(src, &holdingSink{topics[i].Open(sinktest.Faults{}), time.Second, &h})
			b.Sink = committing{b.Sink, func(n int) { now.Add(-5 * step * int64(n)) }}
			b.ReadAhead, b.Share, b.Every = 20<<20, share, 24*time.Hour
			stops = append(stops, start(t, b))
		}
		time.Sleep(5 * time.Hour)
		for i := range topics {
			if n := len(topics[i].Entities()); n != 5 {
				t.Errorf("topic %d has %d entities, want 5", i, n)
			}
		}
		if most.Load() > total+5*step+int64(len(topics))*(64<<10) {
			t.Errorf("%d bytes were held, and the budget has %d", most.Load(), total)
		}
		if !budget.Unused() {
			t.Error("idle feeds have some of the budget")
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// committing calls committed with the number of entities of each commit.
type committing struct {
	bridge.Sink
	committed func(n int)
}

func (c committing) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, _ func() []feed.Entity) error {
	err := c.Sink.Commit(ctx, entities, cp, nil)
	c.committed(len(entities))
	return err
}

// The reservation of a source is returned, however its Next ends.
func TestReservationsAreReturned(t *testing.T) {
	const total = 10 << 20
	for name, test := range map[string]struct {
		end func(ctx context.Context) error
		// stop stops the bridge during Next.
		stop bool
	}{
		"an error": {end: func(context.Context) error { return errors.New("down") }},
		"a panic":  {end: func(context.Context) error { panic("broken") }},
		"the stop": {end: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, stop: true},
		"a stop that it does not notice": {end: func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		}, stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := bridge.NewBudget(total)
				share := budget.Share()
				var topic sinktest.Memory
				var h held
				reserved := false
				src := reserver{share, backlog(50, &h), func(ctx context.Context, s *bridge.Share) error {
					if number(topic.Checkpoint().Cursor) < 3 {
						return nil
					}
					_ = s.Reserve(ctx, total/2)
					_ = s.Reserve(ctx, total) // the right to hold more
					reserved = true
					return test.end(ctx)
				}}
				b := newBridge(src, topic.Open(sinktest.Faults{}))
				b.Share = share
				stop := start(t, b)
				time.Sleep(time.Second)
				synctest.Wait()
				if !reserved {
					t.Fatal("nothing was reserved")
				}
				if test.stop {
					if budget.Unused() {
						t.Error("the batch that is read has none of the budget")
					}
					stop()
				}
				if !budget.Unused() {
					t.Error("some of the budget is not returned")
				}
				if !test.stop {
					stop()
				}
			})
		})
	}
}

// A feed that waits for budget and holds no batch goes on without after a second. It
// keeps its place in the queue.
func TestAFeedThatWaitsKeepsItsPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 10 * batchSize
		budget := bridge.NewBudget(total)
		var h held
		var topic sinktest.Memory
		b := newBridge(backlog(1000, &h), &holdingSink{topic.Open(sinktest.Faults{}), 100 * time.Millisecond, &h})
		b.ReadAhead, b.Share = total, budget.Share()
		if !budget.TryAcquire(total) {
			t.Fatal("the budget is not free")
		}
		stop := start(t, b)
		// Ten seconds without budget give about ten batches.
		time.Sleep(10 * time.Second)
		if n := len(topic.Entities()); n < 8 || n > 12 {
			t.Errorf("the topic has %d entities after ten seconds without budget", n)
		}
		// Another request comes later. The feed reads some more batches without budget, and
		// is served first all the same.
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if n, err := budget.Acquire(ctx, batchSize); err == nil {
				defer budget.Release(n)
			}
		}()
		time.Sleep(5 * time.Second)
		budget.Release(batchSize)
		synctest.Wait()
		select {
		case <-done:
			t.Error("a later request was served before the feed")
		default:
		}
		stop()
		cancel()
		<-done
		if !budget.TryAcquire(batchSize) {
			t.Error("a feed that has stopped has some of the budget")
		}
	})
}

// The second for which a feed waits begins when its last batch is committed, however long
// that took.
func TestTheWaitForBudgetBeginsAfterTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 10 * batchSize
		budget := bridge.NewBudget(total)
		var h held
		var topic sinktest.Memory
		b := newBridge(backlog(1000, &h), &holdingSink{topic.Open(sinktest.Faults{}), 5 * time.Second, &h})
		b.ReadAhead, b.Share = total, budget.Share()
		if !budget.TryAcquire(total) {
			t.Fatal("the budget is not free")
		}
		stop := start(t, b)
		defer stop()
		time.Sleep(61 * time.Second)
		// Each commit takes 5 s, and is followed by a second of waiting.
		if n := len(topic.Entities()); n != 10 {
			t.Errorf("the topic has %d entities after a minute", n)
		}
	})
}

// Feeds that wait for budget in the middle of a batch hold none for the next one. Ten of
// twenty can read at a time, and each batch takes 1.1 seconds, so all take two minutes.
func TestFeedsThatWaitHoldNothingUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, size, batches = 10 << 20, 1 << 20, 50
		budget := bridge.NewBudget(total)
		var h held
		topics := make([]sinktest.Memory, 20)
		var stops []func()
		for i := range topics {
			share := budget.Share()
			src := reserver{share, backlog(batches, &h), func(ctx context.Context, s *bridge.Share) error {
				if err := s.Reserve(ctx, size); err != nil {
					return err
				}
				time.Sleep(time.Second)
				return nil
			}}
			b := newBridge(src, &holdingSink{topics[i].Open(sinktest.Faults{}), 100 * time.Millisecond, &h})
			b.ReadAhead, b.Share, b.Every = 4<<20, share, 24*time.Hour
			stops = append(stops, start(t, b))
		}
		time.Sleep(2*time.Minute + 30*time.Second)
		synctest.Wait()
		n := 0
		for i := range topics {
			n += len(topics[i].Entities())
		}
		if want := len(topics) * batches; n != want {
			t.Errorf("%d entities are published, want %d", n, want)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// A request for the next batch is granted while the batch before is read. The session ends
// before the next one.
func TestARequestThatIsNotUsedIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 10 * batchSize
		budget := bridge.NewBudget(total)
		var h held
		var topic sinktest.Memory
		stuck := sourceFunc(func(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
			if number(after) == 3 {
				<-ctx.Done()
			}
			return backlog(50, &h)(ctx, after)
		})
		b := newBridge(stuck, topic.Open(sinktest.Faults{}))
		b.ReadAhead, b.Share = total, budget.Share()
		if !budget.TryAcquire(total) {
			t.Fatal("the budget is not free")
		}
		stop := start(t, b)
		time.Sleep(time.Minute)
		budget.Release(total)
		synctest.Wait()
		if budget.Unused() {
			t.Error("the request was not granted")
		}
		stop()
		if !budget.Unused() {
			t.Error("a feed that has stopped has some of the budget")
		}
	})
}

// endingContext ends when Reserve asks for its error the next time after last is set:
// after the budget was granted, and before the batch has it.
type endingContext struct {
	context.Context
	cancel context.CancelFunc
	last   atomic.Bool
}

func (c *endingContext) Err() error {
	if c.last.Load() {
		c.cancel()
	}
	return c.Context.Err()
}

// A stop may come in the same moment as the grant that a feed waits for.
func TestAGrantThatComesWithTheStopIsReturned(t *testing.T) {
	const total = 10 << 20
	for name, bytesFirst := range map[string]bool{"bytes": true, "the right to exceed the budget": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := bridge.NewBudget(total)
				if !budget.TryAcquire(total) {
					t.Fatal("the budget is not free")
				}
				exceeding, waiting := budget.Share(), budget.Share()
				if err := exceeding.Reserve(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				inner, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx := &endingContext{Context: inner, cancel: cancel}
				failed := make(chan error, 1)
				go func() { failed <- waiting.Reserve(ctx, total) }()
				synctest.Wait()
				ctx.last.Store(true)
				if bytesFirst {
					budget.Release(total)
				} else {
					exceeding.Abandon()
				}
				if err := <-failed; !errors.Is(err, context.Canceled) {
					t.Errorf("Reserve returned %v", err)
				}
				if bytesFirst {
					exceeding.Abandon()
				} else {
					budget.Release(total)
				}
				waiting.Abandon()
				if !budget.Unused() {
					t.Error("some of the budget is not returned")
				}
			})
		})
	}
}
