// Package bridge copies one feed to one topic, exactly.
//
// A [Bridge] has a [Source], which reads the feed from a cursor, and a [Sink],
// which appends entities to the topic together with the checkpoint that holds
// the next cursor. The bus is the only state: the loop asks the sink where the
// topic stands, reads on from there and commits, and after any error, a lost
// answer, a conflict with another copy or a crash, it asks again. Starting and
// recovering are the same code.
//
// # Non-obvious
//
// Each of these has been got wrong once, and a test holds it now.
//
//   - Commit only what moves. A copy that commits empty batches while it has
//     nothing to say beats the busy copy's compare-and-set for ever.
//   - A batch that says More without moving must not be asked for again at
//     once: the loop would spin.
//   - Waits have jitter, or copies that failed together try again together.
//   - Reading ahead ends, and has ended, before Resume is called again. What
//     was read and not committed is gone with its session, for the sink's
//     memory of IDs takes it back at Resume.
//   - A stop lets the commit in flight finish: a commit whose answer nobody
//     waits for is harmless, but the next start would have to find out.
//   - A copy that sits idle looks at the checkpoint now and then. Nothing else
//     tells it that a person has moved the checkpoint, or that another copy
//     has published what it is about to read. If it finds the checkpoint moved,
//     the session ends: the look has renewed the sink's fence, which would let
//     a commit from the old place pass.
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

// A Stager is a Sink that can send a commit's entities ahead, while the bus is
// busy with the commit before it.
type Stager interface {
	Sink
	// CommitStaging is Commit. While it waits for the bus it calls next, at
	// most once and not after it has returned: next returns the entities that
	// the following commit will have, or none. They are sent ahead, and are no
	// part of the topic until that commit makes them so. If it is never made,
	// or has other entities, they are forgotten.
	CommitStaging(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, next func() []feed.Entity) error
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
