package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// A pause is a commit without entities, under the fence of the sink, by a copy that has resumed
// like any other. So the order of commits decides between a pause and entities: all entities
// of the topic were committed before it. A copy that has entities in flight loses the race,
// reads the checkpoint and finds the pause. A copy that reads a paused checkpoint makes no
// commit until it has read one that is not paused. If the process dies here, the pause is
// either stored or not.

// PauseResult is the result of a command that pauses or resumes a feed.
type PauseResult struct {
	// Checkpoint is the newest checkpoint of the feed.
	Checkpoint checkpoint.Checkpoint
	// Changed is false if the feed was already paused, or not paused.
	Changed bool
}

// SetPaused pauses a feed for all copies, or resumes it, by a commit to its topic. It keeps
// everything else in the checkpoint. A feed that was never published can be paused too.
//
// Its errors are those of the sink's Resume and Commit. A topic that lost its checkpoint or
// messages, or belongs to another feed, is not changed. After [checkpoint.ErrConflict] nothing was
// changed. If a Commit fails otherwise, it is unknown whether it took place.
//
// While a bridge uses the sink, call [Bridge.SetPaused] instead.
func SetPaused(ctx context.Context, sink Sink, name, writer string, pause bool) (PauseResult, error) {
	cp, err := sink.Resume(ctx)
	if err != nil {
		return PauseResult{}, err
	}
	return commitPause(ctx, sink, cp, name, writer, pause)
}

// commitPause is SetPaused for a sink that has resumed from cp.
func commitPause(ctx context.Context, sink Sink, cp checkpoint.Checkpoint, name, writer string, pause bool) (PauseResult, error) {
	if err := cp.Check(name, cp.Kind()); err != nil {
		return PauseResult{}, err
	}
	if cp.IsPaused() == pause {
		return PauseResult{Checkpoint: cp}, nil
	}
	// The stored form has milliseconds.
	now := time.Now().UTC().Truncate(time.Millisecond)
	cp.Feed, cp.Source = name, cmp.Or(cp.Source, checkpoint.UnknownSource)
	cp.At, cp.Writer, cp.Paused = now, writer, time.Time{}
	if pause {
		cp.Paused = now
	}
	if err := sink.Commit(context.WithoutCancel(ctx), nil, cp); err != nil {
		if !errors.Is(err, checkpoint.ErrConflict) && !errors.Is(err, feed.ErrPermanent) {
			err = fmt.Errorf("%w; it is not known whether this was stored: look with 'feedbridge status %s'", err, name)
		}
		return PauseResult{}, &sinkError{err, false}
	}
	return PauseResult{Checkpoint: cp, Changed: true}, nil
}
