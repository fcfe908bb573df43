package feed

import "context"

// A Source reads a feed. Its position is in the cursor. State that it keeps between calls
// must only save work, as an open connection does, and not affect its results.
//
// A Source is used by one goroutine at a time.
type Source interface {
	// Next reads on from the cursor after and returns the next entities in the feed's
	// order, up to the limits; the last entity may exceed the limit of bytes. A batch without
	// entities whose cursor equals after means that there is nothing new. Next may be called with
	// the same cursor again, whose batch is dropped then. If a page ends
	// early, Next first returns the complete entities before the end, and the error at the
	// next call. An error that matches [ErrPermanent] requires action by a person. Any
	// other error is retried, after [RetryDelay] at the earliest.
	Next(ctx context.Context, after Cursor, limits Limits) (Batch, error)
	// Release drops large state that only saves work, and returns its budget. A bridge calls
	// it when the source may not be used for a while: after an error or a panic of the
	// source or the sink, when the bridge stops, and when it continues with a source of
	// another kind. It is not called during Next. Next may be called again after it.
	Release()
}
