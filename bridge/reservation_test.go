package bridge_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
)

// reserver is a source whose batches reserve the memory that they need.
type reserver struct {
	share *readahead.Share
	next  sourceFunc
	// needs is called for each batch. It reserves, and returns the error of that.
	needs func(ctx context.Context, s *readahead.Share) error
}

func (r reserver) Next(ctx context.Context, after feed.Cursor, _ feed.Limits) (feed.Batch, error) {
	if err := r.needs(ctx, r.share); err != nil {
		return feed.Batch{}, err
	}
	return r.next(ctx, after)
}

func (reserver) Release() {}

// committing calls committed with the number of entities of each commit.
type committing struct {
	bridge.Sink
	committed func(n int)
}

func (c committing) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	err := c.Sink.Commit(ctx, entities, cp)
	c.committed(len(entities))
	return err
}

// Each feed needs more for each batch than it can get at once, in small steps, and all
// wait with some of the budget. One at a time goes on without.
func TestFeedsThatWaitForEachOtherGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, step = 10 << 20, 1 << 20
		budget := readahead.NewBudget(total)
		var h held
		var most, now atomic.Int64
		topics := make([]sinktest.Memory, 20)
		var stops []func()
		for i := range topics {
			share := budget.Share()
			src := reserver{share, backlog(5, &h), func(ctx context.Context, s *readahead.Share) error {
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
			wantEntities(t, &topics[i], 5)
		}
		if most.Load() > total+5*step+int64(len(topics))*(64<<10) {
			t.Errorf("%d bytes were held, and the budget has %d", most.Load(), total)
		}
		wantUnused(t, budget, "idle feeds have some of the budget")
		for _, stop := range stops {
			stop()
		}
	})
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
				budget := readahead.NewBudget(total)
				share := budget.Share()
				var topic sinktest.Memory
				var h held
				reserved := false
				src := reserver{share, backlog(50, &h), func(ctx context.Context, s *readahead.Share) error {
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
				wantUnused(t, budget, "some of the budget is not returned")
				if !test.stop {
					stop()
				}
			})
		})
	}
}

// Feeds that wait for budget in the middle of a batch hold none for the next one. Ten of
// twenty can read at a time, and each batch takes 1.1 seconds, so all take two minutes.
func TestFeedsThatWaitHoldNothingUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, size, batches = 10 << 20, 1 << 20, 50
		budget := readahead.NewBudget(total)
		var h held
		topics := make([]sinktest.Memory, 20)
		var stops []func()
		for i := range topics {
			share := budget.Share()
			src := reserver{share, backlog(batches, &h), func(ctx context.Context, s *readahead.Share) error {
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
