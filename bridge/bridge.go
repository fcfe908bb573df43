// Package bridge copies one feed to one topic: all entities, in order, each once.
//
// A [Bridge] has a [Source], which reads the feed from a cursor, and a [Sink], which appends
// entities to the topic together with the checkpoint that has the next cursor. All state is
// on the bus. The loop gets the checkpoint from the sink, reads on from its cursor and
// commits. After any error, a lost answer, a conflict with another copy or a crash, it gets
// the checkpoint again. Starting and recovering are the same code.
//
// The topic may go back to an earlier state while copies hold newer knowledge. The bridge
// trusts only what Resume returns; the sink's fence compares more than a number.
//
// # Rules
//
// A test covers each of them. The others are where they are implemented.
//
//   - An empty batch that does not move the cursor is not committed: the commits of idle
//     copies would invalidate the fence of the busy one again and again.
//   - A batch that says More without moving the cursor is the end of the feed for now.
//   - Reading ahead has ended before Resume is called again. Batches that were read and not
//     committed are dropped with their session.
//   - A stop lets the commit in flight finish. Otherwise the next start would have to find out
//     whether it took place.
//   - A command of a person (pause, resume, poll) ends the session or the wait, and never a commit
//     in flight. It is carried out after Resume, like everything else.
//   - A feed waits for budget in three ways, so that feeds never wait for each other. A poll
//     reads without budget until it has found 64 KiB. A feed with a backlog that holds no
//     batch waits a second, keeping its place in the queue, and then reads one without. Of the
//     feeds that wait within an entity, one at a time continues without. Batches that are held
//     can be committed, and commits need no budget.
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
	// order. A batch without entities whose cursor equals after means that there is
	// nothing new. If a page ends early, Next first returns the complete entities before
	// the end, and the error at the next call. An error that matches [feed.ErrPermanent]
	// requires action by a person. Any other error is retried, after [feed.RetryDelay] at
	// the earliest.
	Next(ctx context.Context, after feed.Cursor) (feed.Batch, error)
	// Release drops large state that only saves work, and returns its budget. A bridge calls
	// it when the source may not be used for a while: after an error or a panic of the
	// source or the sink, when the bridge stops, and when it continues with a source of
	// another kind. It is not called during Next. Next may be called again after it.
	Release()
}

// A Sink appends to one topic, which also has the checkpoint. A Sink is used by one
// goroutine at a time. Any number of Sinks, in any number of processes, may write to the
// same topic.
type Sink interface {
	// Resume returns the checkpoint of the last Commit by any Sink, or the zero Checkpoint
	// for an empty topic. For a topic with messages and no checkpoint the error is
	// [checkpoint.ErrMissing]. After any error of Commit, Resume makes the Sink usable
	// again.
	Resume(ctx context.Context) (checkpoint.Checkpoint, error)
	// Commit appends entities in order and stores cp, all or nothing, and returns when
	// the bus has made them durable. It fails with [checkpoint.ErrConflict] if another
	// Sink has committed since the last Resume or Commit of this one. After any error it
	// is unknown whether the commit took place, or still will, and the caller must call
	// Resume before it commits again. Once the next Commit has succeeded, an earlier one
	// can no longer take place.
	//
	// While it waits for the bus, Commit may call next, at most once and not after it has
	// returned, and send the entities that next returns to the bus ahead of their commit.
	// They become part of the topic only with that commit. If it has other entities, or is
	// never made, they are dropped. next may be nil, or return none.
	Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, next func() []feed.Entity) error
}

// Limits are the limits of joined batches. Zero means no limit.
type Limits struct {
	Entities int // number of entities
	Bytes    int // sum of [feed.Entity.Size]
}
