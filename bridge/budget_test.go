package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
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

func (s *holdingSink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	time.Sleep(s.takes)
	err := s.Sink.Commit(ctx, entities, cp)
	s.held.add(-len(entities))
	return err
}

// wantUnused checks that nobody has some of a budget.
func wantUnused(t *testing.T, budget *readahead.Budget, otherwise string) {
	t.Helper()
	if !budget.Unused() {
		t.Error(otherwise)
	}
}

func TestManyFeedsKeepTheBudget(t *testing.T) {
	for _, test := range []struct{ feeds, readAhead, budget int }{
		{1, 10, 100}, {5, 10, 100}, {20, 10, 100}, {100, 10, 100}, {100, 10, 1}, {30, 1, 10}, {20, 100, 100},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := readahead.NewBudget(int64(test.budget * batchSize))
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
					wantEntities(t, &topics[i], 50)
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
				wantUnused(t, budget, "idle feeds have some of the budget")
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
			budget := readahead.NewBudget(10 << 20)
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
			wantUnused(t, budget, "an idle feed has some of the budget")
			stop()
		}
	})
}

// Feeds whose bus does not answer have the whole budget. A feed of another bus publishes.
func TestABusThatDoesNotAnswerStarvesNoFeedOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := readahead.NewBudget(100 * batchSize)
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
		wantEntities(t, &topic, 50)
		var stopping sync.WaitGroup
		for _, stop := range stops {
			stopping.Go(stop)
		}
		stopping.Wait()
		wantUnused(t, budget, "feeds that have stopped have some of the budget")
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
				budget := readahead.NewBudget(20 * batchSize)
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
				wantUnused(t, budget, "a feed that has stopped has some of the budget")
			})
		})
	}
}

// A feed that waits for budget and holds no batch goes on without after a second. It
// keeps its place in the queue.
func TestAFeedThatWaitsKeepsItsPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 10 * batchSize
		budget := readahead.NewBudget(total)
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
		budget := readahead.NewBudget(total)
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
		wantEntities(t, &topic, 10)
	})
}

// A request for the next batch is granted while the batch before is read. The session ends
// before the next one.
func TestARequestThatIsNotUsedIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 10 * batchSize
		budget := readahead.NewBudget(total)
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
		wantUnused(t, budget, "a feed that has stopped has some of the budget")
	})
}
