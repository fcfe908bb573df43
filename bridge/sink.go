package bridge

import (
	"context"
	"errors"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// A Sink appends to one topic, which also has the checkpoint. A Sink is used by one
// goroutine at a time. Any number of Sinks, in any number of processes, may write to the
// same topic.
type Sink interface {
	// Resume returns the checkpoint of the last Commit by any Sink, or the zero Checkpoint
	// for an empty topic. For a topic with messages and no checkpoint the error is
	// [checkpoint.ErrMissing]. After any error of Commit, Resume makes the Sink usable
	// again.
	Resume(ctx context.Context) (checkpoint.Checkpoint, error)
	// Commit appends entities in order and stores cp behind them, and returns when the bus has
	// made them durable. cp is never stored without them. A beginning of them may be stored
	// without cp after an error, or if the process dies: then it is known after Resume, as IDs and
	// in the checkpoint's count, and refuses the Commit of a Sink that has not resumed since.
	//
	// It fails with [checkpoint.ErrConflict] if another
	// Sink has committed since the last Resume or Commit of this one. After any error it
	// is unknown whether the commit took place, or still will, and the caller must call
	// Resume before it commits again. Once the next Commit has succeeded, an earlier one
	// can no longer take place.
	//
	// After a Commit that succeeded, the Sink must not use its entities any more, nor
	// anything that shares memory with them: their source reads other entities into it.
	Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error
}

// sinkError marks an error of the sink, as opposed to one of the source.
type sinkError struct {
	error
	resume bool // it is one of Resume
}

func (e *sinkError) Unwrap() error { return e.error }

// resumeSink calls the sink's Resume.
func resumeSink(ctx context.Context, sink Sink) (checkpoint.Checkpoint, error) {
	cp, err := sink.Resume(ctx)
	if err != nil {
		return cp, &sinkError{err, true}
	}
	return cp, nil
}

// IsSinkError reports whether an error in a [Status] is one of the sink, and not of the source.
func IsSinkError(err error) bool {
	_, ok := errors.AsType[*sinkError](err)
	return ok
}

// isResumeError reports whether an error is one of the sink's Resume.
func isResumeError(err error) bool {
	failed, ok := errors.AsType[*sinkError](err)
	return ok && failed.resume
}
