package bridge

import (
	"cmp"
	"context"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/retry"
)

// A pause is a commit without entities, under the fence of the sink, by a copy that has resumed
// like any other. So the order of commits decides between a pause and entities: all entities
// of the topic were committed before it. A copy that has entities in flight loses the race,
// reads the checkpoint and finds the pause. A copy that reads a paused checkpoint makes no
// commit until it has read one that is not paused. If the process dies here, the pause is
// either stored or not.

// SetPaused pauses a feed for all copies, or resumes it, by a commit to its topic. It keeps
// everything else in the checkpoint. A feed that was never published can be paused too.
//
// Its errors are those of the sink's Resume and Commit. A topic that lost its checkpoint or
// messages, or belongs to another feed, is not changed. After [checkpoint.ErrConflict] nothing was
// changed. If a Commit fails otherwise, it is unknown whether it took place.
//
// While a bridge uses the sink, call [Bridge.SetPaused] instead.
func SetPaused(ctx context.Context, sink Sink, feed, writer string, pause bool) (PauseResult, error) {
	cp, err := sink.Resume(ctx)
	if err != nil {
		return PauseResult{}, err
	}
	return commitPause(ctx, sink, cp, feed, writer, pause)
}

// commitPause is SetPaused for a sink that has resumed from cp.
func commitPause(ctx context.Context, sink Sink, cp checkpoint.Checkpoint, feed, writer string, pause bool) (PauseResult, error) {
	if err := cp.Check(feed, cp.Kind()); err != nil {
		return PauseResult{}, err
	}
	if cp.IsPaused() == pause {
		return PauseResult{Checkpoint: cp}, nil
	}
	// The stored form has milliseconds.
	now := time.Now().UTC().Truncate(time.Millisecond)
	cp.Feed, cp.Source = feed, cmp.Or(cp.Source, checkpoint.UnknownSource)
	cp.At, cp.Writer, cp.Paused = now, writer, time.Time{}
	if pause {
		cp.Paused = now
	}
	if err := sink.Commit(context.WithoutCancel(ctx), nil, cp, nil); err != nil {
		return PauseResult{}, &sinkError{err, false}
	}
	return PauseResult{Checkpoint: cp, Changed: true}, nil
}

// waitWhilePaused enters the state Paused and reads the checkpoint every recheck until it is
// not paused any more. The source has been released.
func (b *Bridge) waitWhilePaused(ctx context.Context, cp checkpoint.Checkpoint) error {
	b.failing, b.failures, b.halts = false, 0, 0
	for entered := false; cp.IsPaused(); {
		if !entered || !sameCheckpoint(cp, b.last) {
			b.last, b.unstored = cp, nil
			b.setState(Status{State: Paused})
			entered = true
		}
		if _, err := sleepUntil(ctx, retry.Jitter(recheck), nil); err != nil {
			return err
		}
		var err error
		if cp, err = b.resumeSink(ctx); err != nil {
			return err
		}
	}
	return nil
}

// logPause logs that the feed was paused or resumed, once.
func (b *Bridge) logPause(cp checkpoint.Checkpoint) {
	switch {
	case cp.Paused.Equal(b.paused):
	case cp.IsPaused():
		b.Log.Info("the feed is paused", "since", cp.Paused)
	default:
		b.Log.Info("the feed is resumed")
	}
	b.paused = cp.Paused
}

// Poll makes a running bridge read the checkpoint and poll now, whatever it waits for, and
// returns when the entities that were found are published. A read that is going on is started
// again from the checkpoint. If ctx ends first, its error is returned and the poll
// continues. It may be called from any goroutine. After Run has returned the error is
// [ErrStopped].
func (b *Bridge) Poll(ctx context.Context) (PollResult, error) {
	r, err := b.commands.send(ctx, &command{})
	return r.poll, err
}

// SetPaused pauses a running feed, or resumes it, like the function [SetPaused]. It may be
// called from any goroutine. A bridge that publishes makes the commit between two others, so
// that it never loses a race against itself. If ctx ends first, its error is returned, and it
// is unknown whether the feed was paused. After Run has returned the error is [ErrStopped].
func (b *Bridge) SetPaused(ctx context.Context, pause bool) (PauseResult, error) {
	r, err := b.commands.send(ctx, &command{pause: &pause})
	return r.pause, err
}

// obeyPauses pauses or resumes the feed, whose checkpoint is cp, as the commands of the turn
// demand. It returns the newest checkpoint. Commands have no result after an error.
func (b *Bridge) obeyPauses(ctx context.Context, cp checkpoint.Checkpoint) (_ checkpoint.Checkpoint, err error) {
	b.turn.answer(func(c *command) (commandResult, bool) {
		if c.pause == nil || c.ctx.Err() != nil || err != nil {
			return commandResult{}, false
		}
		var r PauseResult
		if r, err = commitPause(ctx, b.Sink, cp, b.Feed, b.Writer, *c.pause); err != nil {
			return commandResult{}, false
		}
		cp = r.Checkpoint
		return commandResult{pause: r}, true
	})
	return cp, err
}
