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
	"github.com/feedbridge/feedbridge/sink/sinktest"
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

// holdingSink takes its time for a commit, and counts what is committed.
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
