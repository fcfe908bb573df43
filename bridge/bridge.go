// Package bridge copies one feed to one topic, exactly.
package bridge

import (
	"context"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// A Source reads a feed. It keeps no state between calls that its answers
// depend on: all that it knows of its place is in the cursor. What it may keep
// is what saves work, such as an open connection.
//
// A Source is used by one goroutine at a time.
type Source interface {
	// Next reads on from after and returns what comes next in the feed's
	// order. A batch without entities whose cursor equals after means that
	// there is nothing new. It returns what is whole and in order: when a page
	// breaks off it first returns the entities before the break, and the error
	// at the next call. An error that matches [feed.ErrPermanent] needs a
	// person; any other is worth another try, not before RetryAfter has passed
	// if the error has such a method (see [RetryLater]).
	Next(ctx context.Context, after feed.Cursor) (feed.Batch, error)
}

// A Sink appends to one topic and keeps the checkpoint there too. It is used
// by one goroutine at a time; any number of Sinks, in any number of processes,
// may write to the same topic.
type Sink interface {
	// Resume returns what the last Commit left, whoever made it, and the zero
	// Checkpoint for an empty topic. A topic with messages and no checkpoint
	// is [checkpoint.ErrMissing]. Resume is also what cures every error.
	Resume(ctx context.Context) (checkpoint.Checkpoint, error)
	// Commit appends entities in order and stores cp, all or nothing, and
	// returns when the bus has made them durable. It fails with
	// [checkpoint.ErrConflict] if anyone else has committed since this Sink's
	// last Resume or Commit. After any error the caller does not know whether
	// the commit took place, or will yet, and must Resume before it commits
	// again. A commit that takes place after a Resume has returned is
	// impossible once the next Commit has succeeded.
	Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error
}

// RetryLater is met by errors that know how long to wait before it makes sense
// to try again, as after a Retry-After header.
type RetryLater interface {
	error
	RetryAfter() time.Duration
}

// Limits say how large a commit serves a sink best. Zero means no limit.
type Limits struct {
	Entities int // number of entities
	Bytes    int // sum of [feed.Entity.Size]
}
