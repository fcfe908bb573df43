package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrStopped is matched by errors about a command to a bridge that has stopped.
var ErrStopped = errors.New("the feed is stopped")

// ErrBusy is matched by errors about a command to a bridge whose source does not yield: it has not
// returned for [YieldTime] after the end of its context.
var ErrBusy = errors.New("the feed does not yield")

// command is a request by a person to a running bridge.
type command struct {
	// ctx is the caller's. When it ends, the command is dropped.
	ctx context.Context
	// pause is the requested state of the feed, for a command that pauses or resumes it. It
	// is nil for a poll.
	pause *bool
	// done gets the result. It has a capacity of one.
	done chan commandResult
}

type commandResult struct {
	// poll is the result of a poll, pause that of any other command.
	poll  PollResult
	pause PauseResult
	err   error
}

// PollResult is the result of a poll that a person has requested.
type PollResult struct {
	// Status has the state that the bridge has entered after the poll: Idle if everything
	// in the feed is published, Retrying or Halted with the error if the poll or a commit
	// failed, Standby if another copy publishes the feed, and Paused if there was no poll.
	Status Status
	// Published and Duplicates count the entities that were published, and those that were
	// left out because the topic has them.
	Published, Duplicates int
}

// commandQueue hands commands from any goroutine to the steps, which carry them out in turns. The
// zero value is ready.
type commandQueue struct {
	// mu protects what send uses.
	mu      sync.Mutex
	waiting []*command
	endTurn context.CancelFunc // of the present turn; nil if there is none
	// polling is set while the present turn has a poll without a result. Other polls wait for
	// its end, so that a feed makes progress however often it is polled.
	polling bool
	stopped bool

	// turn is the present one, or nil before the first one and after the stop. It is owned by
	// the steps.
	turn *turn
}

// send hands a command over, for which the present turn ends. It returns the result, or ErrBusy if
// the source does not let the turn end. It may be called from any goroutine.
func (q *commandQueue) send(ctx context.Context, w *work, c *command) (commandResult, error) {
	c.ctx, c.done = ctx, make(chan commandResult, 1)
	q.mu.Lock()
	if q.stopped {
		q.mu.Unlock()
		return commandResult{}, ErrStopped
	}
	q.waiting = append(q.waiting, c)
	if q.endTurn != nil && (c.pause != nil || !q.polling) {
		q.endTurn()
	}
	q.mu.Unlock()
	look := time.NewTicker(YieldTime)
	defer look.Stop()
	for {
		select {
		case r := <-c.done:
			return r, r.err
		case <-look.C:
			if now := w.current(); now.doesNotYield() && q.withdraw(c) {
				return commandResult{}, fmt.Errorf("%w: %v", ErrBusy, now)
			}
		case <-ctx.Done():
			return commandResult{}, context.Cause(ctx)
		}
	}
}

// withdraw takes a command back, if the turn has ended for it and the next one has not begun.
func (q *commandQueue) withdraw(c *command) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, c)
	if i < 0 || q.turn == nil || q.turn.ctx.Err() == nil {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// beginTurn begins the next turn, which has the commands that wait and those of the last turn
// that have no result.
func (q *commandQueue) beginTurn(ctx context.Context) {
	t := &turn{}
	t.ctx, t.end = context.WithCancel(ctx) //nolint:gosec // G118: endTurn calls it, or ctx ends
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turn != nil {
		t.commands = q.turn.commands
	}
	t.commands = append(t.commands, q.waiting...)
	t.commands = slices.DeleteFunc(t.commands, func(c *command) bool { return c.ctx.Err() != nil })
	q.waiting, q.endTurn = nil, t.end
	q.polling = slices.ContainsFunc(t.commands, func(c *command) bool { return c.pause == nil })
	q.turn = t
}

// answerPolls answers the polls of the turn if the bridge enters a state in which no poll is
// running. If other commands wait, the turn ends.
func (q *commandQueue) answerPolls(s Status) {
	t := q.turn
	if t == nil || s.State == Starting || s.State == Reading || s.State == Stopped {
		return
	}
	t.answer(func(c *command) (commandResult, bool) {
		return commandResult{poll: PollResult{Status: s, Published: t.published, Duplicates: t.duplicates}}, c.pause == nil
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.polling = false; len(q.waiting) > 0 {
		q.endTurn()
	}
}

// stop answers the commands that have no result, and all that follow, with ErrStopped.
func (q *commandQueue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	for _, c := range append(q.waiting, q.turn.commands...) {
		c.done <- commandResult{err: ErrStopped}
	}
	q.waiting, q.turn = nil, nil
}

// turn is the time between two points at which a bridge reads the checkpoint again: a session
// and the wait after it. It is owned by the steps.
type turn struct {
	// ctx ends when a command arrives, or the bridge is to stop. That does not cancel a commit.
	ctx context.Context
	end context.CancelFunc
	// commands are those that have no result yet.
	commands []*command
	// published and duplicates count the entities of the turn.
	published, duplicates int
}

// answer gives the commands for which result returns one their result.
func (t *turn) answer(result func(*command) (commandResult, bool)) {
	var left []*command
	for _, c := range t.commands {
		if r, ok := result(c); ok {
			c.done <- r
		} else {
			left = append(left, c)
		}
	}
	t.commands = left
}

// failPauses answers the commands that pause or resume the feed with an error.
func (t *turn) failPauses(err error) {
	t.answer(func(c *command) (commandResult, bool) { return commandResult{err: err}, c.pause != nil })
}
