package serve

import (
	"context"
	"iter"

	"github.com/feedbridge/feedbridge/feed"
)

// A Log is a topic read back by position. Positions grow, may have gaps, and
// never change their message. Any number of goroutines may use it.
//
// An error that matches [feed.ErrNoTopic] means that there is no topic, and one that matches
// [feed.ErrPermanent] that a person must act. Any other error means that the bus cannot be
// asked now.
type Log interface {
	// Span returns the range of positions that the topic has now.
	Span(ctx context.Context) (feed.Span, error)
	// Read returns the records at the positions [from, to) in order; to is not
	// beyond the end of the last Span. It is read as far as it is ranged over. An
	// error is the last thing that it yields.
	Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error]
}
