package serve

import (
	"context"
	"iter"

	"github.com/feedbridge/feedbridge/feed"
)

// A Log is a topic read back by position. Positions grow, may have gaps, and
// never change their message. Any number of goroutines may use it.
//
// An error that does not match [feed.ErrNoTopic] means that the bus cannot be
// asked right now.
type Log interface {
	// Span returns which positions the topic has now.
	Span(ctx context.Context) (feed.Span, error)
	// Read returns the records at the positions [from, to) in order; to is not
	// beyond the end of the last Span. It is read as far as it is ranged over. An
	// error is the last thing that it yields.
	Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error]
}

// A Counter is a Log that knows how many records a topic has without reading them. For
// a topic without a Counter the list of feeds shows the number of its positions, as an
// upper bound: Kafka does not report how many positions hold the markers of
// transactions and aborted records, and the count of a checkpoint includes entities that
// retention has removed.
type Counter interface {
	// Count returns how many records the topic has now.
	Count(ctx context.Context) (uint64, error)
}
