package bridge

import (
	"context"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// A Source reads a feed. Its position is in the cursor. State that it keeps between calls
// must only save work, as an open connection does, and not affect its results.
//
// A Source is used by one goroutine at a time.
type Source interface {
	// Next reads on from the cursor after and returns the next entities in the feed's
	// order, up to the limits; the last entity may exceed the limit of bytes. A batch without
	// entities whose cursor equals after means that there is nothing new. If a page ends
	// early, Next first returns the complete entities before the end, and the error at the
	// next call. An error that matches [feed.ErrPermanent] requires action by a person. Any
	// other error is retried, after [feed.RetryDelay] at the earliest.
	Next(ctx context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error)
	// Release drops large state that only saves work, and returns its budget. A bridge calls
	// it when the source may not be used for a while: after an error or a panic of the
	// source or the sink, when the bridge stops, and when it continues with a source of
	// another kind. It is not called during Next. Next may be called again after it.
	Release()
}

// sourceSlot holds the source of the session, or of the last one. It is owned by the steps.
type sourceSlot struct {
	open func(ctx context.Context, kind string) (source Source, of string, err error)
	// source is nil before the first session and after it was released.
	source Source
	kind   string
}

// openFor opens the source that continues from the checkpoint. If it is of another kind than the
// last one, the last one is released. A checkpoint of another feed or kind is an error.
func (s *sourceSlot) openFor(ctx context.Context, cp checkpoint.Checkpoint, name string) error {
	source, kind, err := s.open(ctx, cp.Kind())
	if err != nil {
		return err
	}
	if err := cp.Check(name, kind); err != nil {
		return err
	}
	if kind != s.kind {
		if err := s.release(); err != nil {
			return err
		}
	}
	s.source, s.kind = source, kind
	return nil
}

// release releases the source, if that has not been done.
func (s *sourceSlot) release() (err error) {
	defer recoverPanic(&err)
	if source := s.source; source != nil {
		s.source = nil
		source.Release()
	}
	return nil
}

// callNext calls the source's Next.
func callNext(ctx context.Context, source Source, after feed.Cursor, limits feed.Limits) (batch feed.Batch, err error) {
	defer recoverPanic(&err)
	return source.Next(ctx, after, limits)
}
