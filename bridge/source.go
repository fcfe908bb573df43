package bridge

import (
	"context"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// sourceSlot holds the source of the session, or of the last one. It is owned by the steps.
type sourceSlot struct {
	open func(ctx context.Context, kind string) (source feed.Source, of string, err error)
	// source is nil before the first session and after it was released.
	source feed.Source
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
func callNext(ctx context.Context, source feed.Source, after feed.Cursor, limits feed.Limits) (batch feed.Batch, err error) {
	defer recoverPanic(&err)
	return source.Next(ctx, after, limits)
}
