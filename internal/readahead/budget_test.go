package readahead_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// abandon drops the batch of a share.
func abandon(s *readahead.Share) {
	taken, _ := s.EndBatch()
	s.Budget().Return(taken)
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
				budget := readahead.NewBudget(total)
				if !budget.TryAcquire(total) {
					t.Fatal("the budget is not free")
				}
				exceeding, waiting := budget.Share(), budget.Share()
				must.Succeed(t, exceeding.Reserve(t.Context(), 1))
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
					abandon(exceeding)
				}
				if err := <-failed; !errors.Is(err, context.Canceled) {
					t.Errorf("Reserve returned %v", err)
				}
				if bytesFirst {
					abandon(exceeding)
				} else {
					budget.Release(total)
				}
				abandon(waiting)
				if !budget.Unused() {
					t.Error("some of the budget is not returned")
				}
			})
		})
	}
}
